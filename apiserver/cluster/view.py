"""The live view: every class with what each node contributes, kept by deltas.

Invariant: after any sequence of deltas the view equals one built from nothing out of the same objects. A pod event
costs one (class, node) share for each class that sells what the pod asks for; a read costs nothing but the reading.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from apiserver.cluster.changes import Changes, Feed
from apiserver.cluster.loads import Loads, PodKey
from apiserver.gpu.capacity import Explained, NodeShare, Tally, explain, make_tally, node_share
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.fit import Room
from apiserver.gpu.nodes import NO_COMPUTE, Node
from apiserver.gpu.offers import NOT_CHECKED, Offer, Permits, judge
from apiserver.gpu.ownership import Claim, ResourceNames, resolve
from apiserver.gpu.pods import Pod


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What there is to say about one class now."""

    gpu_class: GPUClass
    claim: Claim
    tally: Tally
    offer: Offer


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What there is to say about one node for one class.

    Attributes:
        name: the node.
        capacity: devices it has, also when it is outside the node selector.
        share: what it contributes.
        reasons: why devices of it are not free, exclusions first.
    """

    name: str
    capacity: int
    share: NodeShare
    reasons: tuple[Explained, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Devices that pods without a node ask for; they weigh on nobody."""

    pending: int
    nominated: int


@dataclass(slots=True)
class _ClassState:
    gpu_class: GPUClass
    claim: Claim = field(default_factory=Claim)
    shares: dict[str, NodeShare] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)


class View:
    """Classes, nodes and pods, joined.

    Args:
        selector: labels a node must carry to be counted; empty for every node.
        resource_names: how many classes may sell one resource name.

    Attributes:
        feed: tells those who follow.
        loads: what pods take besides devices. It changes no class, so nobody is told when it changes.
        generation: grows with everything that the view is told and that changes it, loads apart. While it is the same,
            so is every answer.
    """

    def __init__(
        self,
        *,
        selector: Mapping[str, str] | None = None,
        resource_names: ResourceNames = ResourceNames.EXCLUSIVE,
    ) -> None:
        self._selector = dict(selector or {})
        self._mode = resource_names
        self._permits = NOT_CHECKED
        self._mapped: Mapping[str, tuple[str, ...]] = {}
        self._classes: dict[str, _ClassState] = {}
        self._nodes: dict[str, Node] = {}
        self._pods: dict[PodKey, Pod] = {}
        self._unread: set[PodKey] = set()
        self._sellers: defaultdict[str, set[str]] = defaultdict(set)  # resource name -> classes
        self._carriers: defaultdict[str, set[str]] = defaultdict(set)  # resource name -> nodes
        self._requested: defaultdict[str, Counter[str]] = defaultdict(Counter)  # resource name -> node -> devices
        self._unreadable: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)  # resource -> node -> pods
        self._pending: Counter[str] = Counter()
        self._nominated: Counter[str] = Counter()
        self.loads = Loads()
        self.generation = 0
        self.feed: Feed[ClassReport] = Feed()

    # What it answers.

    def names(self) -> Iterable[str]:
        """The class names, in no particular order."""
        return self._classes.keys()

    def report(self, name: str) -> ClassReport | None:
        """The class with its totals and the verdict, or None when there is no such class."""
        state = self._classes.get(name)
        if state is None:
            return None
        advertised = bool(self._carriers.get(state.gpu_class.resource_name))
        offer = judge(state.gpu_class, state.claim, state.tally, advertised=advertised, permits=self._permits)
        return ClassReport(state.gpu_class, state.claim, state.tally, offer)

    def nodes(self, name: str) -> Iterator[NodeReport]:
        """The nodes that carry the class's resource name or hold pods asking for it, by name."""
        state = self._classes[name]
        resource = state.gpu_class.resource_name
        for node_name, share in sorted(state.shares.items()):
            node = self._nodes[node_name]
            unreadable = self._unreadable[resource].get(node_name, ())
            reasons = explain(state.gpu_class, node, share, self._selector, unreadable)
            yield NodeReport(node_name, node.capacity.get(resource, 0), share, tuple(reasons))

    def rooms(self, name: str) -> Iterator[Room]:
        """The eligible nodes with devices free, each with what is free on it, by name.

        It is a picture of now: what is told before the iteration ends does not change it.
        """
        shares, nodes, loads = dict(self._classes[name].shares), dict(self._nodes), self.loads.by_node()
        return (
            Room(node_name, devices, nodes[node_name].compute, loads.get(node_name, NO_COMPUTE))
            for node_name in sorted(shares)
            if (devices := shares[node_name].free)
        )

    def nodes_without_resource(self, name: str) -> int:
        """How many nodes have nothing to do with the class."""
        return len(self._nodes) - len(self._classes[name].shares)

    def waiting(self, name: str) -> Waiting:
        """What pods without a node ask for of the class's resource."""
        resource = self._classes[name].gpu_class.resource_name
        return Waiting(self._pending[resource], self._nominated[resource])

    def device_classes(self, name: str) -> tuple[str, ...]:
        """The DeviceClasses by which DRA hands out the class's resource name, besides what is counted here."""
        return self._mapped.get(self._classes[name].gpu_class.resource_name, ())

    def resources(self) -> Iterator[tuple[str, Tally]]:
        """Each resource name that is sold, with its totals: devices that several classes sell count once.

        A node counts when it is eligible for any of the classes; what it has, sick or not, counts anyway.
        """
        for resource, sellers in sorted(self._sellers.items()):
            states = [self._classes[name] for name in sellers]
            if resource and len(states) == 1:
                yield resource, states[0].tally
            elif resource and states:
                shares: dict[str, NodeShare] = {}
                for state in states:
                    shares |= {name: each for name, each in state.shares.items() if each.eligible or name not in shares}
                yield resource, make_tally(shares.values())

    def unread_pods(self) -> list[PodKey]:
        """The pods that cannot be read, sorted: they count as they were last known, or not at all."""
        return sorted(self._unread)

    def follow(self, on_change: Callable[[], None] | None = None) -> Changes[ClassReport]:
        """A reader of what changes, to which every class is new; of a class that went it is told the last report."""
        return self.feed.follow(on_change, self._classes)

    @property
    def permits(self) -> Permits:
        """What KubeVirt permits."""
        return self._permits

    # What it is told.

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take a complete list of nodes."""
        fresh = {node.name: node for node in nodes}
        for name in self._nodes.keys() - fresh.keys():
            self.delete_node(name)
        for node in fresh.values():
            self.apply_node(node)

    def apply_node(self, node: Node) -> None:
        """Take one node as it now is."""
        old = self._nodes.get(node.name)
        if old != node:
            self._nodes[node.name] = node
            self.generation += 1
            self._node_changed(node.name, old, node)

    def delete_node(self, name: str) -> None:
        """Forget a node. Its pods stay: they weigh again when a node of that name exists."""
        old = self._nodes.pop(name, None)
        if old is not None:
            self.generation += 1
            self._node_changed(name, old, None)

    def replace_pods(self, pods: Iterable[Pod]) -> dict[PodKey, Pod]:
        """Take a complete list of the pods that hold or wait for devices, and return those that are not in it."""
        self._unread.clear()
        self.generation += 1
        fresh = {(pod.namespace, pod.name): pod for pod in pods}
        gone = {key: pod for key, pod in self._pods.items() if key not in fresh}
        for key in gone:
            self.delete_pod(key)
        for pod in fresh.values():
            self.apply_pod(pod)
        return gone

    def apply_pod(self, pod: Pod) -> None:
        """Take one pod as it now is."""
        key = (pod.namespace, pod.name)
        self._now_read(key)
        old = self._pods.get(key)
        if old == pod:
            return
        if old is not None:
            self._weigh(old, -1)
        self.generation += 1
        self._pods[key] = pod
        self._weigh(pod, 1)
        self._pods_changed(old, pod)

    def delete_pod(self, key: PodKey) -> None:
        """Forget a pod: it is gone, terminal, or asks for nothing."""
        self._now_read(key)
        old = self._pods.pop(key, None)
        if old is not None:
            self.generation += 1
            self._weigh(old, -1)
            self._pods_changed(old)

    def reject_pod(self, key: PodKey) -> None:
        """Hear that a pod cannot be read, and leave it as it was last known."""
        if key not in self._unread:
            self._unread.add(key)
            self.generation += 1

    def _now_read(self, key: PodKey) -> None:
        if key in self._unread:
            self._unread.remove(key)
            self.generation += 1

    def replace_classes(self, classes: Iterable[GPUClass]) -> None:
        """Take a complete list of classes."""
        fresh = {gpu_class.name: gpu_class for gpu_class in classes}
        for name in self._classes.keys() - fresh.keys():
            self.delete_class(name)
        for gpu_class in fresh.values():
            self.apply_class(gpu_class)

    def apply_class(self, gpu_class: GPUClass) -> None:
        """Take one class as it now is."""
        old = self._classes.get(gpu_class.name)
        if old is not None and old.gpu_class == gpu_class:
            return
        self.generation += 1
        if old is not None:
            self._sellers[old.gpu_class.resource_name].discard(gpu_class.name)
        self._sellers[gpu_class.resource_name].add(gpu_class.name)
        state = self._classes[gpu_class.name] = _ClassState(gpu_class)
        for node_name in self._concerned(gpu_class.resource_name):
            self._recount(state, node_name)
        for resource in {gpu_class.resource_name, old.gpu_class.resource_name if old else gpu_class.resource_name}:
            self._resolve(resource)
        self.feed.mark(gpu_class.name)

    def delete_class(self, name: str) -> None:
        """Forget a class."""
        last = self.report(name)
        if last is not None:
            self.generation += 1
            del self._classes[name]
            self._sellers[last.gpu_class.resource_name].discard(name)
            self._resolve(last.gpu_class.resource_name)
            self.feed.departs(name, last)
            self.feed.mark(name)

    def set_permits(self, permits: Permits) -> None:
        """Take what KubeVirt permits."""
        if permits != self._permits:
            self.generation += 1
            self._permits = permits
            self.feed.mark(*self._classes)

    def set_mapped(self, mapped: Mapping[str, tuple[str, ...]]) -> None:
        """Take the DeviceClasses that map each extended resource name; only the page of a class tells of them."""
        self._mapped = dict(mapped)
        self.generation += 1

    # How it follows.

    def _node_changed(self, name: str, old: Node | None, new: Node | None) -> None:
        before = old.resource_names() if old else set()
        after = new.resource_names() if new else set()
        for resource in before - after:
            self._carriers[resource].discard(name)
        for resource in after - before:
            self._carriers[resource].add(name)
        held = {resource for resource, by_node in self._requested.items() if name in by_node}
        unreadable = {resource for resource, by_node in self._unreadable.items() if name in by_node}
        for resource in before | after | held | unreadable:
            self._recount_sellers(resource, name)

    def _concerned(self, resource: str) -> set[str]:
        """The nodes that carry the resource name or hold pods asking for it; some may not exist."""
        return self._carriers[resource] | self._requested[resource].keys() | self._unreadable[resource].keys()

    def _weigh(self, pod: Pod, sign: int) -> None:
        for resource, devices in pod.weight.items():
            if not pod.node:
                self._pending[resource] += sign * devices
                if pod.nominated_node:
                    self._nominated[resource] += sign * devices
                continue
            by_node = self._requested[resource]
            by_node[pod.node] += sign * devices
            if not by_node[pod.node]:
                del by_node[pod.node]
        for resource in pod.malformed if pod.node else ():
            pods = self._unreadable[resource].setdefault(pod.node, set())
            (pods.add if sign > 0 else pods.discard)(f"{pod.namespace}/{pod.name}")
            if not pods:
                del self._unreadable[resource][pod.node]

    def _pods_changed(self, *pods: Pod | None) -> None:
        touched = {
            (resource, pod.node) for pod in pods if pod for resource in (*pod.weight, *pod.malformed) if pod.node
        }
        for resource, node_name in touched:
            self._recount_sellers(resource, node_name)

    def _recount_sellers(self, resource: str, node_name: str) -> None:
        for class_name in self._sellers.get(resource, ()):
            self._recount(self._classes[class_name], node_name)
            self.feed.mark(class_name)

    def _recount(self, state: _ClassState, node_name: str) -> None:
        """Work out anew what one node contributes to one class."""
        old = state.shares.pop(node_name, None)
        if old is not None:
            state.tally.remove(old)
        node = self._nodes.get(node_name)
        resource = state.gpu_class.resource_name
        requested = self._requested[resource][node_name]
        unreadable = node_name in self._unreadable[resource]
        if node is None or not (node.advertises(resource) or requested or unreadable):
            return
        share = state.shares[node_name] = node_share(state.gpu_class, node, requested, self._selector)
        state.tally.add(share)

    def _resolve(self, resource: str) -> None:
        """Settle anew who owns one resource name."""
        sellers = [self._classes[name] for name in self._sellers.get(resource, ())]
        claims = resolve((state.gpu_class for state in sellers), self._mode)
        for state in sellers:
            claim = claims.get(state.gpu_class.name, Claim())
            if claim != state.claim:
                state.claim = claim
                self.feed.mark(state.gpu_class.name)
