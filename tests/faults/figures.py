"""What the figures of a class must be, by a few lines that share nothing with the program that is judged.

They hold for the workload of `writing` only: Nodes whose one reason to be left out is that they are cordoned or not
Ready, Pods of one container, quantities that are plain integers, each class with a resource name of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
TERMINAL: Final = frozenset({"Succeeded", "Failed"})


class Figures(NamedTuple):
    """What is told of a class in its status, in whole devices."""

    capacity: int
    allocatable: int
    requested: int
    overcommitted: int
    free: int
    unavailable: int
    max_free_per_node: int


def told(item: Json) -> Figures:
    """The figures that an answer tells of a class."""
    status = item["status"]
    return Figures(
        capacity=status["capacity"],
        allocatable=status["allocatable"],
        requested=status["requested"],
        overcommitted=status["overcommitted"],
        free=status["free"],
        unavailable=status["unavailable"],
        max_free_per_node=status["maxFreePerNode"],
    )


def resource_of(gpu_class: Json) -> str:
    """What a class sells."""
    name: str = gpu_class["spec"]["source"]["devicePlugin"]["resourceName"]
    return name


def whole(quantity: object) -> int:
    """A whole quantity below a million as kube-apiserver writes it, for which 1000 is "1k"."""
    text = str(quantity)
    return int(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)


def requests(pods: Iterable[Json], resource: str) -> dict[str, int]:
    """Devices that bound Pods which have not ended ask for, by Node."""
    held: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in TERMINAL:
            asked = pod["spec"]["containers"][0].get("resources", {}).get("requests", {}).get(resource, 0)
            held[node] = held.get(node, 0) + whole(asked)
    return held


def true_figures(resource: str, nodes: Mapping[str, Json], held: Mapping[str, int]) -> Figures:
    """The figures of a class that sells a resource.

    Args:
        resource: its name.
        nodes: all Nodes by name.
        held: what `requests` gave for the resource.
    """
    capacity = allocatable = requested = overcommitted = free = largest = 0
    for name, node in nodes.items():
        status = node["status"]
        capacity += whole(status["capacity"].get(resource, 0))
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
        if not is_ready or node["spec"].get("unschedulable"):
            continue
        has, uses = whole(status["allocatable"].get(resource, 0)), held.get(name, 0)
        allocatable += has
        requested += uses
        overcommitted += max(0, uses - has)
        free += max(0, has - uses)
        largest = max(largest, has - uses)
    return Figures(capacity, allocatable, requested, overcommitted, free, capacity - allocatable, largest)
