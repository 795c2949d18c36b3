"""What a pod weighs: the devices, the cpu and the memory the scheduler counts for it on its node.

Source: component-helpers resource.PodRequests with the options of framework.PodInfo.CalculateResource, Kubernetes 1.37.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apiserver.gpu.nodes import CPU, MEMORY
from apiserver.gpu.quantity import MAX_VALUE, whole

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases in which a pod weighs nothing. A deletionTimestamp alone changes nothing."""


@dataclass(frozen=True, slots=True)
class Container:
    """Requests of one container, in thousandths by resource name, with limits already copied in."""

    name: str
    requests: Mapping[str, int]
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """What the kubelet reports for one container; None where the status carries no such map."""

    allocated: Mapping[str, int] | None = None
    actuated: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PodResources:
    """Everything of a pod that decides its weight.

    Attributes:
        containers: the main containers.
        init_containers: in the order they start.
        overhead: spec.overhead in thousandths.
        statuses: by container name.
        pod_allocated: status.allocatedResources, or None.
        pod_actuated: status.resources.requests, or None.
        resize_infeasible: condition PodResizePending says Infeasible, so the spec no longer counts.
        level: spec.resources.requests, or None when it names nothing that counts for a pod as a whole.
        has_level_status: status.resources is there, with requests or without.
    """

    containers: Sequence[Container]
    init_containers: Sequence[Container] = ()
    overhead: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, ContainerResources] = field(default_factory=dict)
    pod_allocated: Mapping[str, int] | None = None
    pod_actuated: Mapping[str, int] | None = None
    resize_infeasible: bool = False
    level: Mapping[str, int] | None = None
    has_level_status: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod that is not in a terminal phase and holds, or waits for, devices.

    Attributes:
        namespace: metadata.namespace.
        name: metadata.name.
        node: spec.nodeName, or "" while unbound.
        weight: whole devices by resource name; names with 0 are left out.
        nominated_node: status.nominatedNodeName, or "".
        malformed: the resource names of which a request could not be read (it then counts 0).
    """

    namespace: str
    name: str
    node: str = ""
    weight: Mapping[str, int] = field(default_factory=dict)
    nominated_node: str = ""
    malformed: frozenset[str] = frozenset()


def weigh(pod: PodResources) -> dict[str, int]:
    """Whole devices by resource name; rounded up once per pod, after everything inside it is summed."""
    names: set[str] = set(pod.overhead)
    for container in (*pod.containers, *pod.init_containers):
        names.update(container.requests)
    for status in pod.statuses.values():
        names.update(status.allocated or ())
        names.update(status.actuated or ())
    weights = {name: whole(_base(pod, name) + pod.overhead.get(name, 0)) for name in names}
    return {name: devices for name, devices in weights.items() if devices > 0}


def weigh_compute(pod: PodResources) -> tuple[int, int]:
    """Cpu in thousandths and memory in bytes, each rounded up once per pod; what is not declared is 0.

    Unlike devices they can be set for a pod as a whole, and then what its containers ask for does not count.
    """
    cpu, memory = (_whole_pod(pod, name) + pod.overhead.get(name, 0) for name in (CPU, MEMORY))
    # Beyond int64 Quantity.MilliValue is 0; Quantity.Value is nowhere near it after parse_milli.
    return (cpu if cpu <= MAX_VALUE else 0), whole(memory)


def _whole_pod(pod: PodResources, name: str) -> int:
    """What is set for the pod as a whole, else what its containers make up. Source: PodRequests, without overhead."""
    if pod.level is None:
        return _base(pod, name)
    effective = [] if pod.resize_infeasible and pod.has_level_status else [pod.level]
    if pod.has_level_status:
        effective += [each for each in (pod.pod_actuated, pod.pod_allocated) if each is not None]
    found = [each[name] for each in effective if name in each]
    return max(found) if found else _base(pod, name)


def _base(pod: PodResources, name: str) -> int:
    """The largest of what was asked for, what was allocated and what runs."""
    if pod.pod_allocated is not None and pod.pod_actuated is not None:
        reported = [pod.pod_allocated.get(name, 0), pod.pod_actuated.get(name, 0)]
    elif pod.statuses:
        reported = [_aggregate(pod, _allocated(pod, name)), _aggregate(pod, _actuated(pod, name))]
    else:
        reported = []
    if pod.resize_infeasible:
        return max(reported, default=0)
    return max(_aggregate(pod, lambda container: container.requests.get(name, 0)), *reported, 0)


def _aggregate(pod: PodResources, get: Callable[[Container], int]) -> int:
    """Sum the main containers and sidecars; an init container counts as a peak that never decays."""
    main = sum(map(get, pod.containers))
    running = peak = 0
    for container in pod.init_containers:
        own = get(container)
        if container.restartable:
            main += own
            running += own
            peak = max(peak, running)
        else:
            peak = max(peak, own + running)
    return max(main, peak)


def _allocated(pod: PodResources, name: str) -> Callable[[Container], int]:
    def get(container: Container) -> int:
        status = pod.statuses.get(container.name, ContainerResources())
        if status.allocated is not None:
            return status.allocated.get(name, 0)
        return 0 if pod.resize_infeasible else container.requests.get(name, 0)

    return get


def _actuated(pod: PodResources, name: str) -> Callable[[Container], int]:
    allocated = _allocated(pod, name)

    def get(container: Container) -> int:
        status = pod.statuses.get(container.name, ContainerResources())
        return status.actuated.get(name, 0) if status.actuated is not None else allocated(container)

    return get
