"""Loads: what a pod takes besides devices, and the sums for each node."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.cluster.live import _Pods
from apiserver.cluster.loads import Load, Loads, PodKey
from apiserver.cluster.objects import PodObject, PodReading, read_pod, to_load, to_pod
from apiserver.cluster.view import View
from apiserver.gpu.nodes import Compute

Json = dict[str, Any]
MIB = 2**20


def bound(spec: Json, status: Json | None = None) -> PodObject:
    """A bound pod, from JSON."""
    raw = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", **spec}, "status": status or {}}
    return msgspec.convert(raw, PodObject)


def load(spec: Json, status: Json | None = None) -> Load | None:
    """The load of a bound pod, from JSON."""
    return to_load(bound(spec, status))


def container(name: str, cpu: object, memory: object = "0", **more: object) -> Json:
    """A container with requests."""
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def said(name: str, allocated: Json | None, actuated: Json | None = None) -> Json:
    """The status of a container."""
    resources = None if actuated is None else {"requests": actuated}
    return {"name": name, "allocatedResources": allocated, "resources": resources}


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
ONE = [container("c", "1", "1Mi")]


@pytest.mark.parametrize(
    ("spec", "status", "cpu_milli", "memory_bytes"),
    [
        pytest.param({}, {}, 0, 0, id="no container"),
        pytest.param({"containers": [{"name": "c"}]}, {}, 0, 0, id="no resources"),
        pytest.param({"containers": [container("c", "100m", "1Mi"), container("d", 1)]}, {}, 1100, MIB, id="the sum"),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "5"}}}]},
            {},
            2000,
            5,
            id="a limit stands for a request that is not there",
        ),
        pytest.param({"containers": [container("c", "1u", "1m")]}, {}, 1, 1, id="rounded up once"),
        pytest.param(
            {"containers": [container("c", 0, "400m"), container("d", 0, "400m")]}, {}, 0, 1, id="not once a container"
        ),
        pytest.param(
            {"containers": ONE, "initContainers": [container("i", "3")]}, {}, 3000, MIB, id="the larger of both"
        ),
        pytest.param(
            {"containers": ONE, "initContainers": [container("s", "3", restartPolicy="Always")]},
            {},
            4000,
            MIB,
            id="a sidecar adds",
        ),
        pytest.param({"containers": ONE, "overhead": {"cpu": "250m", "memory": 7}}, {}, 1250, MIB + 7, id="overhead"),
        pytest.param(
            {"containers": ONE, "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}},
            {},
            3000,
            MIB,
            id="what is set for the pod replaces what containers ask for, by name",
        ),
        pytest.param(
            {"containers": ONE, "resources": {"requests": {"example.com/x": "2"}}}, {}, 1000, MIB, id="of no meaning"
        ),
        pytest.param(
            {"containers": ONE, "resources": {"requests": {"cpu": "2"}}},
            {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4", "memory": "2Mi"}},
            4000,
            2 * MIB,
            id="a resize of the pod as a whole: the largest, whichever names it",
        ),
        pytest.param(
            {"containers": ONE, "resources": {"requests": {"cpu": "9"}}},
            {"resources": {"requests": {"cpu": "3"}}, "conditions": INFEASIBLE},
            3000,
            0,
            id="an infeasible resize of the pod as a whole",
        ),
        pytest.param(
            {"containers": ONE, "resources": {"requests": {"cpu": "9"}}},
            {"allocatedResources": {"cpu": "3"}, "conditions": INFEASIBLE},
            9000,
            0,
            id="without status.resources nothing but the spec counts",
        ),
        pytest.param(
            {"containers": ONE}, {"containerStatuses": [said("c", {"cpu": "2"})]}, 2000, MIB, id="allocated more"
        ),
        pytest.param(
            {"containers": ONE},
            {"containerStatuses": [said("c", {"cpu": "1", "memory": "1Mi"}, {"cpu": "3"})]},
            3000,
            MIB,
            id="held more",
        ),
        pytest.param(
            {"containers": ONE},
            {"containerStatuses": [said("c", {"cpu": "200m", "memory": "1"})], "conditions": INFEASIBLE},
            200,
            1,
            id="an infeasible resize",
        ),
        pytest.param(
            {"containers": ONE},
            {"allocatedResources": {"cpu": "5"}, "resources": {"requests": {"memory": "5Mi"}}},
            5000,
            5 * MIB,
            id="a status of the pod as a whole",
        ),
        pytest.param({"containers": [container("c", "10P", "10E")]}, {}, 0, 0, id="beyond int64 is 0"),
    ],
)
def test_load(spec: Json, status: Json, cpu_milli: int, memory_bytes: int) -> None:
    """Cpu and memory are counted as the scheduler's NodeInfo counts them."""
    found = load(spec, status)
    assert found is not None
    assert found[:3] == ("n", cpu_milli, memory_bytes)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"nodeName": ""}, {}, id="bound to no node"),
        pytest.param({}, {"phase": "Succeeded"}, id="succeeded"),
        pytest.param({}, {"phase": "Failed"}, id="failed"),
    ],
)
def test_no_load(spec: Json, status: Json) -> None:
    """A pod that is on no node, or has ended, takes nothing, not even a slot."""
    assert load({"containers": ONE, **spec}, status) is None


def test_unreadable() -> None:
    """What cannot be read is 0, and the pod is named."""
    unreadable = load({"containers": [container("c", "much", "1Mi")]})
    assert unreadable == ("n", 0, MIB, True)
    loads = Loads()
    loads.apply(("ns", "p"), unreadable)
    assert list(loads.unreadable) == ["ns/p"]
    loads.apply(("ns", "p"), ("n", 1, 1, False))
    assert list(loads.unreadable) == []


MAPS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "250m", 2]),
        "memory": st.sampled_from(["1Mi"]),
        "nvidia.com/a": st.sampled_from(["1", 2, "0", "500m", "many"]),
        "example.org/b": st.sampled_from(["1", "-1"]),
    },
)
NAMES = st.sampled_from("cd")
STATUSES = st.lists(
    st.builds(said, NAMES, st.none() | MAPS, st.none() | MAPS), max_size=2, unique_by=lambda x: x["name"]
)


@given(
    st.lists(MAPS, min_size=1, max_size=2),
    st.lists(st.none() | MAPS, min_size=2, max_size=2),
    STATUSES,
    st.sampled_from([None, INFEASIBLE]),
    st.none() | MAPS,
    st.none() | MAPS,
)
def test_short_way_is_the_long_way(
    requests: list[Json],
    limits: list[Json | None],
    statuses: list[Json],
    conditions: Any,  # noqa: ANN401 # JSON
    overhead: Any,  # noqa: ANN401 # JSON
    whole: Any,  # noqa: ANN401 # JSON
) -> None:
    """Ordinary pods are counted in a short way; an idle init container changes nothing but forces the long one."""
    resources = [{"requests": each, "limits": limit} for each, limit in zip(requests, limits, strict=False)]
    containers = [{"name": name, "resources": each} for name, each in zip("cd", resources, strict=False)]
    spec = {"containers": containers, "overhead": overhead}
    status = {"containerStatuses": statuses, "conditions": conditions, "allocatedResources": whole}
    if whole is not None:
        status["resources"] = {"requests": {"cpu": "3", "nvidia.com/a": "3"}}
    long_spec = {**spec, "initContainers": [{"name": "i"}]}
    assert load(spec, status) == load(long_spec, status)
    assert to_pod(bound(spec, status)) == to_pod(bound(long_spec, status))


def reading(name: str, node: str, cpu: str, phase: str = "Running") -> PodReading:
    """What is kept of a pod of one container without devices."""
    spec = {"nodeName": node, "containers": [container("c", cpu)]}
    raw = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"phase": phase}}
    return read_pod(msgspec.convert(raw, PodObject))


def test_view_is_told_of_loads() -> None:
    """What the reflector of pods says reaches the sums: lists, changes, ends; what cannot be read weighs as before."""
    view = View()
    told = _Pods(view)
    told.replace(
        [reading("p", "n", "1"), reading("q", "n", "2"), reading("r", "", "4"), reading("s", "n", "8", "Failed")]
    )
    found = [view.loads.on("n")]
    told.apply("ADDED", reading("r", "n", "4"))
    found.append(view.loads.on("n"))
    told.apply("MODIFIED", reading("q", "n", "2", "Succeeded"))
    found.append(view.loads.on("n"))
    told.apply("DELETED", reading("p", "n", "1"))
    found.append(view.loads.on("n"))
    told.reject("ns/r", "broken")
    found.append(view.loads.on("n"))
    told.replace([reading("p", "m", "1")])
    assert [(each.cpu_milli, each.pods) for each in found] == [(3000, 2), (7000, 3), (5000, 2), (4000, 1), (4000, 1)]
    assert {name: each.pods for name, each in view.loads.by_node().items()} == {"m": 1}


KEYS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["p", "q"]))
LOADS = st.tuples(st.sampled_from(["m", "n"]), st.integers(0, 3), st.integers(0, 3), st.booleans())
DELTAS = st.lists(
    st.tuples(st.just("apply"), KEYS, LOADS)
    | st.tuples(st.just("delete"), KEYS)
    | st.tuples(st.just("replace"), st.lists(st.tuples(KEYS, LOADS), max_size=4)),
    max_size=20,
)


@given(DELTAS)
def test_deltas_are_a_rebuild(deltas: list[Any]) -> None:
    """After any deltas the sums are those of the pods that are there."""
    loads, kept = Loads(), dict[PodKey, Load]()
    for action, *arguments in deltas:
        getattr(loads, action)(*arguments)
        match action:
            case "apply":
                kept[arguments[0]] = arguments[1]
            case "delete":
                kept.pop(arguments[0], None)
            case _:
                kept = dict(arguments[0])
    for node in "mn":
        here = [each for each in kept.values() if each[0] == node]
        assert loads.on(node) == Compute(sum(each[1] for each in here), sum(each[2] for each in here), len(here))
    assert list(loads.unreadable) == [
        f"{namespace}/{name}" for namespace, name in sorted(k for k in kept if kept[k][3])
    ]
