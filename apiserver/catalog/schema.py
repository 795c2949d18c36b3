"""What is served of classes, field by field: the declaration behind both OpenAPI documents and `kubectl explain`.

It is data, not validation: answers are made elsewhere in this room, and the tests hold every one of them against this.
Nothing is ever null: what is not known is left out. A field is required when every answer has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from apiserver.gpu.capacity import MAX_PLACEMENT, NodeReason
from apiserver.gpu.classes import MODE_PASSTHROUGH, MODE_VGPU
from apiserver.gpu.offers import ClassReason


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts.

    Attributes:
        type: string, integer or boolean.
        format: int32, int64, date-time, or "" for none.
        enum: every value there can be; only of a set that nobody will add to.
    """

    type: str
    format: str = ""
    enum: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of things of one shape."""

    items: "Scalar | Object"


@dataclass(frozen=True, slots=True)
class MapOf:
    """Keys that are not known beforehand, each with a value of the same kind."""

    values: Scalar


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object.

    Attributes:
        name: as in JSON.
        type: of its value.
        description: what it means, for a person who asks `kubectl explain`.
        required: every answer has it.
    """

    name: str
    type: "Scalar | ListOf | MapOf | Object"
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Object:
    """A named shape.

    Attributes:
        name: of its definition, after the group and version.
        description: what it is.
        fields: in the order in which they are best read.
        is_kind: it is answered as a whole, with apiVersion and kind, and its name is the kind.
    """

    name: str
    description: str
    fields: tuple[Field, ...]
    is_kind: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the query, besides those that every path takes.

    Attributes:
        name: as in the query.
        type: of its value.
        description: what it means.
        required: a request without it is refused.
    """

    name: str
    type: Scalar
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """A resource as its paths show it.

    Attributes:
        plural: as in paths.
        kind: one object of it.
        list_kind: many.
        namespaced: whether objects live in namespaces.
        subresources: name to the kind that answers it.
        parameters: name of a subresource to what can be asked of it.
        field_selectors: the fields that a list can be restricted by.
    """

    plural: str
    kind: Object
    list_kind: Object
    namespaced: bool = False
    subresources: Mapping[str, Object] = field(default_factory=dict)
    parameters: Mapping[str, tuple[Parameter, ...]] = field(default_factory=dict)
    field_selectors: tuple[str, ...] = ("metadata.name",)


STRING: Final = Scalar("string")
BOOLEAN: Final = Scalar("boolean")
INT32: Final = Scalar("integer", "int32")
INT64: Final = Scalar("integer", "int64")
TIME: Final = Scalar("string", "date-time")

_CLASS_REASONS: Final = ", ".join(ClassReason)
_NODE_REASONS: Final = ", ".join(NodeReason)


# What every kind has.

OBJECT_META: Final = Object(
    "ObjectMeta",
    "What of the metadata of an object is served. Name, uid, times, labels and annotations are those of the stored "
    "object; resourceVersion is the catalog's own.",
    (
        Field("name", STRING, "Name of the object, unique among those of its kind."),
        Field("uid", STRING, "Identity of the stored object: one that is deleted and made again has another."),
        Field(
            "resourceVersion",
            STRING,
            "Version of the last change that can be seen in this answer: a decimal number that rises. It is the "
            "catalog's own, not the one of the stored object.",
        ),
        Field("creationTimestamp", TIME, "When the stored object was created, in RFC 3339 and UTC."),
        Field(
            "deletionTimestamp",
            TIME,
            "When deletion of the stored object was asked for. Only there while finalizers still hold the object.",
        ),
        Field("labels", MapOf(STRING), "Labels of the stored object; label selectors look at them."),
        Field("annotations", MapOf(STRING), "Annotations of the stored object, without what kubectl last applied."),
    ),
)

LIST_META: Final = Object(
    "ListMeta",
    "Metadata of a list.",
    (
        Field("resourceVersion", STRING, "Version of the list. A watch from it misses nothing."),
        Field(
            "continue",
            STRING,
            "Token for the next page, when a limit was set and there is more. It means nothing to anybody but the "
            "server; with it the same query gives the next page.",
        ),
        Field(
            "remainingItemCount",
            INT64,
            "How many objects come after this page. It is left out on the last page and when a selector was given.",
        ),
    ),
)

API_VERSION: Final = Field("apiVersion", STRING, "Group and version of this answer.")
KIND: Final = Field("kind", STRING, "Kind of this answer.")
METADATA: Final = Field("metadata", OBJECT_META, "Name, identity, version, times, labels and annotations.")


def list_kind(kind: Object, description: str, items: str) -> Object:
    """The kind of a list.

    Args:
        kind: of its objects.
        description: of the list.
        items: what the objects are, and in which order.
    """
    return Object(
        f"{kind.name}List",
        description,
        (
            API_VERSION,
            KIND,
            Field("metadata", LIST_META, "Version of the list, and where to go on reading."),
            Field("items", ListOf(kind), items, required=True),
        ),
        is_kind=True,
    )


# The stored spec in its normal form. None of its fields is required: a stored object may be older than today's rules,
# and is then served as it is, with the reason Invalid.

_TOLERATION: Final = Object(
    "Toleration",
    "Tolerates any taint that matches key, value and effect by operator.",
    (
        Field("key", STRING, "Key of the taint. Empty matches every key, and needs operator Exists."),
        Field("operator", STRING, "Equal compares value, Exists matches every value. Empty means Equal."),
        Field("value", STRING, "Value of the taint that is tolerated."),
        Field(
            "effect",
            STRING,
            "Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. Empty matches every effect.",
        ),
        Field(
            "tolerationSeconds",
            INT64,
            "How long a NoExecute taint is tolerated; 0 or less evicts at once. Unset tolerates it forever.",
        ),
    ),
)

_SOURCE: Final = Object(
    "GPUClassSource",
    "Where the devices of a class come from.",
    (
        Field(
            "devicePlugin",
            Object(
                "DevicePluginSource",
                "Devices that a device plugin advertises as an extended resource of its node.",
                (
                    Field(
                        "resourceName",
                        STRING,
                        "Name of the extended resource, for example nvidia.com/NVIDIA_L40S-24C. Compared as bytes.",
                    ),
                ),
            ),
            "Devices that a device plugin advertises as an extended resource. This is what is counted.",
        ),
        Field(
            "dra",
            Object(
                "DRASource",
                "Devices allocated by Dynamic Resource Allocation.",
                (Field("deviceClassName", STRING, "Name of the DeviceClass."),),
            ),
            "Devices allocated by Dynamic Resource Allocation. Reserved: such a class is not offered yet.",
        ),
    ),
)

_LICENSE: Final = Object(
    "License",
    "Licence that a guest needs to use the vGPU.",
    (
        Field("secretName", STRING, "Name of the Secret with the licence client's configuration token."),
        Field(
            "featureType",
            Scalar("integer", "int32", (1, 4)),
            "FeatureType of the guest's licence client: 1 for NVIDIA vGPU, 4 for NVIDIA Virtual Compute Server.",
        ),
    ),
)

VENDOR: Final = Field("vendor", STRING, "Vendor of the card, for example NVIDIA.")
MODEL: Final = Field("model", STRING, "Model of the card, for example L40S.")
MODE: Final = Field(
    "mode",
    Scalar("string", enum=(MODE_PASSTHROUGH, MODE_VGPU)),
    "What one device is: passthrough is a whole card, vgpu is a virtual GPU of the profile given in profile.",
)
PROFILE: Final = Field("profile", STRING, "vGPU profile, for example L40S-24C. Only while mode is vgpu.")
MEMORY: Final = Field("memory", STRING, "Memory of one device as a quantity, for example 24Gi. Always a string.")
MAX_COUNT: Final = Field(
    "maxCount", INT32, "Most devices of the class that one instance may have. Unset means no limit."
)

_SPEC: Final = Object(
    "GPUClassSpec",
    "What a class is, as it is stored in gpuclasses.cozystack.io: declared fields only, in their normal form.",
    (
        VENDOR,
        MODEL,
        MODE,
        PROFILE,
        MEMORY,
        Field("source", _SOURCE, "Where the devices come from. Exactly one member is set in a valid class."),
        Field("license", _LICENSE, "Licence that a guest needs. Only while mode is vgpu; unset means none is needed."),
        MAX_COUNT,
        Field(
            "tolerations",
            ListOf(_TOLERATION),
            "Taints of nodes that instances of this class tolerate, in the order in which Kubernetes looks at them.",
        ),
    ),
)


# What is worked out.

FIGURES: Final = (
    Field(
        "capacity",
        INT64,
        "Devices of all nodes that match the node selector, sick ones and those of nodes left out included.",
        required=True,
    ),
    Field(
        "allocatable",
        INT64,
        "Devices that the eligible nodes offer. A node is eligible when it is Ready, not cordoned, matches the node "
        "selector, and the class tolerates its NoSchedule and NoExecute taints, the latter without an end.",
        required=True,
    ),
    Field(
        "requested",
        INT64,
        "Devices asked for by pods that are bound to eligible nodes and have not ended. It may exceed allocatable.",
        required=True,
    ),
    Field(
        "overcommitted",
        INT64,
        "The part of requested beyond what its node offers: over eligible nodes, the sum of max(0, requested - "
        "allocatable).",
        required=True,
    ),
    Field(
        "free",
        INT64,
        "Devices free now: allocatable - requested + overcommitted. This is how many one-device pods kube-scheduler "
        "would still place, so far as devices decide: cpu, memory and affinity can still keep it from that.",
        required=True,
    ),
    Field("unavailable", INT64, "capacity - allocatable: devices that are sick or on nodes left out.", required=True),
    Field("maxFreePerNode", INT64, "The most devices that one node has free.", required=True),
    Field(
        "maxPerInstance",
        INT64,
        "The most devices that one instance can get now: maxFreePerNode, or spec.maxCount if that is less.",
        required=True,
    ),
    Field("orderable", INT64, "Devices that can be ordered: free, or 0 while the class is not offered.", required=True),
)
"""The capacity of a class; always computed when asked, never stored."""

VERDICT: Final = (
    Field(
        "offered", BOOLEAN, "Whether the class can be ordered at all. It can while it has nothing free.", required=True
    ),
    Field(
        "reason",
        STRING,
        f"Why the class is offered or not, in one word: the first that applies of {_CLASS_REASONS}.",
        required=True,
    ),
    Field("message", STRING, "The reason in a sentence for a person. Its wording may change.", required=True),
)

_STATUS: Final = Object(
    "GPUClassStatus",
    "What is true of the class now. All figures are whole devices of the class's resource name.",
    (
        *FIGURES,
        *VERDICT,
        Field(
            "sharesWith",
            ListOf(STRING),
            "Other classes of the same resource name: they sell the same devices.",
            required=True,
        ),
        Field(
            "ownedResourceName",
            STRING,
            "Resource name that the class owns, as the stored object records it. It counts while it equals "
            "spec.source.devicePlugin.resourceName.",
        ),
    ),
)

GPU_CLASS: Final = Object(
    "GPUClass",
    "A class of GPUs as the hoster sells it, with what of it is free now. The spec is the stored one of "
    "gpuclasses.cozystack.io; the status is computed from live Nodes and Pods whenever it is asked for, and cannot be "
    "written.",
    (
        API_VERSION,
        KIND,
        METADATA,
        Field("spec", _SPEC, "What the class is, as it is stored in gpuclasses.cozystack.io."),
        Field("status", _STATUS, "What is free now, and whether the class is offered."),
    ),
    is_kind=True,
)

GPU_CLASS_LIST: Final = list_kind(GPU_CLASS, "A list of GPU classes.", "The classes, by name.")


# One class in full.

_OFFER: Final = Object(
    "GPUClassCatalogOffer",
    "What is sold, and whether it can be ordered.",
    (
        VENDOR,
        MODEL,
        MODE,
        PROFILE,
        MEMORY,
        MAX_COUNT,
        Field("licenseRequired", BOOLEAN, "Whether a guest needs a licence to use the device.", required=True),
        Field(
            "licenseFeatureType",
            Scalar("integer", "int32", (1, 4)),
            "FeatureType of the guest's licence client: 1 for NVIDIA vGPU, 4 for NVIDIA Virtual Compute Server.",
        ),
        *VERDICT,
    ),
)

_CAPACITY: Final = Object(
    "GPUClassCatalogCapacity",
    "The figures of the class in whole devices, and what waits for it.",
    (
        *FIGURES,
        Field(
            "pending",
            INT64,
            "Devices asked for by pods that are bound to no node yet. They take nothing from free.",
            required=True,
        ),
        Field(
            "nominated",
            INT64,
            "The part of pending for which kube-scheduler has nominated a node already, evicting other pods there.",
            required=True,
        ),
    ),
)

_PLACEMENT: Final = Object(
    "Placement",
    "How many instances of one size would be placed now, were nothing else ordered.",
    (
        Field("devices", INT64, "Devices of each instance.", required=True),
        Field("instances", INT64, "How many such instances would be placed.", required=True),
    ),
)

_NODE: Final = Object(
    "GPUClassCatalogNode",
    "What one node has of the class's resource name.",
    (
        Field("name", STRING, "Name of the node.", required=True),
        Field("eligible", BOOLEAN, "Whether pods of the class may be placed here and stay.", required=True),
        Field(
            "reasons",
            ListOf(
                Object(
                    "NodeReason",
                    "One reason why devices of a node are not free.",
                    (
                        Field("reason", STRING, f"The reason in one word: one of {_NODE_REASONS}.", required=True),
                        Field("message", STRING, "The reason in a sentence for a person.", required=True),
                    ),
                )
            ),
            "Why devices of the node are not free. What leaves the node out as a whole comes first.",
            required=True,
        ),
        Field("capacity", INT64, "Devices that the node has.", required=True),
        Field("allocatable", INT64, "Devices that the kubelet offers: those that are not sick.", required=True),
        Field(
            "requested",
            INT64,
            "Devices asked for by pods that are bound to the node and have not ended.",
            required=True,
        ),
        Field(
            "free",
            INT64,
            "Devices that pods of the class could still get here; 0 when the node is not eligible. The sum over all "
            "nodes is the free of the class.",
            required=True,
        ),
    ),
)

GPU_CLASS_CATALOG: Final = Object(
    "GPUClassCatalog",
    "One GPU class in full, node by node, with the reason for every device that is not free. For the hoster: it names "
    "nodes. Computed whenever it is asked for.",
    (
        API_VERSION,
        KIND,
        METADATA,
        Field("offer", _OFFER, "What is sold, and whether it can be ordered.", required=True),
        Field("capacity", _CAPACITY, "The figures of the class in whole devices.", required=True),
        Field(
            "placement",
            ListOf(_PLACEMENT),
            "How many instances would be placed now, for each number of devices from 1 up to "
            f"capacity.maxPerInstance, but not beyond {MAX_PLACEMENT}.",
            required=True,
        ),
        Field(
            "placementTruncated",
            BOOLEAN,
            f"Whether capacity.maxPerInstance exceeds the {MAX_PLACEMENT} at which placement ends.",
            required=True,
        ),
        Field("notes", ListOf(STRING), "What a reader should know besides the figures, in sentences.", required=True),
        Field(
            "nodes",
            ListOf(_NODE),
            "The nodes that carry the resource name or hold pods asking for it, by name.",
            required=True,
        ),
        Field("nodesWithoutResource", INT64, "How many nodes of the cluster are not among nodes.", required=True),
    ),
    is_kind=True,
)


# How a request fails.

STATUS: Final = Object(
    "Status",
    "Why a request failed. On the wire it is the Status of API version v1, as any Kubernetes server answers it.",
    (
        API_VERSION,
        KIND,
        Field("metadata", LIST_META, "Metadata of the answer; it is empty unless there is a way to go on reading."),
        Field("status", STRING, "Failure."),
        Field("message", STRING, "What happened, in a sentence for a person."),
        Field("reason", STRING, "What happened, in one word for a program, for example NotFound."),
        Field(
            "details",
            Object(
                "StatusDetails",
                "The parts of a failure, for a program.",
                (
                    Field("name", STRING, "Name of the object that was asked for."),
                    Field("group", STRING, "Group of the resource that was asked for."),
                    Field("kind", STRING, "Resource that was asked for; in spite of the name not its kind."),
                    Field(
                        "causes",
                        ListOf(
                            Object(
                                "StatusCause",
                                "One of several things that are wrong.",
                                (
                                    Field("field", STRING, "What of the request is wrong."),
                                    Field("reason", STRING, "The kind of cause, in one word."),
                                    Field("message", STRING, "What is wrong, in a sentence for a person."),
                                ),
                            )
                        ),
                        "Each thing that is wrong with the request.",
                    ),
                    Field("retryAfterSeconds", INT32, "When to try again. It is only there where trying again helps."),
                ),
            ),
            "The parts of the failure, for a program. It is left out when there are none.",
        ),
        Field("code", INT32, "HTTP status code of the answer."),
    ),
)
