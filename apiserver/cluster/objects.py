"""Nodes and Pods as the wire carries them, typed with only the fields that count, and what the model makes of them.

Quantities are taken as they stand (string or number): one that cannot be read must not cost the whole object.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import TERMINAL_PHASES, Container, ContainerResources, Pod, PodResources, weigh
from apiserver.gpu.quantity import MalformedQuantityError, parse_milli, whole
from apiserver.gpu.resources import is_counted
from apiserver.gpu.tolerations import Taint

Quantities = dict[str, Any] | None


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of the wire structs: camelCase names, unknown fields skipped."""


class ObjectMeta(_Wire):
    """metadata of any object, as far as it is read."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None


class NodeTaint(_Wire):
    """One entry of spec.taints."""

    key: str
    effect: str
    value: str = ""


class Condition(_Wire):
    """One entry of status.conditions."""

    type: str
    status: str = ""
    reason: str = ""


class NodeSpec(_Wire):
    """spec of a Node."""

    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(_Wire):
    """status of a Node."""

    capacity: Quantities = None
    allocatable: Quantities = None
    conditions: list[Condition] | None = None


class NodeObject(_Wire):
    """A Node."""

    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ResourceRequirements(_Wire):
    """resources of a container, in its spec or its status."""

    requests: Quantities = None
    limits: Quantities = None


class PodContainer(_Wire):
    """One container of a pod's spec."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str = ""


class ContainerStatus(_Wire):
    """One container of a pod's status."""

    name: str = ""
    allocated_resources: Quantities = None
    resources: ResourceRequirements | None = None


class PodSpec(_Wire):
    """spec of a Pod."""

    containers: list[PodContainer] | None = None
    init_containers: list[PodContainer] | None = None
    node_name: str = ""
    overhead: Quantities = None


class PodStatus(_Wire):
    """status of a Pod."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Quantities = None
    resources: ResourceRequirements | None = None


class PodObject(_Wire):
    """A Pod."""

    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def to_node(raw: NodeObject) -> Node:
    """The model's node. Devices only: cpu, memory and the like are not read."""
    malformed: dict[str, str] = {}
    capacity = _devices(raw.status.capacity, malformed)
    if raw.status.allocatable is None:
        # The API server defaults a wholly absent map to capacity when it decodes; a dump may not have passed it.
        allocatable = dict(capacity)
    else:
        malformed.clear()  # capacity that cannot be read only loses an explanation, allocatable loses the node
        allocatable = _devices(raw.status.allocatable, malformed)
    for name, devices in allocatable.items():
        capacity[name] = max(devices, capacity.get(name, 0))
    for name in capacity:
        allocatable.setdefault(name, 0)
    return Node(
        name=raw.metadata.name,
        ready=any(each.type == "Ready" and each.status == "True" for each in raw.status.conditions or ()),
        unschedulable=raw.spec.unschedulable,
        labels=raw.metadata.labels or {},
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in raw.spec.taints or ()),
        capacity=capacity,
        allocatable=allocatable,
        malformed=malformed,
    )


def to_pod(raw: PodObject) -> Pod | None:
    """The model's pod, or None when it holds no devices: it asks for none, or its phase is terminal."""
    if raw.status.phase in TERMINAL_PHASES or not _asks_for_devices(raw.spec):
        return None
    malformed: set[str] = set()
    weight = weigh(_pod_resources(raw, malformed))
    if not weight and not malformed:
        return None
    return Pod(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        node=raw.spec.node_name,
        weight=weight,
        nominated_node=raw.status.nominated_node_name,
        malformed=frozenset(malformed),
    )


def _devices(quantities: Quantities, malformed: dict[str, str]) -> dict[str, int]:
    """Whole devices by counted name; never negative, because validation refuses to store less than 0."""
    devices = {}
    for name, raw in (quantities or {}).items():
        if not is_counted(name):
            continue
        try:
            devices[name] = max(0, whole(parse_milli(raw)))
        except MalformedQuantityError as error:
            malformed[name] = error.text
    return devices


def _asks_for_devices(spec: PodSpec) -> bool:
    """Whether any counted name stands in the spec; most pods of a cluster end here."""
    if spec.overhead and any(map(is_counted, spec.overhead)):
        return True
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        resources = container.resources
        if resources is not None and any(map(is_counted, (*(resources.requests or ()), *(resources.limits or ())))):
            return True
    return False


def _pod_resources(raw: PodObject, malformed: set[str]) -> PodResources:
    status = raw.status
    return PodResources(
        containers=[_container(each, malformed) for each in raw.spec.containers or ()],
        init_containers=[_container(each, malformed) for each in raw.spec.init_containers or ()],
        overhead=_milli(raw.spec.overhead, malformed),
        statuses=_statuses((*(status.init_container_statuses or ()), *(status.container_statuses or ())), malformed),
        pod_allocated=None if status.allocated_resources is None else _milli(status.allocated_resources, malformed),
        pod_actuated=_reported(status.resources, malformed),
        resize_infeasible=_resize_infeasible(status.conditions or ()),
    )


def _container(raw: PodContainer, malformed: set[str]) -> Container:
    resources = raw.resources or ResourceRequirements()
    # The API server copies a limit to the request it lacks; a dump may not have passed it.
    requests = _milli({**(resources.limits or {}), **(resources.requests or {})}, malformed)
    return Container(raw.name, requests, restartable=raw.restart_policy == "Always")


def _statuses(raw: Iterable[ContainerStatus], malformed: set[str]) -> dict[str, ContainerResources]:
    """By container name; the caller orders them so that a main container wins over an init container."""
    statuses = {}
    for each in raw:
        allocated = None if each.allocated_resources is None else _milli(each.allocated_resources, malformed)
        actuated = _reported(each.resources, malformed)
        statuses[each.name] = ContainerResources(allocated, actuated)
    return statuses


def _reported(resources: ResourceRequirements | None, malformed: set[str]) -> dict[str, int] | None:
    if resources is None or resources.requests is None:
        return None
    return _milli(resources.requests, malformed)


def _resize_infeasible(conditions: Iterable[Condition]) -> bool:
    """The first PodResizePending condition decides."""
    pending = next((each for each in conditions if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _milli(quantities: Mapping[str, Any] | None, malformed: set[str]) -> dict[str, int]:
    """Thousandths by counted name; one that cannot be read is left out and named."""
    milli = {}
    for name, raw in (quantities or {}).items():
        if not is_counted(name):
            continue
        try:
            milli[name] = parse_milli(raw)
        except MalformedQuantityError:
            malformed.add(name)
    return milli
