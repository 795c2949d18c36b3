"""`gpuclasses/catalog`: one class in full, node by node, with the reason for every device that is not free."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from apiserver.catalog.gpuclasses import API_VERSION, figures, int64
from apiserver.cluster.view import NodeReport, View
from apiserver.gpu.capacity import MAX_PLACEMENT
from apiserver.gpu.classes import GPUClass
from apiserver.serving.resources import Document
from apiserver.serving.tables import Column, Layout, Object

KIND: Final = "GPUClassCatalog"

_NAMED: Final = 3
"""How many objects a note names; a page stays bounded whatever the cluster holds."""


_KEPT: Final = 16
"""How many pages are kept, which are large: a page of 500 nodes takes a megabyte."""


class Pages:
    """The pages of all classes, each made once for all who ask while the view stays the same.

    Args:
        view: the live view.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._generation = view.generation
        self._made: dict[str, Document] = {}

    def page(self, name: str) -> Document | None:
        """The page of one class as it is now, or None when there is no such class."""
        if self._generation != self._view.generation or len(self._made) > _KEPT:
            self._made.clear()
            self._generation = self._view.generation
        made = self._made.get(name)
        if made is None:
            page = catalog_object(self._view, name)
            if page is None:
                return None
            made = self._made[name] = Document(page)
        return made


def catalog_object(view: View, name: str) -> dict[str, Any] | None:
    """The page of one class, or None when there is no such class."""
    report = view.report(name)
    if report is None:
        return None
    totals = figures(report)
    waiting = view.waiting(name)
    placement = report.tally.placement(totals["maxPerInstance"])
    page: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": dict(report.gpu_class.metadata),
        "offer": {
            **_terms(report.gpu_class),
            "offered": report.offer.offered,
            "reason": str(report.offer.reason),
            "message": report.offer.message,
        },
        "capacity": {**totals, "pending": int64(waiting.pending), "nominated": int64(waiting.nominated)},
        "placement": [{"devices": devices, "instances": int64(instances)} for devices, instances in placement],
        "placementTruncated": totals["maxPerInstance"] > MAX_PLACEMENT,
        "notes": notes(view, report.gpu_class),
        "nodes": [_node(node) for node in view.nodes(name)],
        "nodesWithoutResource": view.nodes_without_resource(name),
    }
    return page


def notes(view: View, gpu_class: GPUClass) -> list[str]:
    """What a reader should know besides the figures."""
    said = []
    device_classes = view.device_classes(gpu_class.name)
    if device_classes:
        names = ", ".join(device_classes[:_NAMED])
        said.append(
            f"DRA maps {gpu_class.resource_name} to {len(device_classes)} DeviceClasses ({names}): devices handed out "
            "that way are not counted, so the scheduler may place more than is said here."
        )
    if view.permits.stale:
        said.append("KubeVirt's table of permitted devices cannot be read at present; what was last known was used.")
    unread = view.unread_pods()
    if unread:
        names = ", ".join("/".join(key) for key in unread[:_NAMED])
        said.append(
            f"Pods that cannot be read: {len(unread)} ({names}). Each counts as it was last known, or not at all, so "
            "fewer devices may be free than is said here."
        )
    return said


def _terms(gpu_class: GPUClass) -> dict[str, Any]:
    """What is sold; of a licence only that one is needed, for the Secret's name is nobody's business here."""
    spec = gpu_class.spec
    terms = {key: spec[key] for key in ("vendor", "model", "mode", "profile", "memory", "maxCount") if key in spec}
    terms["licenseRequired"] = "license" in spec
    if "featureType" in spec.get("license", {}):
        terms["licenseFeatureType"] = spec["license"]["featureType"]
    return terms


def _node(node: NodeReport) -> dict[str, Any]:
    return {
        "name": node.name,
        "eligible": node.share.eligible,
        "reasons": [{"reason": str(each.reason), "message": each.message} for each in node.reasons],
        "capacity": node.capacity,
        "allocatable": node.share.allocatable,
        "requested": int64(node.share.requested),
        "free": node.share.free,
    }


def _rows(page: Object) -> Sequence[Object]:
    return list(page["nodes"])


def _figure(name: str, key: str, description: str, type_: str = "integer") -> Column:
    return Column(name, lambda node, _: node[key], description, type=type_)


def _reasons(node: Object, _: datetime) -> str:
    return ",".join(dict.fromkeys(each["reason"] for each in node["reasons"]))


LAYOUT: Final = Layout(
    columns=(
        Column("Node", lambda node, _: node["name"], "Name of the node.", format="name"),
        _figure("Free", "free", "Devices free now."),
        _figure("Requested", "requested", "Devices held by pods."),
        _figure("Allocatable", "allocatable", "Devices the kubelet offers."),
        _figure("Capacity", "capacity", "Devices the node has."),
        _figure("Eligible", "eligible", "Whether pods of the class may be placed here and stay.", "boolean"),
        Column("Reasons", _reasons, "Why devices of the node are not free."),
    ),
    rows=_rows,
)
