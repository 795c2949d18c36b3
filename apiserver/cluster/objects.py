"""Nodes and Pods as the wire carries them, typed with only the fields that count, and what the model makes of them.

Quantities are taken as they stand (string or number): one that cannot be read must not cost the whole object.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from apiserver.cluster.loads import Load, PodKey
from apiserver.gpu.nodes import CPU, MEMORY, PODS, Compute, Node
from apiserver.gpu.pods import TERMINAL_PHASES, Container, ContainerResources, Pod, PodResources, weigh, weigh_compute
from apiserver.gpu.quantity import MAX_VALUE, MalformedQuantityError, parse_milli, whole
from apiserver.gpu.resources import is_counted
from apiserver.gpu.tolerations import Taint

Quantities = dict[str, Any] | None
Wanted = Callable[[str], bool]
"""Whether a resource name is read."""

_is_compute: Final[Wanted] = frozenset({CPU, MEMORY}).__contains__
_HUGE_PAGES: Final = "hugepages-"


class _Wire(msgspec.Struct, rename="camel", gc=False):
    """Base of the wire structs: camelCase names, unknown fields skipped."""


class ObjectMeta(_Wire):
    """metadata of any object, as far as it is read."""

    name: str
    namespace: str = ""
    resource_version: str = ""
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
    resources: ResourceRequirements | None = None


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
    """The model's node: its devices, and room for pods by cpu, memory and slots."""
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
        compute=_compute(raw.status),
    )


class PodReading(NamedTuple):
    """What is kept of one pod. A plain tuple: one is made for each pod of a cluster and for each of their events.

    Attributes:
        key: namespace and name.
        pod: its devices, or None when it holds none.
        load: what else it takes from its node, or None when it is bound to none, or its phase is terminal.
    """

    key: PodKey
    pod: Pod | None
    load: Load | None


def read_pod(raw: PodObject) -> PodReading:
    """All that is kept of one pod."""
    return PodReading((raw.metadata.namespace, raw.metadata.name), to_pod(raw), to_load(raw))


def to_load(raw: PodObject) -> Load | None:
    """The cpu and memory that a bound pod takes from its node, or None when it takes nothing, not even a slot."""
    if not raw.spec.node_name or raw.status.phase in TERMINAL_PHASES:
        return None
    malformed: set[str] = set()
    plain = _plain_compute(_plain_requests(raw))
    cpu_milli, memory_bytes = plain or weigh_compute(_pod_resources(raw, malformed, _is_compute))
    return raw.spec.node_name, cpu_milli, memory_bytes, bool(malformed)


def _plain_requests(raw: PodObject) -> list[Mapping[str, Any]] | None:
    """What each container asks for, where that alone decides what a pod weighs, as it does for most; or None.

    Nothing is set for the pod as a whole, no container ends before the others begin, and the statuses say the same as
    the spec. To add this up takes a third of the time or less, and a large cluster tells of thousands of pods a second.
    """
    spec, status = raw.spec, raw.status
    if spec.init_containers or spec.overhead or spec.resources or status.allocated_resources is not None:
        return None
    declared: dict[str, Quantities] = {}
    asked: list[Mapping[str, Any]] = []
    for container in spec.containers or ():
        resources = container.resources
        if resources is None:
            continue
        requests = declared[container.name] = resources.requests
        if resources.limits:
            # The API server copies a limit to the request it lacks; a dump may not have passed it.
            asked.append({**resources.limits, **(requests or {})})
        elif requests:
            asked.append(requests)
    if _differing(status.container_statuses or (), declared) or _resize_infeasible(status.conditions or ()):
        return None
    return asked


def _plain_compute(asked: list[Mapping[str, Any]] | None) -> tuple[int, int] | None:
    """What weigh_compute gives for a plain pod; None for others, and where something cannot be read."""
    if asked is None:
        return None
    try:
        cpu_milli = sum([parse_milli(each.get(CPU)) for each in asked])
        memory_milli = sum([parse_milli(each.get(MEMORY)) for each in asked])
    except MalformedQuantityError:
        return None
    return (cpu_milli, whole(memory_milli)) if 0 <= cpu_milli <= MAX_VALUE and memory_milli >= 0 else None


def _plain_devices(asked: list[Mapping[str, Any]] | None) -> dict[str, int] | None:
    """What weigh gives for a plain pod; None for others, and where something cannot be read."""
    if asked is None:
        return None
    milli: Counter[str] = Counter()
    try:
        for each in asked:
            for name, raw in each.items():
                if is_counted(name):
                    milli[name] += parse_milli(raw)
    except MalformedQuantityError:
        return None
    return {name: whole(sum_) for name, sum_ in milli.items() if sum_ > 0}


def to_pod(raw: PodObject) -> Pod | None:
    """The model's pod, or None when it holds no devices: it asks for none, or its phase is terminal."""
    if raw.status.phase in TERMINAL_PHASES or not _asks_for_devices(raw.spec):
        return None
    malformed: set[str] = set()
    weight = _plain_devices(_plain_requests(raw))
    if weight is None:
        weight = weigh(_pod_resources(raw, malformed, is_counted))
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
        if resources is None:
            continue
        for quantities in (resources.requests, resources.limits):
            for name in quantities or ():
                if is_counted(name):
                    return True
    return False


def _compute(status: NodeStatus) -> Compute:
    """Cpu, memory and slots for pods. As the scheduler has it, what is beyond int64 is 0."""
    # The API server defaults a wholly absent map to capacity when it decodes; a dump may not have passed it.
    quantities = (status.capacity if status.allocatable is None else status.allocatable) or {}
    cpu_milli, memory, pods = (_milli_or_zero(quantities.get(name)) for name in (CPU, MEMORY, PODS))
    return Compute(cpu_milli if cpu_milli <= MAX_VALUE else 0, whole(memory), whole(pods))


def _milli_or_zero(raw: object) -> int:
    try:
        return parse_milli(raw)
    except MalformedQuantityError:
        return 0


def _pod_resources(raw: PodObject, malformed: set[str], wanted: Wanted) -> PodResources:
    spec, status = raw.spec, raw.status
    resize_infeasible = _resize_infeasible(status.conditions or ())
    reported: Iterable[ContainerStatus] = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    if not resize_infeasible:
        containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        declared = {each.name: each.resources.requests for each in containers if each.resources is not None}
        reported = _differing(reported, declared)
    return PodResources(
        containers=[_container(each, malformed, wanted) for each in spec.containers or ()],
        init_containers=[_container(each, malformed, wanted) for each in spec.init_containers or ()],
        overhead=_milli(spec.overhead, malformed, wanted),
        statuses=_statuses(reported, malformed, wanted),
        pod_allocated=_milli_or_none(status.allocated_resources, malformed, wanted),
        pod_actuated=_reported(status.resources, malformed, wanted),
        resize_infeasible=resize_infeasible,
        level=_level(spec.resources, malformed, wanted),
        has_level_status=status.resources is not None,
    )


def _container(raw: PodContainer, malformed: set[str], wanted: Wanted) -> Container:
    resources = raw.resources
    if resources is None:
        requests: dict[str, int] = {}
    elif not resources.limits or resources.limits == resources.requests:
        requests = _milli(resources.requests, malformed, wanted)
    else:
        # The API server copies a limit to the request it lacks; a dump may not have passed it.
        requests = _milli({**resources.limits, **(resources.requests or {})}, malformed, wanted)
    return Container(raw.name, requests, raw.restart_policy == "Always")


def _differing(statuses: Iterable[ContainerStatus], declared: Mapping[str, Quantities]) -> list[ContainerStatus]:
    """The statuses that say something else than the spec; where both say the same, which is the rule, it is enough."""
    found = []
    for each in statuses:
        requests = declared.get(each.name)
        is_same = each.allocated_resources is None or each.allocated_resources == requests
        if not is_same or (each.resources is not None and each.resources.requests not in (None, requests)):
            found.append(each)
    return found


def _statuses(raw: Iterable[ContainerStatus], malformed: set[str], wanted: Wanted) -> dict[str, ContainerResources]:
    """By container name; the caller orders them so that a main container wins over an init container."""
    return {
        each.name: ContainerResources(
            _milli_or_none(each.allocated_resources, malformed, wanted), _reported(each.resources, malformed, wanted)
        )
        for each in raw
    }


def _level(resources: ResourceRequirements | None, malformed: set[str], wanted: Wanted) -> dict[str, int] | None:
    """What is asked for the pod as a whole, if any of it counts. Source: resource.IsPodLevelRequestsSet."""
    if resources is None or not resources.requests:
        return None
    if not any(_is_compute(name) or name.startswith(_HUGE_PAGES) for name in resources.requests):
        return None
    return _milli(resources.requests, malformed, wanted)


def _reported(resources: ResourceRequirements | None, malformed: set[str], wanted: Wanted) -> dict[str, int] | None:
    return None if resources is None else _milli_or_none(resources.requests, malformed, wanted)


def _resize_infeasible(conditions: Iterable[Condition]) -> bool:
    """The first PodResizePending condition decides."""
    pending = next((each for each in conditions if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _milli_or_none(quantities: Quantities, malformed: set[str], wanted: Wanted) -> dict[str, int] | None:
    return None if quantities is None else _milli(quantities, malformed, wanted)


def _milli(quantities: Mapping[str, Any] | None, malformed: set[str], wanted: Wanted) -> dict[str, int]:
    """Thousandths by wanted name; one that cannot be read is left out and named."""
    milli = {}
    for name, raw in (quantities or {}).items():
        if not wanted(name):
            continue
        try:
            milli[name] = parse_milli(raw)
        except MalformedQuantityError:
            malformed.add(name)
    return milli
