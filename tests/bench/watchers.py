"""Rows about many who watch: how soon each is told, what each costs, and what readers notice of it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.freshness import half_load
from tests.bench.loads import result, told, watching
from tests.bench.rows import Row
from tests.bench.stage import LIST, Stage
from tests.cluster.client import Client
from tests.cluster.workload import STORED

DELAY: Final = "1,000 watchers told of 10 changes/s, p99"
MEMORY: Final = "memory of one watcher"
READERS: Final = "reading at half load beside 1,000 watchers, p99"
WORDS: Final = (DELAY, MEMORY, READERS)
WATCHERS: Final = 1_000
PER_SECOND: Final = 10
CHANGE_SECONDS: Final = 10
WATCH_SECONDS: Final = 60
NAME: Final = "class-050"
STAMP: Final = "bench/at"


def measure(stage: Stage, wanted: str) -> Iterator[Row]:
    """Open the watches on one class, change it for a while, and read meanwhile."""
    if not any(wanted in what for what in WORDS):
        return
    half = half_load(stage)
    before = resident_kilobytes(stage.catalog.pid)
    url = f"{stage.ours(LIST)}?watch=true&fieldSelector=metadata.name%3D{NAME}"
    with watching(stage.load, url, watches=WATCHERS, seconds=WATCH_SECONDS) as process:
        each = (resident_kilobytes(stage.catalog.pid) - before) / WATCHERS
        with stage.load.running(stage.ours(LIST), seconds=CHANGE_SECONDS, rate=half) as readers:
            changes = _change(stage.control_plane.client)
            read = result(readers, stage.ours(LIST))
        seen = told(process, url, changes)
    note = (
        f"{len(changes)} changes in {CHANGE_SECONDS} s, each counted from before its write; "
        f"{seen['events'] / WATCHERS:.0f} events to each watcher, the others merged; the watchers' own program took "
        f"{seen['processors']:.2f} of a processor and was {seen['late_p99_ms']:.1f} ms late at p99"
    )
    rows = (
        Row(DELAY, seen["p99_ms"], None, 250, at_least=False, unit="ms", note=note),
        Row(MEMORY, each, None, 100, at_least=False, unit="kB", note="resident memory, TLS included"),
        Row(READERS, read["p99_ms"], None, 25, at_least=False, unit="ms", note=f"{half:.0f} lists/s asked for"),
    )
    yield from (row for row in rows if wanted in row.what)


def _change(client: Client) -> list[int]:
    """Change the class at a steady pace, and return when, in nanoseconds since 1970."""
    started, changes = time.monotonic(), list[int]()
    while time.monotonic() - started < CHANGE_SECONDS:
        changes.append(time.time_ns())
        client.patch(f"{STORED}/{NAME}", {"metadata": {"annotations": {STAMP: str(changes[-1])}}})
        time.sleep(max(0, started + len(changes) / PER_SECOND - time.monotonic()))
    return changes


def resident_kilobytes(pid: int, *, peak: bool = False) -> float:
    """Resident memory of a process now, or the most it ever had, in kB of 1,000 bytes.

    Raises:
        LookupError: the system does not say.
    """
    name = "VmHWM" if peak else "VmRSS"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1.024
    raise LookupError(f"/proc/{pid}/status has no {name}")
