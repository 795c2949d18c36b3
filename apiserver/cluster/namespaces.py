"""Namespaces and ResourceQuotas as the wire carries them, and what the model makes of them.

Of a Namespace only the metadata is asked for. Secrets are never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apiserver.cluster.collection import Collection
from apiserver.cluster.objects import ObjectMeta
from apiserver.gpu.quota import Limit, read_limits
from apiserver.gpu.tenants import Namespace


class NamespaceMeta(ObjectMeta):
    """metadata of a Namespace, as far as it is read."""

    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class NamespaceObject(msgspec.Struct, gc=False):
    """A Namespace, or its metadata alone."""

    metadata: NamespaceMeta


class QuotaSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a ResourceQuota; what stands there in a wrong shape must not cost the whole object."""

    hard: Any = None
    scopes: Any = None
    scope_selector: Any = None


class QuotaStatus(msgspec.Struct, gc=False):
    """status of a ResourceQuota."""

    used: Any = None


class QuotaObject(msgspec.Struct, gc=False):
    """A ResourceQuota."""

    metadata: ObjectMeta
    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)
    status: QuotaStatus = msgspec.field(default_factory=QuotaStatus)


NAMESPACES: Final[Collection[NamespaceObject]] = Collection(
    "namespaces", "/api/v1/namespaces", NamespaceObject, metadata_only=True
)
QUOTAS: Final[Collection[QuotaObject]] = Collection("resourcequotas", "/api/v1/resourcequotas", QuotaObject)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota that limits devices.

    Attributes:
        namespace: metadata.namespace.
        name: metadata.name.
        limits: by class name, or TOTAL; at least one.
    """

    namespace: str
    name: str
    limits: Mapping[str, Limit]


def to_namespace(raw: NamespaceObject) -> Namespace:
    """The model's namespace."""
    metadata = raw.metadata
    return Namespace(
        name=metadata.name,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp or "",
        labels=metadata.labels or {},
        terminating=metadata.deletion_timestamp is not None,
    )


def to_quota(raw: QuotaObject) -> Quota | None:
    """What a ResourceQuota says about devices, or None when that is nothing.

    One with scopes says nothing either. Scopes divide pods, by their priority or their end; devices are counted by
    instance, and to every kind but pods a ResourceQuota with scopes does not apply, the per-class keys of
    ResourceClaims included. Source: MatchesNoScopeFunc in pkg/quota/v1/evaluator/core of Kubernetes 1.37.
    """
    selector = raw.spec.scope_selector
    if raw.spec.scopes or (selector.get("matchExpressions") if isinstance(selector, Mapping) else selector):
        return None
    limits = read_limits(raw.metadata.name, _mapping(raw.spec.hard), _mapping(raw.status.used))
    return Quota(raw.metadata.namespace, raw.metadata.name, limits) if limits else None


def _mapping(value: object) -> Mapping[str, Any]:
    """What may be keys and quantities; in YAML a key may be anything."""
    return {key: item for key, item in value.items() if isinstance(key, str)} if isinstance(value, Mapping) else {}
