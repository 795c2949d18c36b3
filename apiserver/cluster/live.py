"""Following a cluster: one reflector for each kind, all telling the same view."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from apiserver.cluster.dra import DEVICE_CLASSES, DeviceClassObject, mapped_names
from apiserver.cluster.kubevirt import KUBEVIRTS, KubeVirtObject, permitted_names
from apiserver.cluster.loads import PodKey
from apiserver.cluster.objects import NodeObject, PodObject, PodReading, read_pod, to_node
from apiserver.cluster.optional import Known, OptionalKind
from apiserver.cluster.reflector import DEFAULT_PACE, Collection, Reflector, Transport
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from apiserver.gpu.offers import Permits

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


class _Classes:
    """Tells the view of GPUClasses."""

    def __init__(self, view: View) -> None:
        self._view = view

    def replace(self, objects: list[dict[str, Any]]) -> None:
        self._view.replace_classes(map(parse_class, objects))

    def apply(self, event_type: str, obj: dict[str, Any]) -> None:
        gpu_class = parse_class(obj)
        if event_type == "DELETED":
            self._view.delete_class(gpu_class.name)
        else:
            self._view.apply_class(gpu_class)

    def reject(self, name: str, _: str) -> None:
        self._view.delete_class(name)


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

    def replace(self, objects: list[PodReading]) -> None:
        self._view.replace_pods(each.pod for each in objects if each.pod is not None)
        self._view.loads.replace((each.key, each.load) for each in objects if each.load is not None)

    def apply(self, event_type: str, obj: PodReading) -> None:
        if event_type == "DELETED":
            self._forget(obj.key)
            return
        if obj.pod is None:
            self._view.delete_pod(obj.key)
        else:
            self._view.apply_pod(obj.pod)
        if obj.load is None:
            self._view.loads.delete(obj.key)
        else:
            self._view.loads.apply(obj.key, obj.load)

    def reject(self, name: str, _: str) -> None:
        namespace, _, pod_name = name.rpartition("/")
        self._forget((namespace, pod_name))

    def _forget(self, key: PodKey) -> None:
        self._view.delete_pod(key)
        self._view.loads.delete(key)


class Live:
    """Keeps a view equal to a cluster.

    Args:
        view: what is told.
        kubevirt: whether KubeVirt's table decides what is permitted.
        max_staleness: age in seconds beyond which what is known is not told any more.
    """

    def __init__(self, view: View, *, kubevirt: bool = False, max_staleness: float = DEFAULT_PACE.stale) -> None:
        self._view = view
        self._pace = replace(DEFAULT_PACE, stale=max_staleness)
        self._reflectors: tuple[Reflector[Any], ...] = ()
        self._kubevirts = OptionalKind(KUBEVIRTS, self._tell_permits) if kubevirt else None
        self._device_classes = OptionalKind(DEVICE_CLASSES, self._tell_mapped)

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
            # Nodes first: a pod that is known before its node would show devices as free that are not.
            await nodes.wait_synced()
            group.create_task(pods.run(), name="reflector pods")
            await pods.wait_synced()
            self._view.announce()

    def unsynced(self) -> str | None:
        """Why no true answer can be given yet, or None when every list was complete once."""
        if not self._reflectors:
            return "the server is not connected to the cluster yet"
        waiting = [_describe(reflector) for reflector in self._reflectors if not reflector.synced]
        if self._kubevirts is not None and not self._kubevirts.settled():
            waiting.append(KUBEVIRTS.name)
        return f"not listed yet: {'; '.join(waiting)}" if waiting else None

    def stale(self) -> str | None:
        """What may be older than it may be told, or None."""
        old = [
            f"{each.collection.name} ({each.age:.0f} s old{f': {each.last_error}' if each.last_error else ''})"
            for each in self._reflectors
            if each.age is not None and each.age > self._pace.stale
        ]
        return f"out of date: {'; '.join(old)}" if old else None

    def untold(self) -> str | None:
        """Why no true answer can be given now, or None when one can."""
        return self.unsynced() or self.stale()

    def kubevirt_problem(self) -> str | None:
        """Why KubeVirt's table may be out of date, or None."""
        return self._kubevirts.known.problem if self._kubevirts is not None else None

    def refused(self) -> str | None:
        """What the cluster refuses to list, with its words: waiting will not help by itself."""
        refused = [_describe(each) for each in self._reflectors if not each.synced and each.last_status in _REFUSALS]
        return "; ".join(refused) or None

    def _tell_permits(self, known: Known[KubeVirtObject]) -> None:
        names = None if known.objects is None else permitted_names(known.objects)
        self._view.set_permits(Permits(names, stale=known.problem is not None))

    def _tell_mapped(self, known: Known[DeviceClassObject]) -> None:
        self._view.set_mapped(mapped_names(known.objects or ()))


async def follow_until(live: Live, transport: Transport, done: Callable[[], bool], timeout_seconds: float) -> None:
    """Follow the cluster until `done`, or for so long.

    Raises:
        TimeoutError: it was not done in time.
    """
    async with asyncio.timeout(timeout_seconds):
        task = asyncio.create_task(live.run(transport))
        try:
            while not done():
                await asyncio.wait([task], timeout=0.02)
                if task.done():
                    task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _describe(reflector: Reflector[Any]) -> str:
    name = reflector.collection.name
    return f"{name} ({reflector.last_error})" if reflector.last_error else name
