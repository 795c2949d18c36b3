"""What a pod weighs."""

import pytest

from apiserver.gpu.pods import Container, ContainerResources, PodResources, weigh

R = "nvidia.com/gpu"


def containers(*devices: float) -> list[Container]:
    """Main containers c0, c1, … that ask for so many devices."""
    return [Container(f"c{index}", {R: int(each * 1000)}) for index, each in enumerate(devices)]


def inits(*specs: str) -> list[Container]:
    """Init containers from texts such as i2 (plain, 2 devices) and s1 (sidecar, 1 device)."""
    return [Container(f"i{index}", {R: int(each[1:]) * 1000}, each[0] == "s") for index, each in enumerate(specs)]


@pytest.mark.parametrize(
    ("init", "main", "weight"),
    [
        pytest.param([], [1, 2], 3, id="containers add up"),
        pytest.param(["i3"], [1], 3, id="a finished init container still counts"),
        pytest.param(["i2", "i3"], [1], 3, id="init containers do not add up"),
        pytest.param(["i4"], [4], 4, id="init and main use the same devices"),
        pytest.param(["s1"], [1], 2, id="a sidecar adds"),
        pytest.param(["s8"], [8], 16, id="a sidecar and main share nothing"),
        pytest.param(["s1", "i3"], [1], 4, id="a sidecar that starts before an init container"),
        pytest.param(["i3", "s1"], [1], 3, id="a sidecar that starts after it"),
        pytest.param(["s1", "i2", "s1"], [1], 3, id="sidecars on both sides"),
        pytest.param(["s1"], [], 1, id="only a sidecar"),
        pytest.param([], [0.5, 0.5], 1, id="rounded once per pod"),
        pytest.param([], [0], 0, id="nothing"),
    ],
)
def test_aggregate(init: list[str], main: list[float], weight: int) -> None:
    """Init containers, sidecars and main containers weigh as the scheduler has it."""
    assert weigh(PodResources(containers(*main), inits(*init))).get(R, 0) == weight


def test_overhead() -> None:
    """Overhead is added once, after everything else."""
    assert weigh(PodResources(containers(1), inits("i2"), overhead={R: 1000})) == {R: 3}


@pytest.mark.parametrize(
    ("status", "infeasible", "weight"),
    [
        pytest.param(ContainerResources(allocated={R: 2000}), False, 2, id="allocated exceeds the spec"),
        pytest.param(ContainerResources(allocated={}), False, 1, id="a map without the name, and the spec wins"),
        pytest.param(ContainerResources(allocated={}), True, 0, id="an infeasible resize drops the spec"),
        pytest.param(ContainerResources(), True, 0, id="infeasible, and nothing reported"),
        pytest.param(ContainerResources(actuated={R: 3000}), False, 3, id="what runs exceeds both"),
        pytest.param(ContainerResources(allocated={}, actuated={R: 2000}), True, 2, id="infeasible, and still running"),
    ],
)
def test_resize(status: ContainerResources, infeasible: bool, weight: int) -> None:
    """During a resize the largest of asked, allocated and actuated counts."""
    pod = PodResources(containers(1), statuses={"c0": status}, resize_infeasible=infeasible)
    assert weigh(pod).get(R, 0) == weight


def test_pod_level_report() -> None:
    """With both maps of the pod itself, those are what is allocated and what runs."""
    pod = PodResources(containers(1), pod_allocated={R: 2000}, pod_actuated={R: 4000})
    assert weigh(pod) == {R: 4}
    assert weigh(PodResources(containers(1), pod_allocated={R: 2000})) == {R: 1}


def test_names_apart() -> None:
    """Each resource name weighs by itself."""
    pod = PodResources([Container("a", {R: 1000, "amd.com/gpu": 2000}), Container("b", {R: 1000})])
    assert weigh(pod) == {R: 2, "amd.com/gpu": 2}
