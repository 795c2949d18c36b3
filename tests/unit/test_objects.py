"""Nodes and pods from the wire."""

from typing import Any

import msgspec
import pytest

from apiserver.cluster.objects import NodeObject, PodObject, to_node, to_pod
from apiserver.gpu.nodes import Compute, Node
from apiserver.gpu.pods import Pod
from apiserver.gpu.tolerations import Taint

R = "nvidia.com/gpu"


def read_node(**parts: Any) -> Node:  # noqa: ANN401 # JSON
    """A node from JSON."""
    return to_node(msgspec.convert({"metadata": {"name": "n"}, **parts}, NodeObject))


def read_pod(spec: Any, status: Any = None) -> Pod | None:  # noqa: ANN401 # JSON
    """A pod from JSON."""
    raw = {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status or {}}
    return to_pod(msgspec.convert(raw, PodObject))


def asking(devices: object, key: str = "requests") -> dict[str, Any]:
    """The spec of a bound pod with one container asking for devices."""
    return {"nodeName": "n", "containers": [{"name": "c", "resources": {key: {R: devices, "cpu": "1"}}}]}


def test_node() -> None:
    """Devices are whole numbers by counted name, the rest decides whether the node takes pods."""
    node = read_node(
        spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        status={
            "capacity": {R: "4", "cpu": "64", "example.com/only-capacity": 2},
            "allocatable": {R: "3", "cpu": "63500m", "memory": "1Ki", "pods": 110, "requests.nvidia.com/gpu": "9"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )
    assert node == Node(
        name="n",
        unschedulable=True,
        taints=(Taint("k", "v", "NoSchedule"),),
        capacity={R: 4, "example.com/only-capacity": 2},
        allocatable={R: 3, "example.com/only-capacity": 0},
        compute=Compute(63500, 1024, 110),
    )


@pytest.mark.parametrize("status", ["False", "Unknown", "true", ""])
def test_not_ready(status: str) -> None:
    """Ready means exactly the string True."""
    assert not read_node(status={"conditions": [{"type": "Ready", "status": status}]}).ready
    assert not read_node().ready


@pytest.mark.parametrize(
    ("status", "capacity", "allocatable"),
    [
        pytest.param({"capacity": {R: 4}}, 4, 4, id="no allocatable at all is capacity, as decoding defaults it"),
        pytest.param({"capacity": {R: 4}, "allocatable": {}}, 4, 0, id="a map without the name is 0"),
        pytest.param({"allocatable": {R: 4}}, 4, 4, id="capacity is never less than allocatable"),
        pytest.param({"capacity": {R: 2}, "allocatable": {R: 4}}, 4, 4, id="not even when it says so"),
        pytest.param({"capacity": {R: -2}, "allocatable": {R: -2}}, 0, 0, id="never negative"),
        pytest.param({"capacity": {R: "?"}, "allocatable": {R: 4}}, 4, 4, id="unreadable capacity loses nothing"),
        pytest.param({"allocatable": {R: "1k"}}, 1000, 1000, id="a suffix"),
        pytest.param({"allocatable": {R: "1500m"}}, 2, 2, id="rounded up"),
    ],
)
def test_node_quantities(status: dict[str, Any], capacity: int, allocatable: int) -> None:
    """Capacity and allocatable are read as Kubernetes defaults them."""
    node = read_node(status=status)
    assert (node.capacity[R], node.allocatable[R], node.malformed) == (capacity, allocatable, {})


@pytest.mark.parametrize(
    ("status", "compute"),
    [
        pytest.param({"capacity": {"cpu": 4}}, Compute(4000), id="no allocatable at all is capacity"),
        pytest.param({"capacity": {"cpu": 4}, "allocatable": {}}, Compute(), id="a map without the name is 0"),
        pytest.param({"allocatable": {"memory": "1500m", "pods": "1.5"}}, Compute(0, 2, 2), id="rounded up"),
        pytest.param(
            {"allocatable": {"cpu": "?", "memory": 3}}, Compute(0, 3), id="unreadable is 0, and costs no other"
        ),
        pytest.param({"allocatable": {"cpu": "10P", "memory": "10E"}}, Compute(), id="beyond int64 is 0"),
    ],
)
def test_node_compute(status: dict[str, Any], compute: Compute) -> None:
    """Cpu, memory and slots are read as the scheduler's NodeInfo has them."""
    assert read_node(status=status).compute == compute


def test_malformed_node() -> None:
    """A quantity that cannot be read is named, and costs no other."""
    node = read_node(status={"allocatable": {R: "many", "amd.com/gpu": "2"}})
    assert (node.malformed, node.allocatable) == ({R: "many"}, {"amd.com/gpu": 2})
    assert node.advertises(R)


def test_pod() -> None:
    """A pod that holds devices is known by its weight."""
    assert read_pod(asking("2"), {"phase": "Running"}) == Pod("ns", "p", "n", {R: 2})
    assert read_pod(asking(2, "limits")) == Pod("ns", "p", "n", {R: 2})


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param(asking(1), {"phase": "Succeeded"}, id="succeeded"),
        pytest.param(asking(1), {"phase": "Failed"}, id="failed"),
        pytest.param(asking(0), {"phase": "Running"}, id="asks for none"),
        pytest.param({"containers": [{"name": "c"}]}, {}, id="no resources"),
        pytest.param({"containers": None}, {}, id="no containers"),
        pytest.param({"containers": [{"resources": {"requests": {"cpu": 1}}}]}, {}, id="only cpu"),
    ],
)
def test_weightless(spec: dict[str, Any], status: dict[str, Any]) -> None:
    """A pod that holds no devices is not kept."""
    assert read_pod(spec, status) is None


def test_whole_pod() -> None:
    """Init containers, sidecars, overhead, statuses and a pending resize all reach the weight."""
    spec = {
        "nodeName": "n",
        "containers": [{"name": "c", "resources": {"requests": {R: 1}}}],
        "initContainers": [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {R: 1}}},
            {"name": "i", "resources": {"requests": {R: 3}}},
        ],
        "overhead": {R: 1},
    }
    assert read_pod(spec) == Pod("ns", "p", "n", {R: 5})
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {R: 6}}]}
    assert read_pod(spec, status) == Pod("ns", "p", "n", {R: 8})
    status["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    assert read_pod(spec, status) == Pod("ns", "p", "n", {R: 7})
    assert read_pod(asking(1), {"resources": {"requests": {R: 3}}, "allocatedResources": {}}) == Pod(
        "ns", "p", "n", {R: 3}
    )


def test_malformed_pod() -> None:
    """A request that cannot be read counts nothing, and the pod is kept to say so."""
    assert read_pod(asking("two")) == Pod("ns", "p", "n", {}, malformed=frozenset({R}))


def test_unbound_pod() -> None:
    """A pod without a node keeps what it asks for and where it is nominated."""
    spec = asking(1)
    del spec["nodeName"]
    assert read_pod(spec, {"phase": "Pending", "nominatedNodeName": "n"}) == Pod("ns", "p", "", {R: 1}, "n")
