"""KubeVirt's table of permitted host devices.

Source: KubeVirt v1 PermittedHostDevices, and validatePermittedHostDevices of virt-controller (August 2026): without a
table every device is permitted, with an empty one none.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from apiserver.cluster.collection import Collection
from apiserver.cluster.objects import ObjectMeta

SCHEDULABLE_LABEL: Final = "kubevirt.io/schedulable"
"""The label every virt-launcher selects its node by; virt-handler's heartbeat sets it."""


class HostDevice(msgspec.Struct, rename="camel"):
    """One entry of any of the tables."""

    resource_name: str = ""


class PermittedHostDevices(msgspec.Struct, rename="camel"):
    """The three tables; a launcher may ask for a name in any of them."""

    pci_host_devices: list[HostDevice] | None = None
    mediated_devices: list[HostDevice] | None = None
    usb: list[HostDevice] | None = None


class Configuration(msgspec.Struct, rename="camel"):
    """spec.configuration of a KubeVirt, as far as it is read."""

    permitted_host_devices: PermittedHostDevices | None = None


class KubeVirtSpec(msgspec.Struct):
    """spec of a KubeVirt."""

    configuration: Configuration = msgspec.field(default_factory=Configuration)


class KubeVirtObject(msgspec.Struct):
    """A KubeVirt: the installation of KubeVirt in a cluster."""

    metadata: ObjectMeta
    spec: KubeVirtSpec = msgspec.field(default_factory=KubeVirtSpec)


KUBEVIRTS: Final[Collection[KubeVirtObject]] = Collection("kubevirts", "/apis/kubevirt.io/v1/kubevirts", KubeVirtObject)


def permitted_names(kubevirts: Iterable[KubeVirtObject]) -> frozenset[str] | None:
    """The resource names that VMs may ask for; None when there is no table, so that nothing is checked.

    A cluster has one KubeVirt. Should there be more, a name is permitted if any of them permits it.
    """
    tables = [each.spec.configuration.permitted_host_devices for each in kubevirts]
    if not tables or None in tables:
        return None
    return frozenset(
        device.resource_name
        for table in tables
        if table is not None
        for device in (*(table.pci_host_devices or ()), *(table.mediated_devices or ()), *(table.usb or ()))
    )
