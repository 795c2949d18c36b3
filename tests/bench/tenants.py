"""Rows about many tenants: memory and versions of a server of offers while GPU pods come and go and many watch.

`python -m tests.bench.tenants` is that server, with its watchers in the same process and without a cluster; the rows
run it in a process of its own and read what it prints.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp.test_utils import TestClient

from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.pods import Pod
from apiserver.gpu.tenants import TenantRules
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.server import make_app
from apiserver.serving.versions import EPOCH, ServerClock, VersionSource
from tests.bench.offers import BASE, MEBIBYTE, fill, memory
from tests.bench.rows import Row
from tests.http.apps import AppServer, Client

NAMESPACES: Final = 1_000
CLASSES: Final = 50
WATCHES: Final = 50
PER_SECOND: Final = 20
SECONDS: Final = 20
LONGEST_SECONDS: Final = 120
MEMORY: Final = "resident memory with 1,000 namespaces of 50 offers"
AHEAD: Final = "offers' versions ahead of the clock, at most"
WORDS: Final = (MEMORY, AHEAD)
TAG_BITS: Final = 10
TICKS_PER_MILLISECOND: Final = 16


def measure(wanted: str) -> Iterator[Row]:
    """Run the server for a while in a process of its own."""
    if not any(wanted in what for what in WORDS):
        return
    command = (sys.executable, "-m", "tests.bench.tenants")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LONGEST_SECONDS)
    seen = json.loads(done.stdout)
    note = (
        f"{WATCHES} namespaced watches told of {seen['events']:,} events, {seen['pods']} pod events in {SECONDS} s; "
        "without a cluster"
    )
    rows = (
        Row(MEMORY, seen["megabytes"], None, 250, at_least=False, unit="MB", note=f"{note}, the watchers included"),
        Row(AHEAD, seen["ahead_ms"], None, 1000, at_least=False, unit="ms", note=note),
    )
    yield from (row for row in rows if wanted in row.what)


class Versions(VersionSource):
    """Takes down how far a version is ahead of the clock when it is made.

    Attributes:
        ahead_ms: the most that one was, in milliseconds; a tick at least, which is as exact as versions are.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._now = clock
        self.ahead_ms = 1 / TICKS_PER_MILLISECOND

    def next(self) -> int:
        """A new version."""
        version = super().next()
        ahead = (version >> TAG_BITS) / TICKS_PER_MILLISECOND - (self._now() - EPOCH) * 1000
        self.ahead_ms = max(self.ahead_ms, ahead)
        return version


async def serve_and_watch() -> dict[str, float]:
    """Serve, watch, and let pods come and go."""
    view, tenancy = View(), Tenancy()
    fill(view, tenancy, NAMESPACES, CLASSES)
    versions = Versions(ServerClock(wall=time.time()))
    served = install(view, versions, lambda: None, Offering(tenancy, TenantRules(), lambda: None))
    events: list[int] = [0] * WATCHES
    client: Client = TestClient(AppServer(make_app(Handlers(served, Health(), "0.1.0"), [])))
    async with client:
        watches = [asyncio.create_task(_watch(client, number, events)) for number in range(WATCHES)]
        try:
            async with asyncio.timeout(LONGEST_SECONDS / 2):
                while min(events) < CLASSES:  # noqa: ASYNC110 # each was told of what there is
                    await asyncio.sleep(0.05)
            initial = sum(events)
            pods = await _churn(view, watches)
            figures = {"pods": pods, "events": sum(events) - initial, "megabytes": memory() * MEBIBYTE / 1e6}
        finally:
            for each in watches:
                each.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
    if figures["events"] < pods:
        raise LookupError(f"{figures['events']} events were told after {pods} pods came or went: nobody followed them")
    return {**figures, "ahead_ms": versions.ahead_ms}


async def _watch(client: Client, number: int, events: list[int]) -> None:
    """Count what one namespace is told."""
    path = f"{BASE}/namespaces/tenant-{number:05}/gpuoffers"
    async with client.get(path, params={"watch": "1", "timeoutSeconds": str(LONGEST_SECONDS)}) as response:
        async for _ in response.content:
            events[number] += 1


async def _churn(view: View, watches: list["asyncio.Task[None]"]) -> int:
    """Let a pod come or go at a steady pace, and return how often one did."""
    began, count = time.monotonic(), 0
    while time.monotonic() - began < SECONDS:
        number = count // 2 % CLASSES
        if count % 2:
            view.delete_pod(("ns", f"vm-{number}"))
        else:
            view.apply_pod(Pod("ns", f"vm-{number}", f"node-{number}", {f"nvidia.com/CARD_{number}": 1}))
        count += 1
        for each in watches:
            if each.done():
                raise LookupError("a watch ended") from each.exception()
        await asyncio.sleep(max(0, began + count / PER_SECOND - time.monotonic()))
    return count


def main() -> None:
    """Print the figures."""
    sys.stdout.write(json.dumps(asyncio.run(serve_and_watch())) + "\n")


if __name__ == "__main__":
    main()
