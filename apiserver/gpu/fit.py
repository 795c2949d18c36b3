"""How many pods of one shape would be placed now: devices, cpu, memory and pod slots, as the scheduler adds them up.

Source: plugins/noderesources fit.go fitsRequest of Kubernetes 1.37.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from apiserver.gpu.nodes import Compute

MAX_DEVICES: Final = 64
"""Most devices of a shape; as many as a placement is worked out for."""

DEFAULT_COUNT: Final = 100
"""How many pods are wanted when nobody says."""

MAX_COUNT: Final = 100_000
"""Most pods that can be wanted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one pod asks for, everything inside it summed as the scheduler does.

    Attributes:
        devices: whole devices of the class, at least 1.
        cpu_milli: thousandths of a cpu; with 0 the cpu of a node does not matter.
        memory_bytes: bytes; with 0 the memory of a node does not matter.
    """

    devices: int
    cpu_milli: int = 0
    memory_bytes: int = 0


class Room(NamedTuple):
    """What is left on one node.

    Attributes:
        node: its name.
        devices: free devices of the class, 0 when the node is not eligible.
        allocatable: cpu, memory and slots that the kubelet offers.
        requested: what of them all pods of the node take; may be more.
    """

    node: str
    devices: int
    allocatable: Compute
    requested: Compute


def most_on(room: Room, shape: Shape) -> int:
    """The most pods of the shape that one node would still take; never negative.

    What the shape does not ask for does not limit, even where the node is over-committed.
    """
    allocatable, requested = room.allocatable, room.requested
    most = min(room.devices // shape.devices, allocatable.pods - requested.pods)
    if shape.cpu_milli:
        most = min(most, (allocatable.cpu_milli - requested.cpu_milli) // shape.cpu_milli)
    if shape.memory_bytes:
        most = min(most, (allocatable.memory_bytes - requested.memory_bytes) // shape.memory_bytes)
    return max(0, most)


def most_on_each(rooms: Iterable[Room], shape: Shape) -> list[tuple[str, int]]:
    """The nodes that would take at least one pod of the shape, each with the most it would take, in the same order.

    The sum is how many would be placed one after another, and it is exact: every pod takes the same from its node and
    nothing from any other, so a node takes its most whatever the order in which the scheduler fills them, and it
    refuses a pod only once all of them are full. Where only some of them are placed, which node gets how many is the
    scheduler's choice.
    """
    return [(room.node, most) for room in rooms if (most := most_on(room, shape))]
