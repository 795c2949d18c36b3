"""A node as the model sees it: what it advertises and whether it takes pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apiserver.gpu.tolerations import Taint

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"


class Compute(NamedTuple):
    """What pods use besides devices.

    Attributes:
        cpu_milli: thousandths of a cpu.
        memory_bytes: bytes.
        pods: slots, of which every pod takes one.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0


NO_COMPUTE: Final = Compute()


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        name: metadata.name.
        ready: condition Ready has status exactly "True".
        unschedulable: cordoned (spec.unschedulable).
        labels: metadata.labels, for the node selector.
        taints: spec.taints, in order.
        capacity: whole devices by resource name; never less than allocatable.
        allocatable: whole devices by resource name, rounded up; an absent name is 0.
        malformed: the resource names whose quantities could not be read, with the text that stood there.
        compute: allocatable cpu, memory and pod slots; what is absent, or cannot be read, is 0.
    """

    name: str
    ready: bool = True
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    malformed: Mapping[str, str] = field(default_factory=dict)
    compute: Compute = NO_COMPUTE

    def advertises(self, resource_name: str) -> bool:
        """Whether the node carries the resource key at all, be its quantity 0 or unreadable."""
        return resource_name in self.capacity or resource_name in self.malformed

    def resource_names(self) -> set[str]:
        """Every resource name the node carries."""
        return {*self.capacity, *self.malformed}


def matches_selector(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether the labels carry every pair of a node selector; an empty selector takes every node."""
    return all(labels.get(key) == value for key, value in selector.items())
