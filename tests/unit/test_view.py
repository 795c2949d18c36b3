"""The live view: deltas, and that they add up to the same as a view built from nothing."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apiserver.catalog.gpuclasscatalog import Pages, catalog_object
from apiserver.cluster.view import ClassReport, View, Waiting
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Node
from apiserver.gpu.offers import Permits
from apiserver.gpu.pods import Pod
from apiserver.gpu.tolerations import NO_SCHEDULE, Taint, Toleration

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
R = RESOURCES[0]
TAINT = Taint("gpu", "", NO_SCHEDULE)


def everything(view: View) -> dict[str, Any]:
    """All that a view says, in plain values."""
    said = {}
    for name in sorted(view.names()):
        report = view.report(name)
        assert report is not None
        said[name] = (report, list(view.nodes(name)), view.nodes_without_resource(name), view.waiting(name))
    return said


NAMES = st.sampled_from(["a", "b", "c"])
CLASSES = st.builds(
    GPUClass,
    NAMES,
    st.fixed_dictionaries({"creationTimestamp": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])}),
    resource_name=st.sampled_from([*RESOURCES, ""]),
    owned_resource_name=st.sampled_from([*RESOURCES, ""]),
    tolerations=st.sampled_from([(), (Toleration("gpu", "Exists"),)]),
)
QUANTITIES = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 4), max_size=2)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Some node."""
    allocatable = draw(QUANTITIES)
    return Node(
        draw(NAMES),
        ready=draw(st.booleans()),
        taints=draw(st.sampled_from([(), (TAINT,)])),
        capacity=allocatable,
        allocatable=allocatable,
        malformed=draw(st.sampled_from([{}, {R: "x"}])),
    )


PODS = st.builds(
    Pod,
    st.just("ns"),
    NAMES,
    st.sampled_from(["a", "b", "c", ""]),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 4), max_size=2),
    st.sampled_from(["", "a"]),
    st.sampled_from([frozenset[str](), frozenset({R})]),
)
DELTAS = st.lists(
    st.tuples(st.just("apply_class"), CLASSES)
    | st.tuples(st.just("delete_class"), NAMES)
    | st.tuples(st.just("replace_classes"), st.lists(CLASSES, max_size=3))
    | st.tuples(st.just("apply_node"), nodes())
    | st.tuples(st.just("delete_node"), NAMES)
    | st.tuples(st.just("replace_nodes"), st.lists(nodes(), max_size=3))
    | st.tuples(st.just("apply_pod"), PODS)
    | st.tuples(st.just("delete_pod"), st.tuples(st.just("ns"), NAMES))
    | st.tuples(st.just("replace_pods"), st.lists(PODS, max_size=3)),
    max_size=25,
)


class Objects:
    """The objects themselves, kept in the simplest way: what a view built from nothing is built from."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[Any, Any]] = {"class": {}, "node": {}, "pod": {}}

    def take(self, verb: str, value: Any) -> None:  # noqa: ANN401 # an object, a key or a list
        """Follow one delta."""
        action, _, kind = verb.partition("_")
        kept = self.kept[{"classes": "class", "nodes": "node", "pods": "pod"}.get(kind, kind)]
        if action == "apply":
            kept[_key(value)] = value
        elif action == "delete":
            kept.pop(value, None)
        else:
            kept.clear()
            kept.update({_key(each): each for each in value})

    def rebuilt(self) -> View:
        """A view built from nothing."""
        view = View(selector={})
        view.replace_pods(self.kept["pod"].values())
        view.replace_nodes(self.kept["node"].values())
        view.replace_classes(self.kept["class"].values())
        return view


def _key(value: Any) -> Any:  # noqa: ANN401 # as above
    return (value.namespace, value.name) if isinstance(value, Pod) else value.name


@given(DELTAS)
def test_deltas_equal_rebuild(deltas: list[tuple[str, Any]]) -> None:
    """After any sequence of deltas the view says what one built from nothing says, and what changed was marked."""
    view, objects = View(), Objects()
    changes = view.follow()
    for verb, value in deltas:
        before = everything(view)
        changes.take()
        getattr(view, verb)(value)
        objects.take(verb, value)
        after = everything(view)
        changed = {name for name in {*before, *after} if _totals(before, name) != _totals(after, name)}
        taken = changes.take()
        assert changed <= taken.names
        assert {*before} - {*after} <= {*taken.departed} <= taken.names
        assert all(_same_class(taken.departed[name], before[name][0]) for name in {*before} - {*after})
    assert everything(view) == everything(objects.rebuilt())


def _same_class(departed: ClassReport, before: ClassReport) -> bool:
    """Whether the last state of a class that went is the one it had."""
    return departed.gpu_class == before.gpu_class and departed.tally == before.tally


def _totals(said: dict[str, Any], name: str) -> Any:  # noqa: ANN401 # a tuple or nothing
    """The figures of a class as values: a report holds the live tally, which moves on."""
    if name not in said:
        return None
    return tuple((node.name, node.share) for node in said[name][1]), said[name][0].claim, said[name][0].gpu_class


def test_bind_and_delete() -> None:
    """A bound pod takes devices from its node only, and gives them back when it goes."""
    view = View()
    view.apply_class(GPUClass("gpu", resource_name=R))
    view.apply_node(Node("n", capacity={R: 4}, allocatable={R: 4}))
    pod = Pod("ns", "p", "", {R: 1})
    figures = []
    for step in (pod, replace(pod, node="elsewhere"), replace(pod, node="n"), replace(pod, node="n", weight={R: 3})):
        view.apply_pod(step)
        report = view.report("gpu")
        assert report is not None
        figures.append((report.tally.free, view.waiting("gpu").pending))
    view.delete_pod(("ns", "p"))
    report = view.report("gpu")
    assert report is not None
    assert [*figures, (report.tally.free, 0)] == [(4, 1), (4, 0), (3, 0), (1, 0), (4, 0)]


def test_pods_outlive_their_node() -> None:
    """A pod on a node that is gone weighs again the moment a node of that name is back."""
    view = View()
    view.apply_class(GPUClass("gpu", resource_name=R))
    node = Node("n", capacity={R: 4}, allocatable={R: 4})
    view.apply_pod(Pod("ns", "p", "n", {R: 3}))
    view.apply_node(node)
    view.delete_node("n")
    view.apply_node(node)
    report = view.report("gpu")
    assert report is not None
    assert report.tally.free == 1


def test_waiting() -> None:
    """Pods without a node are told apart from those that are nominated to one."""
    view = View()
    view.apply_class(GPUClass("gpu", resource_name=R))
    view.apply_pod(Pod("ns", "p", "", {R: 1}))
    view.apply_pod(Pod("ns", "q", "", {R: 2}, nominated_node="n"))
    assert view.waiting("gpu") == Waiting(pending=3, nominated=2)


def test_resources() -> None:
    """Devices that two classes sell count once, on nodes that are eligible for either of them."""
    view = View()
    tolerant = (Toleration(key=TAINT.key, operator="Exists"),)
    view.apply_class(GPUClass("plain", resource_name=R))
    view.apply_class(GPUClass("tolerant", resource_name=R, tolerations=tolerant))
    view.apply_class(GPUClass("alone", resource_name="a.b/alone"))
    view.apply_class(GPUClass("broken"))
    view.apply_node(Node("n", capacity={R: 4}, allocatable={R: 4}))
    view.apply_node(Node("tainted", capacity={R: 8}, allocatable={R: 8}, taints=(TAINT,)))
    view.apply_node(Node("cordoned", capacity={R: 16}, allocatable={R: 13}, unschedulable=True))
    view.apply_pod(Pod("ns", "p", "n", {R: 5}))
    found = {name: (tally.allocatable, tally.requested, tally.free) for name, tally in view.resources()}
    assert found == {R: (12, 5, 8), "a.b/alone": (0, 0, 0)}
    left_out = {name: (tally.overcommitted, tally.unavailable, tally.unhealthy) for name, tally in view.resources()}
    assert left_out == {R: (1, 16, 3), "a.b/alone": (0, 0, 0)}
    view.delete_class("plain")
    view.delete_class("tolerant")
    assert [name for name, _ in view.resources()] == ["a.b/alone"]


def test_heartbeat_changes_nothing() -> None:
    """An object that comes again as it was marks nothing as changed."""
    view = View()
    view.apply_class(GPUClass("gpu", resource_name=R))
    node = Node("n", capacity={R: 4}, allocatable={R: 4})
    view.apply_node(node)
    changes = view.follow()
    assert changes.take().names == {"gpu"}
    view.apply_node(replace(node))
    assert changes.take().names == set()


def test_permits_touch_every_class() -> None:
    """A new table of KubeVirt marks every class as changed, the same one again marks none."""
    view = View()
    view.apply_class(GPUClass("gpu", resource_name=R))
    changes = view.follow()
    changes.take()
    for changed in ({"gpu"}, set[str]()):
        view.set_permits(Permits(frozenset({R})))
        assert changes.take().names == changed


def test_each_reader_takes_its_own() -> None:
    """Two readers are told of the same, each once until it looks; and of what came and went in between."""
    view, calls = View(), list[str]()
    first, second = (view.follow(lambda name=name: calls.append(name)) for name in "ab")  # type: ignore[misc]
    view.apply_class(GPUClass("gpu", resource_name=R))
    view.apply_class(GPUClass("other"))
    assert (calls, first.take().names) == (["a", "b"], {"gpu", "other"})
    view.delete_class("gpu")
    assert calls == ["a", "b", "a"]
    for reader in (first, second):
        taken = reader.take()
        assert "gpu" in taken.names
        assert taken.departed["gpu"].gpu_class.resource_name == R
        assert reader.take().names == set()


WHAT_ONLY_PAGES_TELL = st.lists(
    st.tuples(st.just("reject_pod"), st.tuples(st.just("ns"), NAMES))
    | st.tuples(st.just("set_mapped"), st.dictionaries(st.sampled_from(RESOURCES), st.just(("dra",))))
    | st.tuples(st.just("set_permits"), st.sampled_from([Permits(), Permits({R}), Permits({R}, stale=True)])),
    max_size=5,
)


@given(DELTAS, WHAT_ONLY_PAGES_TELL, st.randoms(use_true_random=False))
def test_a_page_is_never_older_than_the_view(
    deltas: list[tuple[str, Any]], more: list[tuple[str, Any]], random: Random
) -> None:
    """After every change the page that is kept says what one made from nothing says."""
    view = View()
    pages = Pages(view)
    mixed = [*deltas, *more]
    random.shuffle(mixed)
    for verb, value in mixed:
        getattr(view, verb)(value)
        for name in ("a", "b", "c"):
            page = pages.page(name)
            assert (None if page is None else page.object) == catalog_object(view, name)
            assert pages.page(name) is page
