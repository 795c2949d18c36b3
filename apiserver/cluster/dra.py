"""Extended resource names that dynamic resource allocation maps to DeviceClasses.

Devices handed out that way stand in no node's allocatable, so they are not counted; that a name is mapped is told.
Source: KEP-5004, resource.k8s.io/v1 DeviceClass.spec.extendedResourceName (Kubernetes 1.37).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from apiserver.cluster.collection import Collection
from apiserver.cluster.objects import ObjectMeta


class DeviceClassSpec(msgspec.Struct, rename="camel"):
    """spec of a DeviceClass, as far as it is read."""

    extended_resource_name: str = ""


class DeviceClassObject(msgspec.Struct):
    """A DeviceClass."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


DEVICE_CLASSES: Final[Collection[DeviceClassObject]] = Collection(
    "deviceclasses", "/apis/resource.k8s.io/v1/deviceclasses", DeviceClassObject
)


def mapped_names(device_classes: Iterable[DeviceClassObject]) -> dict[str, tuple[str, ...]]:
    """For each extended resource name the DeviceClasses that map it, sorted."""
    mapped: dict[str, set[str]] = {}
    for each in device_classes:
        if each.spec.extended_resource_name:
            mapped.setdefault(each.spec.extended_resource_name, set()).add(each.metadata.name)
    return {name: tuple(sorted(classes)) for name, classes in mapped.items()}
