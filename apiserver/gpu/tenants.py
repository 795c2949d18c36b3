"""A namespace as its tenant's home: what it is entitled to, what it may use, and what licences are named in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from apiserver.gpu.classes import MODE_VGPU, GPUClass
from apiserver.gpu.quota import TOTAL, Budget

CLASS_PLACEHOLDER: Final = "{class}"


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace.

    Attributes:
        name: metadata.name.
        uid: metadata.uid, or "" when unknown.
        creation_timestamp: in RFC 3339 UTC, or "" when unknown.
        labels: metadata.labels.
        terminating: deletion was asked for, so that nothing new can be made in it.
    """

    name: str
    uid: str = ""
    creation_timestamp: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace with its budgets, by class name or TOTAL; a key without a ResourceQuota has no limit."""

    namespace: Namespace
    budgets: Mapping[str, Budget] = field(default_factory=dict)

    def budgets_of(self, class_name: str) -> tuple[Budget | None, Budget | None]:
        """The budget of one class, and that of all together; None for no limit."""
        return self.budgets.get(class_name), self.budgets.get(TOTAL)


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What the platform has agreed on with whoever makes its namespaces. It has published no names yet: these are ours.

    Attributes:
        entitlement: label, key and value, of the namespaces that may order vGPUs. Whole cards need none.
        license_secret_name: how the Secret with a class's licence is named in a tenant's namespace; {class} stands for
            the name of the class.
    """

    entitlement: tuple[str, str] = ("gpuclass.cozystack.io/vgpu", "true")
    license_secret_name: str = f"gpuclass-license-{CLASS_PLACEHOLDER}"

    def is_entitled(self, gpu_class: GPUClass, namespace: Namespace) -> bool:
        """Whether the namespace may order the class, were it offered and within budget."""
        key, value = self.entitlement
        return gpu_class.spec.get("mode") != MODE_VGPU or namespace.labels.get(key) == value

    def secret_of(self, class_name: str) -> str:
        """The name of the tenant's own Secret with the licence of a class. It is never read."""
        return self.license_secret_name.replace(CLASS_PLACEHOLDER, class_name)
