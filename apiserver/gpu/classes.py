"""The stored GPUClass, read into its normal form and held against today's admission rules.

A stored object may be older than the rules of its CRD, so nothing about its shape is taken for granted: what can be
read is kept, every rule it breaks is named, and the class is then served as `Invalid` instead of being dropped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.gpu.resources import is_dns_subdomain, is_extended_resource_name, is_qualified_name
from apiserver.gpu.tolerations import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Toleration

MODE_PASSTHROUGH: Final = "passthrough"
MODE_VGPU: Final = "vgpu"
BUDGET_DOMAIN: Final = "gpuclass.cozystack.io"
"""Domain of the quota keys; a device may not be named inside it."""

MAX_CLASS_NAME: Final = 63
"""Characters of a class's name, which is a DNS label."""

_FEATURE_TYPES: Final = (1, 4)
_MAX_TEXT: Final = 63
_MAX_COUNT: Final = 2**31 - 1
_MAX_TOLERATIONS: Final = 64
_MAX_MEMORY: Final = 32
_MEMORY: Final = re.compile(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?")
"""A positive quantity as the CRD takes it. It is told, never computed with, so it need not fit into int64."""

_INT64: Final = 2**63
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TOLERATION_FIELDS: Final = ("key", "operator", "value", "effect")


@dataclass(frozen=True, slots=True)
class GPUClass:
    """One stored GPUClass.

    Attributes:
        name: metadata.name.
        metadata: what of the stored metadata is served on, without resourceVersion.
        spec: the normal form: declared fields only, memory as a string, integers as integers.
        resource_name: spec.source.devicePlugin.resourceName, or "" when the source is another one or missing.
        owned_resource_name: status.ownedResourceName as another controller recorded it, or "".
        tolerations: in the order of the spec; the order decides.
        max_count: spec.maxCount, or None for no limit.
        unsupported_source: the source is declared but not one that is counted (dra).
        violations: one sentence for each rule the object breaks, naming the field and the fix.
    """

    name: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    resource_name: str = ""
    owned_resource_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    max_count: int | None = None
    unsupported_source: bool = False
    violations: tuple[str, ...] = ()

    @property
    def creation_timestamp(self) -> str:
        """metadata.creationTimestamp in RFC 3339 UTC, which sorts as text; "" when unknown."""
        return str(self.metadata.get("creationTimestamp", ""))

    @property
    def terminating(self) -> bool:
        """Whether deletion was asked for and finalizers still hold the object."""
        return "deletionTimestamp" in self.metadata

    @property
    def records_ownership(self) -> bool:
        """Whether the recorded owner mark counts: it names, byte for byte, what the spec names."""
        return bool(self.resource_name) and self.owned_resource_name == self.resource_name


def is_label_value(text: str) -> bool:
    """Whether it may be the value of a label; the empty one may."""
    return _LABEL_VALUE.fullmatch(text) is not None


def parse_class(raw: Mapping[str, Any]) -> GPUClass:
    """Read one object as JSON gave it. Never raises for a wrong shape: violations say what is wrong.

    Raises:
        ValueError: the object has no metadata.name, so it cannot be served at all.
    """
    metadata = _mapping(raw.get("metadata"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("metadata.name must be a non-empty string")
    reader = _SpecReader(_mapping(raw.get("spec")))
    if not _DNS_LABEL.fullmatch(name):
        reader.violations.append(f"metadata.name: {name!r} must be a DNS label of at most 63 characters")
    spec = reader.read()
    owned = _mapping(raw.get("status")).get("ownedResourceName")
    return GPUClass(
        name=name,
        metadata=_served_metadata(metadata),
        spec=spec,
        resource_name=_mapping(_mapping(spec.get("source")).get("devicePlugin")).get("resourceName", ""),
        owned_resource_name=owned if isinstance(owned, str) else "",
        tolerations=reader.tolerations,
        max_count=spec.get("maxCount"),
        unsupported_source="dra" in _mapping(spec.get("source")),
        violations=tuple(reader.violations),
    )


def unreadable_class(name: str, reason: str) -> GPUClass:
    """A class of which no more than the name can be read: served as invalid, for others must not miss it."""
    return GPUClass(name, metadata={"name": name}, violations=(f"the stored object cannot be read: {reason}",))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _served_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Name, uid, times, labels and annotations; nothing that only matters to writers of the stored object."""
    served: dict[str, Any] = {"name": metadata["name"]}
    for key in ("uid", "creationTimestamp", "deletionTimestamp"):
        if isinstance(metadata.get(key), str):
            served[key] = metadata[key]
    for key in ("labels", "annotations"):
        pairs = {
            name: value
            for name, value in _mapping(metadata.get(key)).items()
            if isinstance(value, str) and name != _LAST_APPLIED
        }
        if pairs:
            served[key] = pairs
    return served


class _SpecReader:
    """Reads a spec field by field into its normal form, and collects what is wrong with it."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self.violations: list[str] = []
        self.tolerations: tuple[Toleration, ...] = ()

    def read(self) -> dict[str, Any]:
        raw, spec = self._raw, dict[str, Any]()
        for key in ("vendor", "model"):
            self._label(spec, key, required=True)
        self._mode_and_profile(spec)
        self._memory(spec)
        self._source(spec)
        self._license(spec)
        rule = f"must be a whole number between 1 and {_MAX_COUNT}"
        self._integer(raw, spec, "maxCount", lambda value: 1 <= value <= _MAX_COUNT, rule)
        self._tolerations(spec)
        return spec

    def _wrong(self, path: str, what: str) -> None:
        self.violations.append(f"spec.{path}: {what}")

    def _text(self, raw: Mapping[str, Any], into: dict[str, Any], path: str, *, required: bool = False) -> None:
        key = path.rpartition(".")[2]
        value = raw.get(key)
        if isinstance(value, str) and value:
            into[key] = value
        elif value is not None or required:
            self._wrong(path, "must be a non-empty string")

    def _label(self, spec: dict[str, Any], key: str, *, required: bool = False) -> None:
        self._text(self._raw, spec, key, required=required)
        if len(spec.get(key, "")) > _MAX_TEXT:
            self._wrong(key, f"must have at most {_MAX_TEXT} characters")

    def _integer(
        self, raw: Mapping[str, Any], into: dict[str, Any], path: str, accept: Callable[[int], bool], rule: str
    ) -> None:
        key = path.rpartition(".")[2]
        value = raw.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a whole number is an integer however JSON spells it
        if isinstance(value, int) and not isinstance(value, bool) and accept(value):
            into[key] = value
        elif value is not None:
            self._wrong(path, rule)

    def _mode_and_profile(self, spec: dict[str, Any]) -> None:
        mode = self._raw.get("mode")
        if mode in (MODE_PASSTHROUGH, MODE_VGPU):
            spec["mode"] = mode
        else:
            self._wrong("mode", f"must be {MODE_PASSTHROUGH} or {MODE_VGPU}")
        self._label(spec, "profile")
        if mode == MODE_VGPU and "profile" not in spec:
            self._wrong("profile", f"must be set while mode is {MODE_VGPU}")
        if mode == MODE_PASSTHROUGH and "profile" in spec:
            self._wrong("profile", f"must not be set while mode is {MODE_PASSTHROUGH}")

    def _memory(self, spec: dict[str, Any]) -> None:
        memory = self._raw.get("memory")
        if memory is None:
            self._wrong("memory", "is required")
            return
        text = str(memory) if isinstance(memory, int) and not isinstance(memory, bool) else memory
        match = _MEMORY.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_MEMORY else None
        if match is None or not match[1].strip("0."):
            self._wrong("memory", "must be a quantity greater than 0 such as 24Gi or 24576Mi")
        else:
            spec["memory"] = text

    def _source(self, spec: dict[str, Any]) -> None:
        source = _mapping(self._raw.get("source"))
        members = [key for key in ("devicePlugin", "dra") if isinstance(source.get(key), Mapping)]
        if len(members) != 1:
            self._wrong("source", "exactly one of devicePlugin and dra must be set")
        normal: dict[str, Any] = {}
        if "devicePlugin" in members:
            normal["devicePlugin"] = {}
            self._text(
                source["devicePlugin"], normal["devicePlugin"], "source.devicePlugin.resourceName", required=True
            )
            self._resource_name(normal["devicePlugin"].get("resourceName"))
        if "dra" in members:
            normal["dra"] = {}
            self._text(source["dra"], normal["dra"], "source.dra.deviceClassName")
            if not is_dns_subdomain(normal["dra"].get("deviceClassName", "unset")):
                self._wrong("source.dra.deviceClassName", "must be a DNS subdomain")
        if normal:
            spec["source"] = normal

    def _resource_name(self, name: str | None) -> None:
        if name is None:
            return
        domain = name.rpartition("/")[0]
        if not is_extended_resource_name(name):
            rule = "must be a qualified name with a domain, as nvidia.com/gpu, without kubernetes.io/ in it"
            self._wrong("source.devicePlugin.resourceName", rule)
        elif domain == BUDGET_DOMAIN or domain.endswith("." + BUDGET_DOMAIN):
            self._wrong("source.devicePlugin.resourceName", f"must lie outside {BUDGET_DOMAIN}, the domain of budgets")

    def _license(self, spec: dict[str, Any]) -> None:
        raw = self._raw.get("license")
        if raw is None:
            return
        license_: dict[str, Any] = {}
        raw = _mapping(raw)
        self._text(raw, license_, "license.secretName", required=True)
        if "secretName" in license_ and not is_dns_subdomain(license_["secretName"]):
            self._wrong("license.secretName", "must be a DNS subdomain, as every Secret's name is")
        rule = "must be 1 (NVIDIA vGPU) or 4 (NVIDIA vCS)"
        self._integer({"featureType": 1, **raw}, license_, "license.featureType", _FEATURE_TYPES.__contains__, rule)
        if self._raw.get("mode") != MODE_VGPU:
            self._wrong("license", f"must not be set unless mode is {MODE_VGPU}")
        spec["license"] = license_

    def _tolerations(self, spec: dict[str, Any]) -> None:
        raw = self._raw.get("tolerations")
        if raw is None:
            return
        if not isinstance(raw, Sequence) or isinstance(raw, str):
            self._wrong("tolerations", "must be a list")
            return
        if len(raw) > _MAX_TOLERATIONS:
            self._wrong("tolerations", f"must have at most {_MAX_TOLERATIONS} items")
        normal, parsed = [], []
        for index, item in enumerate(raw):
            if not isinstance(item, Mapping):
                self._wrong(f"tolerations[{index}]", "must be an object")
                continue
            entry = self._toleration(f"tolerations[{index}]", item)
            normal.append(entry)
            key, operator, value, effect = (entry.get(name, "") for name in _TOLERATION_FIELDS)
            parsed.append(Toleration(key, operator, value, effect, entry.get("tolerationSeconds")))
        spec["tolerations"] = normal
        self.tolerations = tuple(parsed)

    def _toleration(self, path: str, raw: Mapping[str, Any]) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        for key in _TOLERATION_FIELDS:
            value = raw.get(key)
            if isinstance(value, str):
                entry[key] = value
            elif value is not None:
                self._wrong(f"{path}.{key}", "must be a string")
        rule = "must be a whole number within int64"
        self._integer(raw, entry, f"{path}.tolerationSeconds", lambda value: -_INT64 <= value < _INT64, rule)
        for key, rule in _toleration_violations(entry):
            self._wrong(f"{path}.{key}", rule)
        return entry


def _toleration_violations(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What pod validation would refuse. Source: validation.ValidateTolerations, Lt/Gt gate off."""
    key, operator, value, effect = (entry.get(name, "") for name in _TOLERATION_FIELDS)
    wrong = []
    if key and not is_qualified_name(key):
        wrong.append(("key", "must be a qualified name"))
    if not key and operator != EXISTS:
        wrong.append(("operator", "must be Exists when key is empty"))
    if operator not in ("", EQUAL, EXISTS):
        wrong.append(("operator", "must be Equal or Exists"))
    if operator == EXISTS and value:
        wrong.append(("value", "must be empty when operator is Exists"))
    if operator in ("", EQUAL) and not is_label_value(value):
        wrong.append(("value", "must be a label value"))
    if effect not in ("", NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE):
        wrong.append(("effect", "must be NoSchedule, PreferNoSchedule or NoExecute"))
    if "tolerationSeconds" in entry and effect != NO_EXECUTE:
        wrong.append(("effect", "must be NoExecute when tolerationSeconds is set"))
    return wrong
