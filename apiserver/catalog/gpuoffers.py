"""`gpuoffers`: what one namespace can order of each class now; for its tenant, so nothing of the host is in it."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from apiserver.catalog.gpuclasses import API_VERSION, figures, int64
from apiserver.cluster.changes import Changes
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import ClassReport, View
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.orders import judge_order
from apiserver.gpu.quota import Budget
from apiserver.gpu.tenants import Tenant, TenantRules
from apiserver.serving.namespaced import NamespacedStores, Turn
from apiserver.serving.selectors import FieldGetter
from apiserver.serving.tables import Column, Layout, Object, age_cell, name_cell
from apiserver.serving.versions import VersionSource

KIND: Final = "GPUOffer"
UNKNOWN: Final = "<unknown>"
UNLIMITED: Final = "unlimited"

_TERMS: Final = ("vendor", "model", "mode", "profile", "memory", "maxCount")


@dataclass(frozen=True, slots=True)
class Offered:
    """What of a class the offers to all tenants have in common.

    Attributes:
        gpu_class: the class.
        terms: what is sold, as it is served.
        offered: whether it is offered at all.
        free: devices that are free.
        max_per_instance: the most that one instance can get, whoever orders it.
    """

    gpu_class: GPUClass
    terms: Mapping[str, Any]
    offered: bool
    free: int
    max_per_instance: int


def to_offered(report: ClassReport, rules: TenantRules) -> Offered:
    """What tenants may know of a class, and what their orders depend on."""
    totals = figures(report)
    return Offered(
        gpu_class=report.gpu_class,
        terms=_terms(report.gpu_class, rules),
        offered=report.offer.offered,
        free=totals["free"],
        max_per_instance=totals["maxPerInstance"],
    )


def _terms(gpu_class: GPUClass, rules: TenantRules) -> dict[str, Any]:
    """What is sold; of a licence the Secret's name in the tenant's namespace, never that of the host's own."""
    spec = gpu_class.spec
    terms = {key: spec[key] for key in _TERMS if key in spec}
    terms["license"] = {"required": "license" in spec}
    if "license" in spec:
        if "featureType" in spec["license"]:
            terms["license"]["featureType"] = spec["license"]["featureType"]
        terms["license"]["secretName"] = rules.secret_of(gpu_class.name)
    return terms


def gpu_offer_object(tenant: Tenant, offered: Offered, rules: TenantRules) -> dict[str, Any]:
    """The served GPUOffer, without resourceVersion. Unknown values are left out, never null."""
    gpu_class, namespace = offered.gpu_class, tenant.namespace
    of_class, total = tenant.budgets_of(gpu_class.name)
    entitled = rules.is_entitled(gpu_class, namespace)
    order = judge_order(
        offered=offered.offered,
        terminating=namespace.terminating,
        entitled=entitled,
        budgets=[budget for budget in (of_class, total) if budget is not None],
        free=offered.free,
        max_per_instance=offered.max_per_instance,
    )
    served: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": _metadata(tenant, gpu_class),
        "offer": offered.terms,
        "entitled": entitled,
        "budget": {
            name: _budget(budget) for name, budget in (("class", of_class), ("total", total)) if budget is not None
        },
        "orderableAtMost": order.at_most,
        "maxPerInstance": order.max_per_instance,
        "reason": str(order.reason),
        "message": order.message,
    }
    if order.orderable is not None:
        served["orderable"] = order.orderable
    return served


def _metadata(tenant: Tenant, gpu_class: GPUClass) -> dict[str, Any]:
    """Name, namespace, and what follows from both; an offer is as old as the younger of the two."""
    namespace = tenant.namespace
    metadata = {"name": gpu_class.name, "namespace": namespace.name}
    uid = _uid(namespace.uid, str(gpu_class.metadata.get("uid", "")))
    if uid:
        metadata["uid"] = uid
    created = max(namespace.creation_timestamp, gpu_class.creation_timestamp)
    if created:
        metadata["creationTimestamp"] = created
    return metadata


def _uid(namespace: str, gpu_class: str) -> str:
    """UUIDv5 of the class's uid in the name space of the namespace's; "" when one of them is missing or none."""
    try:
        return str(uuid.uuid5(uuid.UUID(namespace), gpu_class)) if gpu_class else ""
    except ValueError:
        return ""


def _budget(budget: Budget) -> dict[str, Any]:
    known = {"hard": budget.hard, "used": budget.used, "remaining": budget.remaining}
    served: dict[str, Any] = {name: int64(value) for name, value in known.items() if value is not None}
    if budget.problem:
        served["message"] = budget.problem
    return served


# Made when they are needed.

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offering:
    """What offers to tenants are made from.

    Attributes:
        tenancy: the namespaces and their budgets.
        rules: what the platform has agreed on.
        unsynced: says why no true answer can be given to a tenant at present, or None when one can.
    """

    tenancy: Tenancy
    rules: TenantRules
    unsynced: Callable[[], str | None]


def make_stores(
    view: View, offering: Offering, versions: VersionSource, require: Callable[[], None]
) -> NamespacedStores[Tenant, Offered]:
    """The stores of offers, told of everything that changes.

    Args:
        view: the classes.
        offering: the tenants.
        versions: makes resourceVersions.
        require: raises a StatusError while no true answer can be given.
    """
    tenancy, rules = offering.tenancy, offering.rules

    def offered(report: ClassReport | None) -> Offered | None:
        return None if report is None else to_offered(report, rules)

    stores = NamespacedStores[Tenant, Offered](
        versions,
        namespaces=lambda: _turns(tenants, tenancy.tenant, lambda tenant: tenant),
        names=lambda: _turns(classes, view.report, offered),
        make=lambda tenant, each: gpu_offer_object(tenant, each, rules),
        require=require,
    )
    classes = view.follow(stores.touch)
    tenants = tenancy.follow(stores.touch)
    return stores


def _turns(
    changes: Changes[S], now: Callable[[str], S | None], known: Callable[[S | None], T | None]
) -> Iterator[Turn[T]]:
    taken = changes.take()
    for name in sorted(taken.names):
        yield Turn(name, known(now(name)), known(taken.departed.get(name)))


# How they are printed and selected.


def _orderable(item: Object, _: datetime) -> str:
    return str(item.get("orderable", UNKNOWN))


def _budget_left(item: Object, _: datetime) -> str:
    """What the tighter of the two budgets leaves; of which nothing is left, whatever the other is."""
    left = [budget.get("remaining") for budget in item["budget"].values()]
    if not left:
        return UNLIMITED
    known = [remaining for remaining in left if remaining is not None]
    return str(min(known)) if len(known) == len(left) or 0 in known else UNKNOWN


def _cell(name: str, key: str, description: str, type_: str) -> Column:
    return Column(name, lambda item, _: item[key], description, type=type_)


def _term(name: str, key: str, description: str) -> Column:
    return Column(name, lambda item, _: item["offer"].get(key, ""), description, wide=True)


FIELDS: Final[Mapping[str, FieldGetter]] = {
    "offer.mode": lambda item: str(item["offer"].get("mode", "")),
    "offer.vendor": lambda item: str(item["offer"].get("vendor", "")),
    "reason": lambda item: str(item["reason"]),
}
"""What offers can be selected by besides their metadata."""

LAYOUT: Final = Layout(
    columns=(
        Column("Name", name_cell, "Name of the class.", format="name"),
        Column("Orderable", _orderable, "Devices that can be ordered now, or <unknown>."),
        _cell("Max", "maxPerInstance", "The most devices one instance can get now.", "integer"),
        Column("Budget-Left", _budget_left, "Devices left of the budget, <unknown>, or unlimited without one."),
        _cell("Entitled", "entitled", "Whether the namespace has the right to order the class.", "boolean"),
        _cell("Reason", "reason", "Why the class can be ordered or not.", "string"),
        Column("Age", age_cell, "Time since there has been such an offer."),
        _term("Vendor", "vendor", "Maker of the card."),
        _term("Model", "model", "Model of the card."),
        _term("Mode", "mode", "passthrough or vgpu."),
        _term("Profile", "profile", "vGPU profile."),
        _term("Memory", "memory", "Memory of one device."),
    )
)
