"""Following a cluster: one reflector for each kind, all telling the same view."""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from apiserver.cluster.collection import Collection
from apiserver.cluster.dra import DEVICE_CLASSES, DeviceClassObject, mapped_names
from apiserver.cluster.kubevirt import KUBEVIRTS, KubeVirtObject, permitted_names
from apiserver.cluster.loads import Load, PodKey
from apiserver.cluster.namespaces import NAMESPACES, QUOTAS, NamespaceObject, QuotaObject, to_namespace, to_quota
from apiserver.cluster.objects import NodeObject, PodObject, PodReading, read_pod, to_node
from apiserver.cluster.optional import Known, OptionalKind
from apiserver.cluster.reflector import DEFAULT_PACE, Reflector, Transport
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.classes import GPUClass, parse_class, unreadable_class
from apiserver.gpu.offers import Permits
from apiserver.gpu.pods import Pod

CLASSES: Final[Collection[dict[str, Any]]] = Collection(
    "gpuclasses", "/apis/cozystack.io/v1alpha1/gpuclasses", dict[str, Any]
)
NODES: Final[Collection[NodeObject]] = Collection("nodes", "/api/v1/nodes", NodeObject)
PODS: Final[Collection[PodReading]] = Collection(
    "pods",
    "/api/v1/pods",
    PodObject,
    # A pod in a terminal phase weighs nothing; leaving it out here makes its end a DELETED event.
    field_selector="status.phase!=Succeeded,status.phase!=Failed",
    read=read_pod,
)
_REFUSALS: Final = (401, 403, 404)
_log = logging.getLogger(__name__)


class _Classes:
    """Tells the view of GPUClasses."""

    def __init__(self, view: View) -> None:
        self._view = view

    def replace(self, objects: list[dict[str, Any]]) -> None:
        self._view.replace_classes(each for each in map(_named_class, objects) if each is not None)

    def apply(self, event_type: str, obj: dict[str, Any]) -> None:
        gpu_class = _named_class(obj)
        if gpu_class is None:
            return
        if event_type == "DELETED":
            self._view.delete_class(gpu_class.name)
        else:
            self._view.apply_class(gpu_class)

    def reject(self, name: str, reason: str) -> None:
        if name:
            self._view.apply_class(unreadable_class(name, reason))


def _named_class(obj: dict[str, Any]) -> GPUClass | None:
    """The class, or None when it has no name to serve it under."""
    try:
        return parse_class(obj)
    except ValueError as error:
        _log.warning("gpuclasses: an object is left out: %s", error)
        return None


class _Nodes:
    """Tells the view of Nodes."""

    def __init__(self, view: View) -> None:
        self._view = view

    def replace(self, objects: list[NodeObject]) -> None:
        self._view.replace_nodes(map(to_node, objects))

    def apply(self, event_type: str, obj: NodeObject) -> None:
        if event_type == "DELETED":
            self._view.delete_node(obj.metadata.name)
        else:
            self._view.apply_node(to_node(obj))

    def reject(self, name: str, _: str) -> None:
        self._view.delete_node(name)


class _Pods:
    """Tells the view of Pods."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._unlisted: dict[PodKey, Pod] = {}
        self._unlisted_loads: dict[PodKey, Load] = {}

    def replace(self, objects: list[PodReading]) -> None:
        self._unlisted = self._view.replace_pods(each.pod for each in objects if each.pod is not None)
        loads = ((each.key, each.load) for each in objects if each.load is not None)
        self._unlisted_loads = self._view.loads.replace(loads)

    def apply(self, event_type: str, obj: PodReading) -> None:
        self._unlisted.clear()  # a list and its rejections come before any change
        self._unlisted_loads.clear()
        is_gone = event_type == "DELETED"
        if is_gone or obj.pod is None:
            self._view.delete_pod(obj.key)
        else:
            self._view.apply_pod(obj.pod)
        if is_gone or obj.load is None:
            self._view.loads.delete(obj.key)
        else:
            self._view.loads.apply(obj.key, obj.load)

    def reject(self, name: str, _: str) -> None:
        """Keep what was last known: without it its devices would seem free."""
        namespace, _, pod_name = name.rpartition("/")
        key = namespace, pod_name
        last_known, last_load = self._unlisted.pop(key, None), self._unlisted_loads.pop(key, None)
        if last_known is not None:
            self._view.apply_pod(last_known)
        if last_load is not None:
            self._view.loads.apply(key, last_load)
        self._view.reject_pod(key)


class _Namespaces:
    """Tells the tenancy of Namespaces."""

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy

    def replace(self, objects: list[NamespaceObject]) -> None:
        self._tenancy.replace_namespaces(map(to_namespace, objects))

    def apply(self, event_type: str, obj: NamespaceObject) -> None:
        if event_type == "DELETED":
            self._tenancy.delete_namespace(obj.metadata.name)
        else:
            self._tenancy.apply_namespace(to_namespace(obj))

    def reject(self, name: str, _: str) -> None:
        self._tenancy.delete_namespace(name)


class _Quotas:
    """Tells the tenancy of ResourceQuotas; those that limit no devices are not kept."""

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy

    def replace(self, objects: list[QuotaObject]) -> None:
        self._tenancy.replace_quotas(quota for quota in map(to_quota, objects) if quota is not None)

    def apply(self, event_type: str, obj: QuotaObject) -> None:
        quota = None if event_type == "DELETED" else to_quota(obj)
        if quota is None:
            self._tenancy.delete_quota(obj.metadata.namespace, obj.metadata.name)
        else:
            self._tenancy.apply_quota(quota)

    def reject(self, name: str, _: str) -> None:
        """Keep what was last known: without it there would be no limit."""


class Live:
    """Keeps a view equal to a cluster, and a tenancy if there is one.

    Args:
        view: what is told.
        tenancy: what is told of namespaces and budgets; None when nobody asks for them.
        kubevirt: whether KubeVirt's table decides what is permitted.
        max_staleness: age in seconds beyond which what is known is not told any more.
    """

    def __init__(
        self,
        view: View,
        *,
        tenancy: Tenancy | None = None,
        kubevirt: bool = False,
        max_staleness: float = DEFAULT_PACE.stale,
    ) -> None:
        self._view = view
        self._tenancy = tenancy
        self._pace = replace(DEFAULT_PACE, stale=max_staleness)
        self._reflectors: tuple[Reflector[Any], ...] = ()
        self._tenant_reflectors: tuple[Reflector[Any], ...] = ()
        self._kubevirts = OptionalKind(KUBEVIRTS, self._tell_permits) if kubevirt else None
        self._device_classes = OptionalKind(DEVICE_CLASSES, self._tell_mapped)
        self._true_until = -math.inf

    async def run(self, transport: Transport) -> None:
        """Follow the cluster until cancelled."""
        classes = Reflector(transport, CLASSES, _Classes(self._view), pace=self._pace)
        nodes = Reflector(transport, NODES, _Nodes(self._view), pace=self._pace)
        pods = Reflector(transport, PODS, _Pods(self._view), pace=self._pace)
        self._reflectors = (classes, nodes, pods)
        async with asyncio.TaskGroup() as group:
            group.create_task(classes.run(), name="reflector gpuclasses")
            group.create_task(nodes.run(), name="reflector nodes")
            group.create_task(self._device_classes.run(transport), name="device classes")
            if self._kubevirts is not None:
                group.create_task(self._kubevirts.run(transport), name="kubevirts")
            if self._tenancy is not None:
                group.create_task(self._follow_tenants(transport, self._tenancy), name="tenants")
            # Nodes first: a pod that is known before its node would show devices as free that are not.
            await nodes.wait_synced()
            group.create_task(pods.run(), name="reflector pods")
            await pods.wait_synced()
            self._view.feed.announce()

    async def _follow_tenants(self, transport: Transport, tenancy: Tenancy) -> None:
        """Follow what only offers to tenants need; what is refused here keeps nobody else waiting."""
        namespaces = Reflector(transport, NAMESPACES, _Namespaces(tenancy), pace=self._pace)
        quotas = Reflector(transport, QUOTAS, _Quotas(tenancy), pace=self._pace)
        self._tenant_reflectors = (namespaces, quotas)
        async with asyncio.TaskGroup() as group:
            group.create_task(namespaces.run(), name="reflector namespaces")
            group.create_task(quotas.run(), name="reflector resourcequotas")
            await namespaces.wait_synced()
            await quotas.wait_synced()
            tenancy.feed.announce()

    def reflectors(self) -> list[Reflector[Any]]:
        """Everything that follows a collection, as far as it has begun."""
        optional = () if self._kubevirts is None else self._kubevirts.reflectors()
        return [*self._reflectors, *self._tenant_reflectors, *self._device_classes.reflectors(), *optional]

    def unsynced(self) -> str | None:
        """Why no true answer can be given yet, or None when every list was complete once."""
        if not self._reflectors:
            return "the server is not connected to the cluster yet"
        waiting = [_describe(reflector) for reflector in self._reflectors if not reflector.synced]
        if self._kubevirts is not None and not self._kubevirts.settled():
            waiting.append(KUBEVIRTS.name)
        return _not_listed(waiting)

    def stale(self) -> str | None:
        """What may be older than it may be told, or None."""
        return _out_of_date(self._reflectors, self._pace.stale)

    def untold(self) -> str | None:
        """Why no true answer about classes can be given now, or None when one can.

        Every request asks. What is complete stays so, and is new enough until the oldest of it is too old.
        """
        if asyncio.get_running_loop().time() <= self._true_until:
            return None
        problem = self.unsynced() or self.stale()
        if problem is None:
            self._true_until = self._pace.stale + min(each.told_until or -math.inf for each in self._reflectors)
        return problem

    def tenants_problem(self) -> str | None:
        """Why nothing true can be said of namespaces and budgets now, or None when it can, or nobody asks for it."""
        if self._tenancy is not None and not self._tenant_reflectors:
            return "the server is not connected to the cluster yet"
        waiting = [_describe(each) for each in self._tenant_reflectors if not each.synced]
        return _not_listed(waiting) or _out_of_date(self._tenant_reflectors, self._pace.stale)

    def tenants_untold(self) -> str | None:
        """Why no true answer to a tenant can be given now, or None when one can."""
        return self.untold() or self.tenants_problem()

    def awaited(self) -> str | None:
        """What a replica should wait for before it is sent requests; what tenants need is not, once it is refused."""
        refused = any(not each.synced and each.last_status in _REFUSALS for each in self._tenant_reflectors)
        is_waiting = not all(each.synced for each in self._tenant_reflectors)
        return self.unsynced() or (self.tenants_problem() if is_waiting and not refused else None)

    def kubevirt_problem(self) -> str | None:
        """Why KubeVirt's table may be out of date, or None."""
        return self._kubevirts.known.problem if self._kubevirts is not None else None

    def needed(self) -> Sequence[Reflector[Any]]:
        """What follows the collections without which no answer can be given, as far as it has begun."""
        return self._reflectors

    def complete(self) -> bool:
        """Whether everything was asked for at least once, also what only the page of a class tells."""
        return self.unsynced() is None and self._device_classes.settled()

    def _tell_permits(self, known: Known[KubeVirtObject]) -> None:
        names = None if known.objects is None else permitted_names(known.objects)
        self._view.set_permits(Permits(names, stale=known.problem is not None))

    def _tell_mapped(self, known: Known[DeviceClassObject]) -> None:
        self._view.set_mapped(mapped_names(known.objects or ()))


def _not_listed(waiting: Sequence[str]) -> str | None:
    return f"not listed yet: {'; '.join(waiting)}" if waiting else None


def _out_of_date(reflectors: Sequence[Reflector[Any]], stale: float) -> str | None:
    old = [
        f"{each.collection.name} ({each.age:.0f} s old{f': {each.last_error}' if each.last_error else ''})"
        for each in reflectors
        if each.is_older(stale)
    ]
    return f"out of date: {'; '.join(old)}" if old else None


def _describe(reflector: Reflector[Any]) -> str:
    name = reflector.collection.name
    return f"{name} ({reflector.last_error})" if reflector.last_error else name
