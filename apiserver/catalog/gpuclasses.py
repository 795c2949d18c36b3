"""`gpuclasses`: the stored class with a status that is always true."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.cluster.view import ClassReport
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.offers import ClassReason
from apiserver.gpu.quantity import MAX_VALUE
from apiserver.serving.selectors import FieldGetter
from apiserver.serving.tables import Column, Layout, Object, age_cell, name_cell

GROUP: Final = "catalog.cozystack.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "GPUClass"


def gpu_class_object(report: ClassReport) -> dict[str, Any]:
    """The served GPUClass, without resourceVersion. Unknown values are left out, never null."""
    gpu_class = report.gpu_class
    status = {
        **figures(report),
        "offered": report.offer.offered,
        "reason": str(report.offer.reason),
        "message": report.offer.message,
        "sharesWith": list(report.claim.shares_with),
    }
    if gpu_class.owned_resource_name:
        status["ownedResourceName"] = gpu_class.owned_resource_name
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": dict(gpu_class.metadata),
        "spec": dict(gpu_class.spec),
        "status": status,
    }


def figures(report: ClassReport) -> dict[str, int]:
    """The capacity of a class in whole devices; orderable is 0 while the class is not offered."""
    tally = report.tally
    exact = {
        "capacity": tally.capacity,
        "allocatable": tally.allocatable,
        "requested": tally.requested,
        "overcommitted": tally.overcommitted,
        "free": tally.free,
        "unavailable": tally.unavailable,
        "maxFreePerNode": tally.max_free_per_node,
        "maxPerInstance": max_per_instance(report.gpu_class, tally.max_free_per_node),
        "orderable": tally.free if report.offer.reason is ClassReason.OFFERED else 0,
    }
    return {name: int64(value) for name, value in exact.items()}


def int64(value: int) -> int:
    """The figure as a client can hold it: sums over absurd quantities end at the largest int64 instead of beyond."""
    return min(value, MAX_VALUE)


def max_per_instance(gpu_class: GPUClass, max_free_per_node: int) -> int:
    """The most devices one instance can get now: what one node has free, and no more than the class allows."""
    if gpu_class.max_count is None:
        return max_free_per_node
    return min(max_free_per_node, gpu_class.max_count)


def _status(name: str, key: str, description: str, type_: str = "integer") -> Column:
    return Column(name, lambda item, _: item["status"][key], description, type=type_)


def _spec(name: str, key: str, description: str) -> Column:
    return Column(name, lambda item, _: item["spec"].get(key, ""), description, wide=True)


def _resource_name(item: Object, _: datetime) -> str:
    source: Mapping[str, Any] = item["spec"].get("source", {})
    return str(source.get("devicePlugin", {}).get("resourceName", ""))


FIELDS: Final[Mapping[str, FieldGetter]] = {
    "spec.mode": lambda item: str(item["spec"].get("mode", "")),
    "spec.vendor": lambda item: str(item["spec"].get("vendor", "")),
    "status.offered": lambda item: "true" if item["status"]["offered"] else "false",
}
"""What classes can be selected by besides their metadata."""

LAYOUT: Final = Layout(
    columns=(
        Column("Name", name_cell, "Name of the class.", format="name"),
        _status("Free", "free", "Devices free now on eligible nodes."),
        _status("Max", "maxPerInstance", "The most devices one instance can get now."),
        _status("Requested", "requested", "Devices held by pods on eligible nodes."),
        _status("Allocatable", "allocatable", "Devices the eligible nodes offer."),
        _status("Offered", "offered", "Whether the class can be ordered.", "boolean"),
        _status("Reason", "reason", "Why the class is offered or not.", "string"),
        Column("Age", age_cell, "Time since the class was created."),
        _spec("Vendor", "vendor", "Maker of the card."),
        _spec("Model", "model", "Model of the card."),
        _spec("Mode", "mode", "passthrough or vgpu."),
        _spec("Profile", "profile", "vGPU profile."),
        _spec("Memory", "memory", "Memory of one device."),
        Column("Resource", _resource_name, "Extended resource name of the devices.", wide=True),
    )
)
