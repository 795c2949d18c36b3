"""The judge of `make faults` can fail: doctored answers are found out."""

import random

import pytest

from apiserver.gpu.capacity import Tally, node_share
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from tests.cluster.client import Json
from tests.cluster.workload import gpu_class, node, pod
from tests.faults.figures import Figures, requests, true_figures
from tests.faults.history import History, Version, Written, merge
from tests.faults.judging import Judge, Told, Verdict, doubt

CARD = "vendor.example/card-a"
MAX_STALENESS = 10


def line(kind: str, resource: str, version: int, obj: Json) -> Json:
    """What the informer tells."""
    return {"type": kind, "resource": resource, "resourceVersion": str(version), "object": obj}


def stored(devices: int) -> Json:
    """A Node with so many devices."""
    return node("n1", capacity={CARD: devices})


def figures(devices: int, held: int = 0) -> Figures:
    """The figures of one Node."""
    return Figures(devices, devices, held, 0, devices - held, 0, devices - held)


def history() -> History:
    """At 10 s eight devices, at 20 s nine of which a Pod holds two, at 30 s the Pod is gone, at 100 s ten."""
    lines = [
        line("add", "gpuclasses", 1, gpu_class("a", CARD)),
        line("add", "nodes", 2, stored(8)),
        line("update", "nodes", 3, stored(9)),
        line("add", "pods", 4, pod("p", node="n1", requests={CARD: 2})),
        line("delete", "pods", 5, pod("p", node="n1", requests={CARD: 2})),
        line("update", "nodes", 6, stored(10)),
    ]
    written = [
        Written(
            each["resource"],
            each["object"]["metadata"]["name"],
            float(each["resourceVersion"]),
            at,
            at + 0.1,
            None if each["type"] == "delete" else each["object"],
        )
        for each, at in zip(lines, (9, 10, 20, 20, 30, 100), strict=True)
    ]
    return History(merge(lines, written, 0, 200), 200)


def told(at: float, *, is_list: bool = True, **answered: Figures) -> Told:
    """An answer at a time."""
    return Told("reader", "server", at, at + 0.1, answered, is_list=is_list)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        pytest.param(told(15, a=figures(8)), Verdict.TRUE, id="true now"),
        pytest.param(told(29, a=figures(8)), Verdict.TRUE, id="old, within the limit"),
        pytest.param(told(31, a=figures(8)), Verdict.STALE, id="beyond the limit"),
        pytest.param(told(25, a=figures(9, 2)), Verdict.TRUE, id="with the pod"),
        pytest.param(told(25, a=figures(9, 1)), Verdict.WRONG, id="never so"),
        pytest.param(told(90, a=figures(10)), Verdict.WRONG, id="not so yet"),
        pytest.param(told(25, a=figures(8, 2)), Verdict.MIXED, id="nodes of before, pods of after"),
        pytest.param(told(99, a=figures(9, 2)), Verdict.STALE, id="a pod that is long gone"),
        pytest.param(told(150, a=figures(8, 2)), Verdict.STALE, id="mixed, and both long ago"),
        pytest.param(told(25), Verdict.STALE, id="a list without the class, as long ago"),
        pytest.param(told(25, is_list=False), Verdict.TRUE, id="an event about nothing"),
        pytest.param(told(25, a=figures(9, 2), b=figures(9, 2)), Verdict.WRONG, id="a class that never was"),
    ],
)
def test_verdicts(answer: Told, verdict: Verdict) -> None:
    """An answer is judged by what was true between its request, less the age allowed, and its end."""
    assert Judge(history(), MAX_STALENESS).verdict(answer) is verdict


def test_a_judge_who_notices_nothing_is_found_out() -> None:
    """Answers made false must be found wrong or stale; one who allows any age does not notice the latter."""
    answers = [told(15, a=figures(8)), told(25, a=figures(9, 2)), told(150, a=figures(10))]
    assert doubt(Judge(history(), MAX_STALENESS), answers, MAX_STALENESS).startswith("of 3 answers the judge finds 3 ")
    with pytest.raises(AssertionError, match="0 stale"):
        doubt(Judge(history(), 1000), answers, MAX_STALENESS)
    with pytest.raises(AssertionError, match="of 0 answers"):
        doubt(Judge(history(), MAX_STALENESS), [], MAX_STALENESS)


def test_lost_answers_are_found_in_the_informers_log() -> None:
    """A write whose answer was lost is taken from the informer, and came between its neighbours."""
    written = [
        Written("nodes", "n1", 2, 10, 11, stored(8)),
        Written("nodes", "n1", 4, 30, 31, stored(10)),
    ]
    merged = merge([line("update", "nodes", 3, stored(9))], written, 0, 100)
    assert [(each.version, each.came) for each in merged] == [(2, (10, 11)), (3, (10, 31)), (4, (30, 31))]


def test_states_the_informer_missed_are_found_in_the_writers_log() -> None:
    """What came and went while the informer was cut off was answered to the writer."""
    p = pod("p", node="n1", requests={CARD: 2})
    written = [Written("pods", "p", 7, 1, 2, p), Written("pods", "p", 7.5, 3, 4, None)]
    assert merge([], written, 0, 100) == [
        Version(7, "pods", "p", p, (1, 2)),
        Version(7.5, "pods", "p", None, (3, 4)),
    ]


def test_the_informers_word_about_an_end_goes_first() -> None:
    """A deletion that both know is one version, not two."""
    p = pod("p", node="n1")
    written = [Written("pods", "p", 7, 1, 2, p), Written("pods", "p", 7.5, 3, 4, None)]
    merged = merge([line("delete", "pods", 9, p)], written, 0, 100)
    assert [(each.version, each.object is None) for each in merged] == [(7, False), (9, True)]


def test_a_deletion_says_nothing_of_a_change_before_it_whose_answer_was_lost() -> None:
    """The change has version 8 and the deletion after it version 9, but the writer only knew of 7 when it deleted."""
    p = pod("p", node="n1")
    written = [
        Written("pods", "p", 7, 1, 2, p),
        Written("pods", "p", 7.5, 20, 21, None),
        Written("nodes", "n1", 10, 30, 31, stored(10)),
    ]
    merged = merge([line("update", "nodes", 8, stored(9)), line("delete", "pods", 9, p)], written, 0, 100)
    assert [(each.version, each.came) for each in merged] == [(7, (1, 2)), (8, (1, 21)), (9, (20, 21)), (10, (30, 31))]
    unseen = merge([line("update", "nodes", 8, stored(9))], written, 0, 100)
    assert {each.version: each.came for each in unseen}[8] == (1, 31)


def test_deletions_one_after_the_other_keep_their_times() -> None:
    """With nothing between them the writer gives both the same place, and yet the second came later."""
    p, c = pod("p", node="n1"), gpu_class("a", CARD)
    written = [
        Written("pods", "p", 7, 1, 2, p),
        Written("gpuclasses", "a", 8, 3, 4, c),
        Written("pods", "p", 8.5, 20, 21, None),
        Written("gpuclasses", "a", 8.5, 30, 31, None),
    ]
    ends = [(each.name, each.came) for each in merge([], written, 0, 100) if each.object is None]
    assert ends == [("p", (20, 21)), ("a", (30, 31))]


def test_an_end_that_nobody_was_told() -> None:
    """An informer that finds an object gone at its next list, for a writer whose answer was lost."""
    p = pod("p", node="n1")
    merged = merge([line("lost", "pods", 7, p)], [Written("pods", "p", 7, 1, 2, p)], 0, 100)
    assert [(each.version, each.object is None) for each in merged] == [(7, False), (7.25, True)]


def test_thousands() -> None:
    """kube-apiserver writes 1000 as "1k", and the judge reads it."""
    nodes = {"n1": node("n1", capacity={CARD: 2000}, allocatable={CARD: 1000})}
    nodes["n1"]["status"] |= {"capacity": {CARD: "2k"}, "allocatable": {CARD: "1k"}}
    assert true_figures(CARD, nodes, {"n1": 5}) == Figures(2000, 1000, 5, 0, 995, 1000, 995)


def test_the_simple_calculation_agrees_with_the_model() -> None:
    """On random Nodes and Pods the few lines of the judge and the model, which share nothing, say the same."""
    chance = random.Random(1)  # noqa: S311 # no secret
    gpu = parse_class(gpu_class("a", CARD))
    for _ in range(200):
        nodes = {f"n{number}": _node(chance, f"n{number}") for number in range(3)}
        pods = [
            pod(f"p{number}", node=chance.choice(["n0", "n1", "n2"]), requests={CARD: chance.randrange(9)})
            for number in range(4)
        ]
        held = requests(pods, CARD)
        tally = Tally()
        for name, each in nodes.items():
            known = Node(
                name=name,
                ready=True,
                unschedulable=each["spec"].get("unschedulable", False),
                capacity={CARD: int(each["status"]["capacity"][CARD])},
                allocatable={CARD: int(each["status"]["allocatable"][CARD])},
            )
            tally.add(node_share(gpu, known, held.get(name, 0), {}))
        assert true_figures(CARD, nodes, held) == Figures(
            tally.capacity,
            tally.allocatable,
            tally.requested,
            tally.overcommitted,
            tally.free,
            tally.unavailable,
            tally.max_free_per_node,
        )


def _node(chance: random.Random, name: str) -> Json:
    capacity = chance.randrange(20)
    return node(
        name,
        capacity={CARD: capacity},
        allocatable={CARD: chance.randrange(capacity + 1)},
        unschedulable=chance.random() < 0.2,
    )
