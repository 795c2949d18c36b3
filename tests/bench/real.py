"""Rows about 10,000 real pods in the real control plane; measured last, for they stay.

No kubelet runs: the pods are created bound to a node and stay Pending, which counts like running.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import uvloop

from apiserver.cluster import live
from apiserver.cluster.client import connect
from apiserver.cluster.reflector import Decoder
from apiserver.cluster.view import View
from apiserver.garbage import settle
from tests.bench.allocations import CRATE, VERSION, Run, find_allocations, run
from tests.bench.churn import PODS
from tests.bench.objects import class_object, device
from tests.bench.pods import raw_pod
from tests.bench.rows import Row, alternating
from tests.bench.stage import LIST, NODES_OF_FIRST, PAGE, Stage
from tests.cluster.binaries import UnavailableError
from tests.cluster.catalog import API, GROUP_VERSION
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.waiting import wait_for

COUNT: Final = 10_000
CREATORS: Final = 8
LISTS: Final = 200
NAIVE_ROUNDS: Final = 3
GPU_POD_EVERY: Final = 50
SYNC_SECONDS: Final = 120
POLL_SECONDS: Final = 0.005
LATENCY: Final = "latency of a list at 10,000 real pods, against none"
SYNC: Final = "first sync of 10,000 real pods, against only downloading them"
NAIVE: Final = "a list, against listing and decoding all of 10,000 real pods in Python"
ALLOCATIONS: Final = f"kubectl get gpuclasses, against {CRATE} at 10,000 real pods"
WORDS: Final = (LATENCY, SYNC, NAIVE, ALLOCATIONS)


def measure(stage: Stage, wanted: str, announce: Callable[[str], None]) -> Iterator[Row]:
    """Read, create the pods, and read again; `announce` is told before a build, and of a row that cannot be."""
    if not any(wanted in what for what in WORDS):
        return
    with stage.catalog.client() as reader:
        (before,) = alternating([lambda: _latency(reader)])
        requested = _requested(reader)
        started = time.monotonic()
        size = _create(stage) / COUNT / 1000
        seconds = time.monotonic() - started
        wait_for(lambda: _requested(reader) == requested + COUNT // GPU_POD_EVERY, "the catalog to count every pod")
        (after,) = alternating([lambda: _latency(reader)])
    control_plane = stage.control_plane
    sync, download = alternating(
        [partial(_sync, control_plane.kubeconfig), partial(_download, control_plane.client)], rounds=NAIVE_ROUNDS
    )
    (naive,) = alternating([lambda: _list_all(stage.control_plane.client)], rounds=NAIVE_ROUNDS, warm_up=False)
    note = f"created in {seconds:.0f} s, {size:.1f} kB each as stored, bound to {NODES_OF_FIRST} nodes"
    rows = (
        Row(LATENCY, after, before, 1.1, at_least=False, unit="ms", note=note),
        Row(SYNC, sync, download, 1.5, at_least=False, unit="s", note="pages of 500, as kube-apiserver makes them"),
        Row(NAIVE, after, naive, None, at_least=False, unit="ms", note="in one request of kube-apiserver's JSON"),
    )
    yield from (row for row in rows if wanted in row.what)
    if wanted in ALLOCATIONS:
        yield from _beside_allocations(stage.control_plane, announce)


def _beside_allocations(control_plane: ControlPlane, announce: Callable[[str], None]) -> Iterator[Row]:
    """Both as a user types them, each a process of its own; no row, and the reason said, without the other one."""
    try:
        program = find_allocations(announce)
    except UnavailableError as error:
        announce(f"No row {ALLOCATIONS!r}: {error}")
        return
    kubeconfig = control_plane.kubeconfig
    cache = f"--cache-dir={kubeconfig.with_suffix('.cache')}"
    kubectl = [str(control_plane.binaries.kubectl), cache, "get", f"{LIST}.{GROUP_VERSION.partition('/')[0]}"]
    allocations = [str(program), "--resource-name", device(0)]
    ours: list[Run] = []
    other: list[Run] = []

    def seconds(runs: list[Run], command: list[str], expected: str) -> float:
        runs.append(run(command, kubeconfig, expected))
        return runs[-1].seconds

    medians = alternating(
        [
            lambda: seconds(ours, kubectl, class_object(0)["metadata"]["name"]),
            lambda: seconds(other, allocations, device(0)),
        ],
        rounds=NAIVE_ROUNDS,
    )
    ours_mb, other_mb = (max(each.memory_mb for each in runs) for runs in (ours, other))
    note = f"{VERSION}; as processes, {ours_mb:.0f} MB and {other_mb:.0f} MB resident at most"
    yield Row(ALLOCATIONS, medians[0], medians[1], None, at_least=False, unit="s", note=note)


def _create(stage: Stage) -> int:
    """Create the pods side by side, and return how many bytes they are as kube-apiserver tells them."""

    def some(first: int) -> int:
        with stage.control_plane.user_client(ADMIN, ADMIN_GROUPS) as client:
            answers = [client.request("POST", PODS, _pod(number)) for number in range(first, COUNT, CREATORS)]
        for answer in answers:
            answer.raise_for_status()
        return sum(len(answer.body) for answer in answers)

    with ThreadPoolExecutor(CREATORS) as pool:
        return sum(pool.map(some, range(CREATORS)))


def _pod(number: int) -> Json:
    raw = raw_pod(number)
    metadata = {key: raw["metadata"][key] for key in ("name", "labels")}
    spec = {**raw["spec"], "nodeName": f"gpu-{number % NODES_OF_FIRST:03}"}
    main, *others = spec["containers"]
    for each in (main, *others):
        each["volumeMounts"] = []
    if number % GPU_POD_EVERY == 0:
        devices = {device(0): "1"}
        limits = {kind: {**main["resources"][kind], **devices} for kind in ("requests", "limits")}
        spec["containers"] = [{**main, "resources": limits}, *others]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _requested(reader: Client) -> int:
    return int(reader.get(f"{API}/{PAGE}")["capacity"]["requested"])


def _latency(reader: Client) -> float:
    """Median milliseconds of a list."""
    delays = []
    for _ in range(LISTS):
        started = time.perf_counter()
        reader.request("GET", f"{API}/{LIST}").raise_for_status()
        delays.append((time.perf_counter() - started) * 1000)
    return statistics.median(delays)


def _sync(kubeconfig: Path) -> float:
    """Seconds until a view of its own is complete, as a server makes it when it starts."""

    async def follow() -> float:
        followed = live.Live(View())
        async with await connect(kubeconfig, user_agent="bench", local=True) as client:
            started = time.perf_counter()
            tasks = [asyncio.create_task(followed.run(client)), asyncio.create_task(settle(followed.unsynced))]
            try:
                async with asyncio.timeout(SYNC_SECONDS):
                    while followed.unsynced() is not None:  # noqa: ASYNC110 # any condition, not one event
                        await asyncio.sleep(POLL_SECONDS)
                return time.perf_counter() - started
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(follow())


def _download(client: Client) -> float:
    """Seconds for the same pages, one after the other, thrown away."""
    started = time.perf_counter()
    for collection in (live.CLASSES, live.NODES, live.PODS):
        decoder: Decoder[Any] = Decoder(collection.item_type)
        query = {"limit": str(collection.page_size), "fieldSelector": collection.field_selector}
        while True:
            answer = client.request("GET", f"{collection.path}?{urlencode(query)}")
            answer.raise_for_status()
            query["continue"] = decoder.token_ahead(answer.body)
            if not query["continue"]:
                break
    return time.perf_counter() - started


def _list_all(client: Client) -> float:
    """Milliseconds until every pod is read, as one would who keeps no state."""
    started = time.perf_counter()
    items = json.loads(client.request("GET", "/api/v1/pods").body)["items"]
    if len(items) < COUNT:
        raise LookupError(f"only {len(items)} pods are there")
    return (time.perf_counter() - started) * 1000
