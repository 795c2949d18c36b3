"""Bringing invented clusters onto a control plane, and filling them with probes until the scheduler finds no node.

Many clusters are there at once. Each has a resource name of its own, and its probes select its Nodes by label.
"""

import contextlib
import json
import queue
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Self, TypeVar
from urllib.parse import quote

from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN_GROUPS, ControlPlane
from tests.cluster.oracle.dice import Dice
from tests.cluster.oracle.drafting import CLUSTER, NAMESPACES, ClusterDraft, NodeDraft, PodDraft
from tests.cluster.oracle.judging import Observation, probes_needed
from tests.cluster.waiting import wait_for
from tests.cluster.workload import NODES, ensure_namespace, pod, pod_path

T = TypeVar("T")

CONNECTIONS = 16
PROBES = "oracle-probes"
SETTLE_SECONDS = 1.0
"""From the last object to the first probe: the scheduler's informers hear of Nodes and Pods independently."""

PROBES_TIMEOUT_SECONDS = 300
POLL_SECONDS = 0.25
MOST_ROUNDS = 4
"""Each round more than doubles the probes of a cluster that took all of them; one is enough if the model is right."""


class Crew:
    """Several connections that share work."""

    def __init__(self, control_plane: ControlPlane, connections: int = CONNECTIONS) -> None:
        self._stack = contextlib.ExitStack()
        self._free: queue.SimpleQueue[Client] = queue.SimpleQueue()
        for _ in range(connections):
            self._free.put(self._stack.enter_context(control_plane.user_client("oracle", ADMIN_GROUPS)))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(connections))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def each(self, work: Callable[[Client, T], object], items: Iterable[T]) -> None:
        """Do the work for each item, in no certain order; the first error is raised when all are done."""
        for _ in self._pool.map(lambda item: self._lend(work, item), items):
            pass

    def _lend(self, work: Callable[[Client, T], object], item: T) -> None:
        client = self._free.get()
        try:
            work(client, item)
        finally:
            self._free.put(client)


def observe(crew: Crew, client: Client, drafts: Sequence[ClusterDraft]) -> list[Observation]:
    """Make the clusters, fill them with probes, and say what was placed.

    Afterwards the Nodes and the probes without one are gone. All other Pods stay, bound to nodes that are no more:
    that costs less than to delete them, as long as names do not come twice.

    Args:
        crew: what makes and deletes objects.
        client: what reads them.
        drafts: the clusters.
    """
    for name in (*NAMESPACES, PROBES):
        ensure_namespace(client, name)
    crew.each(_make, _in_some_order(drafts))
    time.sleep(SETTLE_SECONDS)
    observations = _read(client, drafts)
    _fill(crew, client, drafts, {each.cluster: probes_needed(each) for each in observations})
    placed, waiting = _found(client, drafts)
    _clear(crew, drafts, waiting)
    refused = Counter(_cluster_of(each) for each in waiting)
    return [replace(each, placed=placed[each.cluster], refused=refused[each.cluster]) for each in observations]


def _in_some_order(drafts: Iterable[ClusterDraft]) -> list[NodeDraft | PodDraft]:
    """Everything to be made, mixed as it may come on a real cluster: some Pods are there before their Node."""
    everything: list[NodeDraft | PodDraft] = []
    for draft in drafts:
        everything += draft.nodes
        everything += draft.pods
    return Dice("the order of creation").shuffled(everything)


def _make(client: Client, draft: NodeDraft | PodDraft) -> None:
    if isinstance(draft, NodeDraft):
        path = f"{NODES}/{client.post(NODES, draft.manifest)['metadata']['name']}"
        for subresource, patch in draft.patches:
            client.patch(f"{path}{subresource}", patch)
        return
    path = pod_path(draft.manifest)
    client.post(path.rpartition("/")[0], draft.manifest)
    if draft.status not in ({}, {"phase": "Pending"}):
        client.patch(f"{path}/status", {"status": draft.status})
    if draft.grace_seconds is not None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": draft.grace_seconds}
        client.request("DELETE", path, options).raise_for_status()


def _read(client: Client, drafts: Sequence[ClusterDraft]) -> list[Observation]:
    """The clusters as kube-apiserver now has them, before any probe."""
    items = defaultdict[str, list[Json]](list)
    for kind, path in (("Node", NODES), *(("Pod", _pods_of(namespace)) for namespace in NAMESPACES)):
        for item in client.items(f"{path}?{_selecting(drafts)}"):
            item["metadata"].pop("managedFields", None)
            items[_cluster_of(item)].append({"apiVersion": "v1", "kind": kind, **item})
    return [
        Observation(
            cluster=draft.name,
            devices=draft.devices,
            selector=draft.selector,
            beside=draft.beside,
            snapshot=json.dumps({"apiVersion": "v1", "kind": "List", "items": [draft.gpu_class, *items[draft.name]]}),
        )
        for draft in drafts
    ]


def _fill(crew: Crew, client: Client, drafts: Sequence[ClusterDraft], needed: Mapping[str, int]) -> None:
    """Create probes until each cluster has one for which the scheduler found no node, or was given very many."""
    lacking = {draft.name: draft for draft in drafts}
    numbers = count()
    for attempt in range(MOST_ROUNDS):
        probes = [
            _probe(draft, next(numbers)) for name, draft in lacking.items() for _ in range(needed[name] << attempt)
        ]
        crew.each(lambda each, probe: each.post(_pods_of(PROBES), probe), Dice("the order of probes").shuffled(probes))
        _wait_until_judged(client, drafts)
        for waiting in _waiting(client, drafts):
            lacking.pop(_cluster_of(waiting), None)
        if not lacking:
            break


def _probe(draft: ClusterDraft, number: int) -> Json:
    """A Pod as an instance of the class would be, but for what keeps it inside its cluster."""
    spec = {"tolerations": draft.gpu_class["spec"]["tolerations"], "nodeSelector": {CLUSTER: draft.name}}
    requests = {draft.resource_name: draft.devices, **(draft.beside or {})}
    labels = {CLUSTER: draft.name}
    return pod(f"{draft.name}-{number}", requests=requests, namespace=PROBES, labels=labels, spec=spec)


def _wait_until_judged(client: Client, drafts: Sequence[ClusterDraft]) -> None:
    """Wait until every probe is bound or refused, and the same ones are refused when asked again."""
    before: set[str] | None = None

    def is_settled() -> bool:
        nonlocal before
        waiting = _waiting(client, drafts)
        names = {each["metadata"]["name"] for each in waiting}
        is_same, before = names == before, names
        return is_same and all(map(_is_refused, waiting))

    wait_for(is_settled, "every probe to be judged", timeout_seconds=PROBES_TIMEOUT_SECONDS, poll_seconds=POLL_SECONDS)


def _is_refused(raw_pod: Json) -> bool:
    conditions = raw_pod["status"].get("conditions", ())
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)


def _waiting(client: Client, drafts: Sequence[ClusterDraft]) -> list[Json]:
    """The probes without a node."""
    return client.items(f"{_pods_of(PROBES)}?fieldSelector=spec.nodeName=&{_selecting(drafts)}")


def _found(client: Client, drafts: Sequence[ClusterDraft]) -> tuple[defaultdict[str, Counter[str]], list[Json]]:
    """How many probes are on each node, by cluster, and the probes without a node."""
    placed = defaultdict[str, Counter[str]](Counter)
    waiting = []
    for item in client.items(f"{_pods_of(PROBES)}?{_selecting(drafts)}"):
        node_name = item["spec"].get("nodeName")
        if node_name:
            placed[_cluster_of(item)][node_name] += 1
        else:
            waiting.append(item)
    return placed, waiting


def _clear(crew: Crew, drafts: Iterable[ClusterDraft], waiting: Iterable[Json]) -> None:
    """Delete the probes that wait, and then the Nodes: whatever takes the scheduler's time."""
    crew.each(Client.delete, map(pod_path, waiting))
    crew.each(
        Client.delete, [f"{NODES}/{each.manifest['metadata']['name']}" for draft in drafts for each in draft.nodes]
    )


def _selecting(drafts: Iterable[ClusterDraft]) -> str:
    """The query parameter that selects the objects of these clusters."""
    names = ",".join(draft.name for draft in drafts)
    return f"labelSelector={quote(f'{CLUSTER} in ({names})')}"


def _cluster_of(item: Json) -> str:
    name: str = item["metadata"]["labels"][CLUSTER]
    return name


def _pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
