"""Capacity of one class: what each node contributes, and the totals.

Two identities hold for every node and every class (design rule, kept as property tests):
free = allocatable - requested + overcommitted, and unavailable = capacity - allocatable.

Source: NodeInfo of kube-scheduler 1.37 and its filters NodeResourcesFit, TaintToleration and NodeUnschedulable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Node, matches_selector
from apiserver.gpu.tolerations import temporarily_tolerated, untolerated

MAX_PLACEMENT: Final = 64
"""Largest number of devices per instance for which a placement is worked out."""

_NAMED_PODS: Final = 3
"""How many pods a sentence names; the page of a class stays bounded whatever the cluster holds."""


class NodeReason(StrEnum):
    """Why devices of a node are not free, or not to be trusted."""

    NOT_READY = "NotReady"
    CORDONED = "Cordoned"
    NOT_SELECTED = "NotSelected"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    TEMPORARILY_TOLERATED = "TemporarilyTolerated"
    UNHEALTHY_DEVICES = "UnhealthyDevices"
    OVERCOMMITTED = "Overcommitted"
    MALFORMED_QUANTITY = "MalformedQuantity"


@dataclass(frozen=True, slots=True)
class Explained:
    """One reason with its sentence for a person."""

    reason: NodeReason
    message: str


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Devices of one class on one node, in whole devices.

    Attributes:
        capacity: devices the node has; 0 on a node outside the selector.
        allocatable: devices the kubelet offers to pods.
        requested: devices asked for by pods bound to the node; may exceed allocatable.
        eligible: the class's pods may be placed here and stay.
        unhealthy: devices of the node's capacity that the kubelet does not offer, eligible or not; 0 where a figure
            cannot be read.
    """

    capacity: int = 0
    allocatable: int = 0
    requested: int = 0
    eligible: bool = False
    unhealthy: int = 0

    @property
    def free(self) -> int:
        """Devices a new pod of the class could still get here; never negative, 0 when not eligible."""
        return max(0, self.allocatable - self.requested) if self.eligible else 0


def exclusions(gpu_class: GPUClass, node: Node, selector: Mapping[str, str]) -> list[Explained]:
    """Every reason for which the node is left out for the class; empty when it is eligible.

    Stricter than the scheduler in four: NotReady, Cordoned, NotSelected and TemporarilyTolerated are our policy.
    """
    found = []
    if not node.ready:
        found.append(Explained(NodeReason.NOT_READY, "The node is not Ready."))
    if node.unschedulable:
        found.append(Explained(NodeReason.CORDONED, "The node is cordoned (spec.unschedulable)."))
    if not matches_selector(node.labels, selector):
        pairs = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        found.append(Explained(NodeReason.NOT_SELECTED, f"The node does not match the node selector {pairs}."))
    found.extend(
        Explained(NodeReason.UNTOLERATED_TAINT, f"The class does not tolerate the taint {taint}.")
        for taint in untolerated(node.taints, gpu_class.tolerations)
    )
    found.extend(
        Explained(
            NodeReason.TEMPORARILY_TOLERATED,
            f"A pod of the class would be evicted {max(0, seconds)} seconds after the taint {taint}.",
        )
        for taint, seconds in temporarily_tolerated(node.taints, gpu_class.tolerations)
    )
    malformed = node.malformed.get(gpu_class.resource_name)
    if malformed is not None:
        message = f"The node reports {malformed!r} for {gpu_class.resource_name}, which is not a quantity within int64."
        found.append(Explained(NodeReason.MALFORMED_QUANTITY, message))
    return found


def node_share(gpu_class: GPUClass, node: Node, requested: int, selector: Mapping[str, str]) -> NodeShare:
    """What the node contributes to the class.

    Args:
        gpu_class: the class.
        node: the node.
        requested: devices of the class's resource asked for by pods bound to the node.
        selector: the configured node selector.
    """
    capacity = node.capacity.get(gpu_class.resource_name, 0) if matches_selector(node.labels, selector) else 0
    allocatable = node.allocatable.get(gpu_class.resource_name, 0)
    return NodeShare(
        capacity=capacity,
        allocatable=allocatable,
        requested=requested,
        eligible=not exclusions(gpu_class, node, selector),
        unhealthy=0 if gpu_class.resource_name in node.malformed else max(0, capacity - allocatable),
    )


def explain(
    gpu_class: GPUClass, node: Node, share: NodeShare, selector: Mapping[str, str], malformed_pods: Collection[str] = ()
) -> list[Explained]:
    """Every reason why devices of the node are not free, exclusions first, each once.

    Args:
        gpu_class: the class.
        node: the node.
        share: what node_share gave for the two.
        selector: the configured node selector.
        malformed_pods: pods of the node whose request for the resource could not be read, as namespace/name.
    """
    found = exclusions(gpu_class, node, selector)
    sick = node.capacity.get(gpu_class.resource_name, 0) - share.allocatable
    if sick > 0 and gpu_class.resource_name not in node.malformed:
        message = f"{sick} of {sick + share.allocatable} devices are not allocatable."
        found.append(Explained(NodeReason.UNHEALTHY_DEVICES, message))
    if share.requested > share.allocatable:
        message = f"Pods hold {share.requested} devices of {share.allocatable} allocatable ones."
        found.append(Explained(NodeReason.OVERCOMMITTED, message))
    if malformed_pods:
        named = ", ".join(sorted(malformed_pods)[:_NAMED_PODS])
        message = f"The requests of {len(malformed_pods)} pods cannot be read and count as 0: {named}."
        found.append(Explained(NodeReason.MALFORMED_QUANTITY, message))
    return found


@dataclass(slots=True)
class Tally:
    """Totals of one class over its nodes, kept by adding and taking away shares.

    Attributes:
        capacity: over all selected nodes.
        allocatable: over eligible nodes.
        requested: over eligible nodes; may exceed allocatable.
        overcommitted: over eligible nodes, max(0, requested - allocatable) of each.
        unhealthy: over selected nodes.
    """

    capacity: int = 0
    allocatable: int = 0
    requested: int = 0
    overcommitted: int = 0
    unhealthy: int = 0
    _free_values: Counter[int] = field(default_factory=Counter)

    @property
    def free(self) -> int:
        """Devices free over eligible nodes, clamped on each node before summing."""
        return self.allocatable - self.requested + self.overcommitted

    @property
    def unavailable(self) -> int:
        """Devices that are sick, or on nodes left out."""
        return self.capacity - self.allocatable

    @property
    def max_free_per_node(self) -> int:
        """The most devices free on any one node."""
        return max(self._free_values, default=0)

    def add(self, share: NodeShare) -> None:
        """Count a node in. O(1)."""
        self._count(share, 1)

    def remove(self, share: NodeShare) -> None:
        """Take back a share that was added. O(1)."""
        self._count(share, -1)

    def placement(self, upto: int) -> Iterator[tuple[int, int]]:
        """For k = 1 … upto (at most MAX_PLACEMENT): k and how many instances of k devices would be placed."""
        for devices in range(1, min(upto, MAX_PLACEMENT) + 1):
            yield devices, sum(free // devices * nodes for free, nodes in self._free_values.items())

    def _count(self, share: NodeShare, sign: int) -> None:
        self.capacity += sign * share.capacity
        self.unhealthy += sign * share.unhealthy
        if not share.eligible:
            return
        self.allocatable += sign * share.allocatable
        self.requested += sign * share.requested
        self.overcommitted += sign * max(0, share.requested - share.allocatable)
        if share.free:
            self._free_values[share.free] += sign
            if not self._free_values[share.free]:
                del self._free_values[share.free]


def make_tally(shares: Iterable[NodeShare]) -> Tally:
    """The totals of these shares."""
    tally = Tally()
    for share in shares:
        tally.add(share)
    return tally
