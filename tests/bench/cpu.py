"""Rows about a watch line: the CPU from its bytes to the updated view, TLS and socket apart, in this process."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from apiserver.cluster.live import CLASSES as STORED_CLASSES
from apiserver.cluster.live import Live
from apiserver.cluster.view import View
from tests.bench.objects import class_object, heartbeat, node_object, pod_object
from tests.bench.rows import ROUNDS, Row
from tests.bench.transport import Replayed

NODES_PATH: Final = "/api/v1/nodes"
PODS_PATH: Final = "/api/v1/pods"
SYNC_SECONDS: Final = 120
EVENTS: Final = 2_000
NODES: Final = 5_000
GPU_NODES: Final = 500
CLASSES: Final = 50
WAKES: Final = "node heartbeats that wake somebody"


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of watch line.

    Attributes:
        what: it is.
        path: of the collection it comes from.
        goal: most µs it may take.
        make: one line of it, by number.
    """

    what: str
    path: str
    goal: float
    make: Callable[[int], bytes]


def _line(type_: str, obj: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"


def _churn(index: int, *, gpu: bool) -> bytes:
    pair = index // 2
    type_ = "DELETED" if index % 2 else "ADDED"
    return _line(type_, pod_object(f"churn-{pair}", pair % GPU_NODES, version=index + 2, gpu=gpu))


LINES: Final = (
    Line("CPU of a GPU pod's line", PODS_PATH, 50, lambda index: _churn(index, gpu=True)),
    Line("CPU of another pod's line", PODS_PATH, 20, lambda index: _churn(index, gpu=False)),
    Line(
        "CPU of a node heartbeat's line",
        NODES_PATH,
        30,
        lambda index: _line("MODIFIED", heartbeat(node_object(index % NODES, gpu=index % NODES < GPU_NODES), index)),
    ),
)


def measure(wanted: str) -> Iterator[Row]:
    """Take the lines whose rows are wanted; also whether heartbeats wake anybody."""
    for line in LINES:
        if wanted in line.what or (wanted in WAKES and line.path == NODES_PATH):
            yield from asyncio.run(_measure(line, wanted))


async def _measure(line: Line, wanted: str) -> list[Row]:
    objects = {
        STORED_CLASSES.path: [class_object(index) for index in range(CLASSES)],
        NODES_PATH: [node_object(index, gpu=index < GPU_NODES) for index in range(NODES)],
    }
    transport = Replayed(objects)
    view = View()
    live = Live(view)
    synced = asyncio.Event()

    wakes: list[None] = []

    def look() -> None:
        wakes.append(None)
        if live.unsynced() is None:
            synced.set()
        else:
            changes.take()

    changes = view.follow(look)
    task = asyncio.create_task(live.run(transport))
    try:
        async with asyncio.timeout(SYNC_SECONDS):
            await synced.wait()
        if len(list(view.names())) != CLASSES:
            raise LookupError(f"the view has not {CLASSES} classes, so what is measured is not what the row says")
        lines = [line.make(index) for index in range(EVENTS)]
        times: list[float] = []
        wakes.clear()
        for _ in range(ROUNDS + 1):
            changes.take()
            times.append(await _cpu_seconds(transport.feed(line.path, lines)) / EVENTS * 1e6)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    size = sum(map(len, lines)) / len(lines) / 1000
    note = f"{size:.1f} kB each, {NODES:,} nodes, {GPU_NODES} with GPUs, {CLASSES} classes"
    rows = []
    if wanted in line.what:
        median = statistics.median(times[1:])
        rows.append(Row(line.what, median, None, line.goal, at_least=False, unit="µs", note=note))
    if line.path == NODES_PATH and wanted in WAKES:
        note = f"of {EVENTS * (ROUNDS + 1):,}"
        rows.append(Row(WAKES, len(wakes), None, 0, at_least=False, unit="", note=note))
    return rows


async def _cpu_seconds(work: Awaitable[None]) -> float:
    started = time.process_time()
    await work
    return time.process_time() - started
