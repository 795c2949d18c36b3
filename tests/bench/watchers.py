"""Rows about many who watch: how soon each is told, what each costs, and what readers notice of it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.freshness import half_load
from tests.bench.loads import LoadError, result
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
    with stage.load.running(url, seconds=WATCH_SECONDS, connections=WATCHERS, watch=True) as process:
        assert process.stderr is not None
        if process.stderr.readline() != "open\n":
            result(process, url)
            raise LoadError(f"{url}: not every watch was told of the class in {WATCH_SECONDS} s")
        each = (resident_kilobytes(stage.catalog.pid) - before) / WATCHERS
        with stage.load.running(stage.ours(LIST), seconds=CHANGE_SECONDS, rate=half) as readers:
            changes = _change(stage.control_plane.client)
            read = result(readers, stage.ours(LIST))
        told = result(process, url)
    if told["count"] < WATCHERS * changes * 0.5:
        raise LoadError(f"{told['count']} events reached {WATCHERS} watchers, after {changes} changes")
    note = f"{changes} changes in {CHANGE_SECONDS} s, {told['count'] / WATCHERS:.0f} told to each, the others merged"
    rows = (
        Row(DELAY, told["p99_ms"], None, 250, at_least=False, unit="ms", note=note),
        Row(MEMORY, each, None, 100, at_least=False, unit="kB", note="resident memory, TLS included"),
        Row(READERS, read["p99_ms"], None, 25, at_least=False, unit="ms", note=f"{half:.0f} lists/s asked for"),
    )
    yield from (row for row in rows if wanted in row.what)


def _change(client: Client) -> int:
    """Change the class at a steady pace, and return how often."""
    started = time.monotonic()
    count = 0
    while time.monotonic() - started < CHANGE_SECONDS:
        client.patch(f"{STORED}/{NAME}", {"metadata": {"annotations": {STAMP: str(time.time_ns())}}})
        count += 1
        time.sleep(max(0, started + count / PER_SECOND - time.monotonic()))
    return count


def resident_kilobytes(pid: int) -> float:
    """Resident memory of a process, in kB of 1,000 bytes.

    Raises:
        LookupError: the system does not say.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1.024
    raise LookupError(f"/proc/{pid}/status has no VmRSS")
