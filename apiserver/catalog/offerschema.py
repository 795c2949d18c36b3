"""What is served to tenants, field by field; read on from schema.py, which says how."""

from typing import Final

from apiserver.catalog.schema import (
    API_VERSION,
    BOOLEAN,
    INT64,
    KIND,
    MAX_COUNT,
    MEMORY,
    MODE,
    MODEL,
    PROFILE,
    STRING,
    TIME,
    VENDOR,
    Collection,
    Field,
    MapOf,
    Object,
    Scalar,
    list_kind,
)
from apiserver.gpu.orders import OrderReason
from apiserver.gpu.quota import TOTAL, budget_key

_REASONS: Final = ", ".join(OrderReason)
_OF_CLASS: Final = budget_key("class").replace("class", "<class>", 1)

_META: Final = Object(
    "GPUOfferMeta",
    "Metadata of an offer. An offer is not stored: it follows from a namespace and a class, and so does its identity.",
    (
        Field("name", STRING, "Name of the class that is offered."),
        Field("namespace", STRING, "Namespace to which it is offered."),
        Field(
            "uid",
            STRING,
            "Identity of the offer: it changes when the namespace or the class is deleted and made again.",
        ),
        Field(
            "resourceVersion",
            STRING,
            "Version of the last change that can be seen in this offer: a decimal number that rises.",
        ),
        Field("creationTimestamp", TIME, "Since when there are both the namespace and the class, in RFC 3339 and UTC."),
        Field("annotations", MapOf(STRING), "Only on bookmarks of a watch: one marks the end of the initial events."),
    ),
)

_LICENSE: Final = Object(
    "GPUOfferLicense",
    "Licence that a guest needs to use a device of the class.",
    (
        Field("required", BOOLEAN, "Whether a guest needs a licence.", required=True),
        Field(
            "featureType",
            Scalar("integer", "int32", (1, 4)),
            "FeatureType of the guest's licence client: 1 for NVIDIA vGPU, 4 for NVIDIA Virtual Compute Server.",
        ),
        Field(
            "secretName",
            STRING,
            "Name of the Secret of this namespace that holds the licence client's configuration token, if one is "
            "needed. Whether it is there is not looked at.",
        ),
    ),
)

_TERMS: Final = Object(
    "GPUOfferTerms",
    "What is offered.",
    (
        VENDOR,
        MODEL,
        MODE,
        PROFILE,
        MEMORY,
        MAX_COUNT,
        Field("license", _LICENSE, "Licence that a guest needs.", required=True),
    ),
)

_LINE: Final = Object(
    "GPUOfferBudgetLine",
    "What the tightest ResourceQuota of the namespace says about one key, in whole devices. What is not known is left "
    "out: nobody may have counted what is used.",
    (
        Field("hard", INT64, "The most that may be used."),
        Field("used", INT64, "What is used. It exceeds hard when that was lowered later."),
        Field("remaining", INT64, "What is left: hard - used, but never less than 0."),
        Field("message", STRING, "Why something is not known, in a sentence for a person."),
    ),
)

_BUDGET: Final = Object(
    "GPUOfferBudget",
    "The budgets that an order counts against. One that is missing is no limit.",
    (
        Field("class", _LINE, f"Budget of devices of this class: the key {_OF_CLASS} of ResourceQuotas."),
        Field("total", _LINE, f"Budget of devices of all classes together: the key {budget_key(TOTAL)}."),
    ),
)

# None of the fields of an offer is required: a bookmark of a watch has its kind and metadata alone.

GPU_OFFER: Final = Object(
    "GPUOffer",
    "What one namespace can order of one class now, with its rights, its budget and the free devices taken together. "
    "Computed whenever it is asked for. It says nothing about the host.",
    (
        API_VERSION,
        KIND,
        Field("metadata", _META, "Name, namespace, identity and version."),
        Field("offer", _TERMS, "What is offered."),
        Field(
            "entitled",
            BOOLEAN,
            "Whether the namespace has the right to order the class. A vGPU needs one, a whole card does not.",
        ),
        Field(
            "budget",
            _BUDGET,
            "What the namespace's ResourceQuotas leave. Those with scopes are about some pods, and do not count.",
        ),
        Field(
            "orderable",
            INT64,
            "Devices that can be ordered now: the least of what is free and what the budgets leave; 0 while the class "
            "is not offered or the namespace is not entitled. It is missing while it is not known, and only then: the "
            "reason is BudgetUnknown.",
        ),
        Field(
            "orderableAtMost",
            INT64,
            "No more than this can be ordered now. Always known: where nobody has counted what is used of a budget, "
            "all of the budget is taken for what is left.",
        ),
        Field(
            "maxPerInstance",
            INT64,
            "The most devices that one instance can get now; no more than orderableAtMost.",
        ),
        Field(
            "reason",
            STRING,
            f"Why the class can be ordered or not, in one word: the first that applies of {_REASONS}.",
        ),
        Field("message", STRING, "The reason in a sentence for a person. Its wording may change."),
    ),
    is_kind=True,
)

GPU_OFFER_LIST: Final = list_kind(GPU_OFFER, "A list of offers.", "The offers, by namespace and name.")

GPU_OFFERS: Final = Collection(
    plural="gpuoffers",
    kind=GPU_OFFER,
    list_kind=GPU_OFFER_LIST,
    namespaced=True,
    field_selectors=("metadata.name", "metadata.namespace", "offer.mode", "offer.vendor", "reason"),
)
