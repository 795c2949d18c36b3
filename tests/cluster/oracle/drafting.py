"""Inventing a cluster: its class, its nodes, and the Pods that are there before any probe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.cluster.client import Json
from tests.cluster.oracle.dice import Coverage, Dice
from tests.cluster.oracle.quantities import Written, beyond, cpu_and_memory, fraction, in_thousands, large, spelled
from tests.cluster.oracle.shapes import NOT_WHOLE, NOTHING_ASKED, Resource, pod_parts, shape_names
from tests.cluster.oracle.taints import FORMS, NO_EXECUTE, NO_SCHEDULE, Theme
from tests.cluster.workload import IMAGE, node, ready_condition

CLUSTER = "oracle.example/cluster"
"""The label that says to which cluster a Node or Pod belongs."""

POOL = "oracle.example/pool"
NAMESPACES = ("oracle-a", "oracle-b")
FINALIZER = "oracle.example/held"
NOBODY = "nobody"
SLOTS = "500"
MOST_DEVICES = 10

HEALTH = "node health"
DEVICES = "node devices"
PHASE = "pod phase"
PLACE = "pod place"
END = "pod end"


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A Node as it is created, and the merge patches it then gets, each with the subresource ("" for none)."""

    manifest: Json
    patches: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class PodDraft:
    """A Pod as it is created, the status it then gets, and the grace period it is deleted with, if it is."""

    manifest: Json
    status: Json = field(default_factory=dict)
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterDraft:
    """One invented cluster.

    Attributes:
        name: of this copy of it.
        devices: how many each probe asks for.
        resource_name: what the class sells.
        gpu_class: the class, as a stored GPUClass.
        selector: the node selector the model is asked with.
        nodes: the Nodes.
        pods: the Pods.
        drawn: what it consists of.
        beside: the cpu and memory that each probe asks for; None in a cluster that is about devices alone.
    """

    name: str
    devices: int
    resource_name: str
    gpu_class: Json
    selector: Mapping[str, str]
    nodes: list[NodeDraft]
    pods: list[PodDraft]
    drawn: Coverage
    beside: Mapping[str, Written] | None = None


def draft_fit(seed: int, index: int) -> ClusterDraft:
    """A cluster where cpu, memory and slots are scarce too, for probes that ask for all of it."""
    return _Draft(seed, index, "fit", 1 + (index % 5 == 0), beside=True).cluster()


def draft(seed: int, index: int) -> tuple[ClusterDraft, ClusterDraft]:
    """Two copies of one cluster: for probes of one device, and for probes of a few."""
    few = 2 + index % 3
    return _Draft(seed, index, "one", 1).cluster(), _Draft(seed, index, "few", few).cluster()


class _Draft:
    """One copy in the making; the same seed and index give the same but for the names."""

    def __init__(self, seed: int, index: int, copy: str, devices: int, *, beside: bool = False) -> None:
        self._name = f"c{index}-{copy}"
        self._devices = devices
        self._dice = dice = Dice(f"{seed}/{index}")
        whole = index % 4 != 0
        domain = "oracle.example" if whole else "oracle.kubernetes.io"
        name = f"{domain}/GPU-{self._name}"
        self._resource = Resource(name, name.replace("GPU", "gpu"), whole, beside)
        self._beside = _asked_beside(dice) if beside else None
        self._theme = Theme(dice)
        self._index = index
        self._nodes: list[NodeDraft] = []
        self._pods: list[PodDraft] = []

    def cluster(self) -> ClusterDraft:
        """The whole cluster: two nodes that show what the Pods weigh and what is tolerated, and some others."""
        dice = self._dice
        gpu_class = self._class(self._theme.tolerations(self._toleration_form()))
        selector = {POOL: "sold"} if dice.chance(0.3) else {}
        names = [f"{self._name}-n{number}" for number in range(dice.number(2, 7))]
        self._add_plain_node(names[0])
        self._add_tainted_node(names[1])
        for name in names[2:]:
            self._add_node(name)
        for _ in range(dice.number(0, 1)):
            self._add_pod(f"{self._name}-gone", place="a node that is not there")
        for _ in range(dice.number(0, 1)):
            self._add_pod("", place="no node")
        return ClusterDraft(
            name=self._name,
            devices=self._devices,
            resource_name=self._resource.name,
            gpu_class=gpu_class,
            selector=selector,
            nodes=self._nodes,
            pods=self._pods,
            drawn=dice.drawn,
            beside=self._beside,
        )

    def _toleration_form(self) -> str:
        """The form whose turn it is; in one of five clusters there is none."""
        forms = list(FORMS)
        return forms[self._index % len(forms)] if self._index % 5 else ""

    def _class(self, tolerated: list[Json]) -> Json:
        return {
            "apiVersion": "cozystack.io/v1alpha1",
            "kind": "GPUClass",
            "metadata": {"name": "oracle", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "vendor": "Oracle",
                "model": "GPU",
                "mode": "passthrough",
                "memory": "24Gi",
                "source": {"devicePlugin": {"resourceName": self._resource.name}},
                "tolerations": tolerated,
            },
        }

    def _add_plain_node(self, name: str) -> None:
        """Add a Node with devices enough for all its Pods, of which some show shapes whose turn it is.

        In a cluster for fit there are so many devices that cpu, memory or slots decide, each in its turn.
        """
        dice = self._dice
        many = (12, 16) if self._beside is None else (30, 40)
        devices = {self._resource.name: spelled(dice, dice.number(*many))}
        shapes = shape_names(self._resource)
        per_node = 2 if self._beside is None else 4
        turns = [shapes[(per_node * self._index + turn) % len(shapes)] for turn in range(per_node)]
        turns += [] if self._resource.whole else NOT_WHOLE
        scarce = ""
        if self._beside is not None:
            scarce = (LITTLE_CPU, LITTLE_MEMORY, FEW_SLOTS)[self._index % 3]
            turns += [NOTHING_ASKED] if scarce == FEW_SLOTS else []
        self._make_node(name, _Offered(devices, devices), HEALTHS[READY], [], scarce)
        for shape in turns:
            self._add_pod(name, place=ON_NODE, shape=shape)
        for _ in range(dice.number(0, 2)):
            self._add_pod(name, place=ON_NODE)

    def _add_tainted_node(self, name: str) -> None:
        """Add a Node where nothing but taints can keep Pods away."""
        self._make_node(name, _healthy(self._dice, self._resource), HEALTHS[READY], self._theme.taints(some=True))
        for _ in range(self._dice.number(0, 1)):
            self._add_pod(name, place=ON_NODE)

    def _add_node(self, name: str) -> None:
        """Add a Node of any kind with the Pods that are bound to it."""
        dice = self._dice
        offers = {name: weight for name, (_, weight) in OFFERS.items() if name != PARTS or not self._resource.whole}
        offered = OFFERS[dice.name(DEVICES, offers)][0](dice, self._resource)
        self._make_node(name, offered, HEALTHS[dice.name(HEALTH, HEALTH_WEIGHTS)], self._theme.taints())
        if offered.held:
            self._hold(name, offered.held)
        for _ in range(dice.number(0, 3)):
            self._add_pod(name, place=ON_NODE)

    def _make_node(
        self, name: str, offered: "_Offered", health: "_Health", taints: list[Json], scarce: str = ""
    ) -> None:
        dice = self._dice
        labels = {CLUSTER: self._name, POOL: dice.one(["sold", "sold", "other"])}
        marked = {(each["key"], each["effect"]): each for each in (*taints, *health.taints)}
        manifest = node(name, taints=dice.shuffled(marked.values()), unschedulable=health.is_cordoned, labels=labels)
        status = manifest["status"]
        status["capacity"] |= {"pods": SLOTS, **offered.capacity}
        status["allocatable"] |= {"pods": SLOTS, **(offered.allocatable or {})}
        if self._beside is not None:
            _limit(dice, status["allocatable"], scarce)
        if offered.allocatable is None:
            del status["allocatable"]
        status["conditions"] = [{"type": "DiskPressure", "status": "False"}, *health.conditions]
        self._nodes.append(NodeDraft(manifest, offered.patches))

    def _hold(self, node_name: str, devices: int) -> None:
        """Add a Pod that holds so many devices, as few other Pods could."""
        resources = [{self._resource.name: piece} for piece in in_thousands(devices)]
        containers = [
            {"name": f"c{number}", "image": IMAGE, "resources": {"requests": each, "limits": each}}
            for number, each in enumerate(resources)
        ]
        self._pods.append(PodDraft(self._pod({"containers": containers, "nodeName": node_name})))

    def _add_pod(self, node_name: str, *, place: str, shape: str = "") -> None:
        """Add a Pod of some phase and fate; one whose shape is given is running."""
        dice = self._dice
        dice.drawn[PLACE, place] += 1
        spec, status = pod_parts(dice, self._resource, shape)
        where = {"nodeName": node_name} if node_name else {"schedulerName": NOBODY}
        manifest = self._pod({**spec, **where})
        phase = dice.name(PHASE, ["Running"] if shape else PHASES)
        # Only a finalizer keeps a deleted Pod that is bound to no node, or whose containers have ended.
        goes_at_once = not node_name or phase in ("Succeeded", "Failed")
        ends = {name: weight for name, weight in END_WEIGHTS.items() if not (goes_at_once and name == IN_GRACE)}
        end = ENDS[dice.name(END, ends)]
        if end.has_finalizer:
            manifest["metadata"]["finalizers"] = [FINALIZER]
        self._pods.append(PodDraft(manifest, {"phase": phase, **status}, end.grace_seconds))

    def _pod(self, spec: Json) -> Json:
        labels = {CLUSTER: self._name}
        name = f"{self._name}-p{len(self._pods)}"
        metadata = {"name": name, "namespace": self._dice.one(NAMESPACES), "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _asked_beside(dice: Dice) -> dict[str, Written]:
    """The cpu and memory of a probe; sometimes it asks for none."""
    asked = cpu_and_memory(dice, low=1, high=5, always=True)
    missing = dice.name(ASKED, ASKED_WEIGHTS)
    return {name: quantity for name, quantity in asked.items() if name not in missing}


def _limit(dice: Dice, allocatable: Json, scarce: str) -> None:
    """Let a node have little of something; of what is given there is still enough for all its Pods and some more."""
    tenths = (15, 60) if not scarce else (80, 110)
    slots = (3, 12) if not scarce else (11, 18)
    scarce = dice.name(SCARCE, [scarce] if scarce else SCARCITIES)
    if scarce in (LITTLE_CPU, LITTLE_OF_ALL):
        allocatable["cpu"] = f"{dice.number(*tenths) * 100}m"
    if scarce in (LITTLE_MEMORY, LITTLE_OF_ALL):
        allocatable["memory"] = f"{dice.number(*tenths) * 100}Mi"
    if scarce in (FEW_SLOTS, LITTLE_OF_ALL):
        allocatable["pods"] = str(dice.number(*slots))
    if scarce == A_KEY_MISSING:
        del allocatable[dice.one(["cpu", "memory", "pods"])]


ASKED = "asked besides devices"
ASKED_WEIGHTS = {"all but nothing": 5, "all but cpu": 1, "all but memory": 1, "all but cpu and memory": 1}
SCARCE = "scarce on a node"
LITTLE_CPU, LITTLE_MEMORY, FEW_SLOTS, LITTLE_OF_ALL, A_KEY_MISSING = (
    "cpu",
    "memory",
    "slots",
    "all of it",
    "a key is missing",
)
SCARCITIES = {LITTLE_CPU: 6, LITTLE_MEMORY: 6, FEW_SLOTS: 4, LITTLE_OF_ALL: 3, A_KEY_MISSING: 2, "nothing": 3}


@dataclass(frozen=True, slots=True)
class _Health:
    conditions: tuple[Json, ...] = (ready_condition("True"),)
    taints: tuple[Json, ...] = ()
    is_cordoned: bool = False


def _node_taints(name: str) -> tuple[Json, ...]:
    return tuple({"key": f"node.kubernetes.io/{name}", "effect": effect} for effect in (NO_SCHEDULE, NO_EXECUTE))


READY = "Ready"
HEALTHS: Mapping[str, _Health] = {
    READY: _Health(),
    "Ready is False": _Health((ready_condition("False"),)),
    "Ready is False, and tainted for it": _Health((ready_condition("False"),), _node_taints("not-ready")),
    "Ready is Unknown": _Health((ready_condition("Unknown"),)),
    "Ready is Unknown, and tainted for it": _Health((ready_condition("Unknown"),), _node_taints("unreachable")),
    "no Ready condition": _Health(()),
    "cordoned": _Health(is_cordoned=True),
    "cordoned, and tainted for it": _Health(taints=_node_taints("unschedulable")[:1], is_cordoned=True),
}
HEALTH_WEIGHTS = {name: 16 if name == READY else 1 for name in HEALTHS}


@dataclass(frozen=True, slots=True)
class _Offered:
    """What a node has of the class's devices.

    Attributes:
        capacity: for status.capacity.
        allocatable: for status.allocatable; None leaves the whole map out.
        held: devices that one Pod must hold for the rest to be few.
        patches: what changes after the Node was made.
    """

    capacity: Mapping[str, Written]
    allocatable: Mapping[str, Written] | None
    held: int = 0
    patches: tuple[tuple[str, Json], ...] = ()


def _healthy(dice: Dice, resource: Resource) -> _Offered:
    devices = {resource.name: spelled(dice, dice.number(4, MOST_DEVICES))}
    return _Offered(devices, devices)


def _sick(dice: Dice, resource: Resource) -> _Offered:
    devices = dice.number(3, MOST_DEVICES)
    sick = dice.number(1, devices)
    return _Offered({resource.name: spelled(dice, devices)}, {resource.name: spelled(dice, devices - sick)})


def _absent(_: Dice, __: Resource) -> _Offered:
    return _Offered({}, {})


def _decoy(dice: Dice, resource: Resource) -> _Offered:
    devices = {resource.decoy: spelled(dice, 4)}
    return _Offered(devices, devices)


def _zero(dice: Dice, resource: Resource) -> _Offered:
    devices = {resource.name: spelled(dice, 0)}
    return _Offered(devices, devices)


def _capacity_alone(dice: Dice, resource: Resource) -> _Offered:
    return _Offered({resource.name: spelled(dice, dice.number(2, 8))}, {})


def _allocatable_alone(dice: Dice, resource: Resource) -> _Offered:
    return _Offered({}, {resource.name: spelled(dice, dice.number(2, 8))})


def _no_allocatable(dice: Dice, resource: Resource) -> _Offered:
    return _Offered({resource.name: spelled(dice, dice.number(2, 8))}, None)


def _more_allocatable(dice: Dice, resource: Resource) -> _Offered:
    return _Offered({resource.name: spelled(dice, 2)}, {resource.name: spelled(dice, dice.number(3, 8))})


def _large(dice: Dice, resource: Resource) -> _Offered:
    written, devices = large(dice)
    quantity = {resource.name: written}
    return _Offered(quantity, quantity, held=devices - dice.number(2, 9))


def _beyond(dice: Dice, resource: Resource) -> _Offered:
    capacity, allocatable = beyond(dice), beyond(dice)
    if dice.chance(0.3):
        return _Offered({resource.name: capacity}, {resource.name: spelled(dice, dice.number(2, 8))})
    return _Offered({resource.name: capacity}, {resource.name: allocatable})


def _shrunk(dice: Dice, resource: Resource) -> _Offered:
    devices = {resource.name: spelled(dice, MOST_DEVICES)}
    fewer = {resource.name: spelled(dice, dice.number(0, 4))}
    return _Offered(devices, devices, patches=(("/status", {"status": {"allocatable": fewer}}),))


def _grown(dice: Dice, resource: Resource) -> _Offered:
    devices = {resource.name: spelled(dice, dice.number(4, MOST_DEVICES))}
    none = {resource.name: 0}
    return _Offered(devices, none, patches=(("/status", {"status": {"allocatable": devices}}),))


def _parts(dice: Dice, resource: Resource) -> _Offered:
    quantity = {resource.name: fraction(dice)}
    return _Offered(quantity, quantity)


PARTS = "a part of one device"
OFFERS: Mapping[str, tuple[Callable[[Dice, Resource], _Offered], int]] = {
    "all of them healthy": (_healthy, 10),
    "some of them sick": (_sick, 4),
    "none, and no key": (_absent, 1),
    "a name alike but for the case": (_decoy, 1),
    "none of them": (_zero, 1),
    "in the capacity alone": (_capacity_alone, 1),
    "in the allocatable alone": (_allocatable_alone, 1),
    "no allocatable at all": (_no_allocatable, 1),
    "more allocatable than there are": (_more_allocatable, 1),
    "more than any node has": (_large, 3),
    "more than an int64": (_beyond, 1),
    "fewer than when the pods came": (_shrunk, 2),
    "more than when the pods came": (_grown, 1),
    PARTS: (_parts, 2),
}

PHASES = {"Pending": 4, "Running": 8, "Succeeded": 2, "Failed": 2, "Unknown": 2}
ON_NODE = "a node of the cluster"
PLACES = (ON_NODE, "a node that is not there", "no node")


@dataclass(frozen=True, slots=True)
class _End:
    grace_seconds: int | None = None
    has_finalizer: bool = False


IN_GRACE = "in its grace period"
ENDS: Mapping[str, _End] = {
    "not yet": _End(),
    IN_GRACE: _End(grace_seconds=3600),
    "past its grace period, held by a finalizer": _End(grace_seconds=0, has_finalizer=True),
}
END_WEIGHTS = {name: 1 if end.has_finalizer or end.grace_seconds else 8 for name, end in ENDS.items()}
