"""Rows about a growing cluster, from a server that replays it: reads, the first sync, and memory."""

import contextlib
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.objects import CLASS_COUNT
from tests.bench.replay import CLASSES_PATH, FIRST_PATH, NODES_PATH, PODS_PATH
from tests.bench.rows import Row, alternating
from tests.bench.watchers import resident_kilobytes
from tests.cluster.processes import Process, free_ports

NODES: Final = 5_000
GPU_NODES: Final = 500
SIZES: Final = (1_000, 10_000, 100_000)
LISTS: Final = 300
SYNC_SECONDS: Final = 300
LATENCY: Final = "latency of a list at {:,} pods, against {:,}"
SYNC: Final = "first sync of 100,000 pods, against only downloading them"
MEMORY: Final = "resident memory at 100,000 pods"
PEAK: Final = "peak of resident memory at 100,000 pods"
WORDS: Final = (*(LATENCY.format(size, SIZES[0]) for size in SIZES[1:]), SYNC, MEMORY, PEAK)
NOTE: Final = f"replayed; {NODES:,} nodes, {GPU_NODES} with GPUs; plain HTTP"


@dataclass(frozen=True, slots=True)
class Size:
    """A server of ours beside a replayed cluster.

    Attributes:
        port: ours.
        pid: of our process.
        replay_port: of the replayed cluster.
        sync_seconds: from its first list to the end of the first sync.
    """

    port: int
    pid: int
    replay_port: int
    sync_seconds: float


def measure(wanted: str) -> Iterator[Row]:
    """Serve clusters of three sizes side by side, and read from them in turn."""
    if not any(wanted in what for what in WORDS):
        return
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        sizes = [stack.enter_context(replayed(directory, pods)) for pods in SIZES]
        medians = alternating([partial(_latency, size.port) for size in sizes])
        largest = sizes[-1]
        memory = resident_kilobytes(largest.pid) / 1000
        peak = resident_kilobytes(largest.pid, peak=True) / 1000
        downloads = statistics.median(_download(largest.replay_port) for _ in range(3))
    rows = [
        Row(LATENCY.format(pods, SIZES[0]), median, medians[0], 1.1, at_least=False, unit="ms", note=NOTE)
        for pods, median in zip(SIZES[1:], medians[1:], strict=True)
    ]
    rows.append(Row(SYNC, largest.sync_seconds, downloads, 1.5, at_least=False, unit="s", note=NOTE))
    rows.append(Row(MEMORY, memory, None, 250, at_least=False, unit="MB", note=NOTE))
    rows.append(Row(PEAK, peak, None, None, at_least=False, unit="MB", note=f"{NOTE}; until after the reads"))
    yield from (row for row in rows if wanted in row.what)


@contextmanager
def replayed(directory: Path, pods: int) -> Iterator[Size]:
    """A replayed cluster of so many pods, and a server of ours that follows it."""
    port, replay_port = free_ports(2)
    kubeconfig = directory / f"kubeconfig-{pods}"
    cluster = {"name": "replay", "cluster": {"server": f"http://127.0.0.1:{replay_port}"}}
    context = {"name": "replay", "context": {"cluster": "replay", "user": "replay"}}
    config = {"clusters": [cluster], "users": [{"name": "replay", "user": {}}], "contexts": [context]}
    head = {"apiVersion": "v1", "kind": "Config", "current-context": "replay"}
    kubeconfig.write_text(json.dumps({**head, **config}))
    counts = map(str, (replay_port, NODES, GPU_NODES, pods, CLASS_COUNT))
    replay = Process("replay", (sys.executable, "-m", "tests.bench.replay", *counts), directory / f"replay-{pods}.log")
    with contextlib.ExitStack() as stack:
        stack.callback(replay.stop)
        replay.wait_until(lambda: _get(replay_port, FIRST_PATH)[0] == 200)
        flags = ("serve", "--local", f"--kubeconfig={kubeconfig}", f"--insecure-port={port}")
        ours = Process("ours", (sys.executable, "-m", "apiserver", *flags), directory / f"ours-{pods}.log")
        stack.callback(ours.stop)
        ours.wait_until(lambda: _get(port, "/readyz")[0] == 200, timeout_seconds=SYNC_SECONDS)
        sync_seconds = time.time() - float(_get(replay_port, FIRST_PATH)[1])
        yield Size(port, ours.pid, replay_port, sync_seconds)


def _latency(port: int) -> float:
    """Median milliseconds of a list."""
    delays = []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        for _ in range(LISTS):
            started = time.perf_counter()
            connection.request("GET", "/apis/catalog.cozystack.io/v1alpha1/gpuclasses")
            answer = connection.getresponse()
            body = answer.read()
            delays.append((time.perf_counter() - started) * 1000)
            if answer.status != 200:
                raise ValueError(f"a list was answered with {answer.status}: {body[:200]!r}")
    return statistics.median(delays)


def _download(port: int) -> float:
    """Seconds for all pages, one after the other, thrown away."""
    started = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        for path in (CLASSES_PATH, NODES_PATH, PODS_PATH):
            number = 0
            while True:
                connection.request("GET", f"{path}?limit=500&continue={number}")
                more = connection.getresponse().read()[:80].partition(b'"continue":"')[2].partition(b'"')[0]
                if not more:
                    break
                number = int(more)
    return time.perf_counter() - started


def _get(port: int, path: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
