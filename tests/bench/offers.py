"""What offers cost at scale: `python -m tests.bench.offers` measures a server of 1,000 namespaces and 50 classes.

It runs in a process of its own, so that memory is the server's (and that of the little client beside it).
"""

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from aiohttp.test_utils import TestClient

from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.namespaces import Quota
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Pod
from apiserver.gpu.quota import TOTAL, Limit
from apiserver.gpu.tenants import Namespace, TenantRules
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.server import make_app
from apiserver.serving.versions import ServerClock, VersionSource
from tests.http.apps import AppServer, Client

BASE = "/apis/catalog.cozystack.io/v1alpha1"
MEBIBYTE = 2**20
BEAT_SECONDS = 0.001


@dataclass
class Figures:
    """Times in milliseconds, memory in MiB above what the process had with classes and namespaces loaded.

    Attributes:
        one_first: a list in a namespace that nobody has read lately.
        one_again: the same list again.
        one_memory: after listing in 64 namespaces, as many as are kept unread.
        page: the first page of 500 across all namespaces; everything is made for it.
        page_again: the same page again.
        all_json: the whole list across all namespaces, read to its end by the client.
        held: the longest that the event loop was held while everything was made, as CPU time of this process.
        all_memory: with everything made.
        event: from a pod to the event in one watched namespace, while all are watched too.
        all_events: from the same pod to the last of the events across all namespaces.
        churn_memory: after every class has changed in every namespace ten times, watched across.
    """

    one_first: float = 0
    one_again: float = 0
    one_memory: float = 0
    page: float = 0
    page_again: float = 0
    all_json: float = 0
    held: float = 0
    all_memory: float = 0
    event: float = 0
    all_events: float = 0
    churn_memory: float = 0


def memory() -> float:
    """Resident memory now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MEBIBYTE


def fill(view: View, tenancy: Tenancy, namespaces: int, classes: int) -> None:
    """Classes of 10,000 devices each on a node of its own; namespaces with a budget each, of which half decides."""
    for number in range(classes):
        name = f"nvidia.com/CARD_{number}"
        spec = {
            "vendor": "NVIDIA",
            "model": "L40S",
            "mode": "passthrough",
            "memory": "48Gi",
            "source": {"devicePlugin": {"resourceName": name}},
        }
        metadata = {
            "name": f"class-{number:03}",
            "uid": str(UUID(int=number)),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        view.apply_class(parse_class({"metadata": metadata, "spec": spec}))
        view.apply_node(Node(f"node-{number}", capacity={name: 10_000}, allocatable={name: 10_000}))
    for number in range(namespaces):
        name = f"tenant-{number:05}"
        tenancy.apply_namespace(Namespace(name, str(UUID(int=number)), "2026-01-01T00:00:00Z"))
        hard = 20_000 if number % 2 else 5
        tenancy.apply_quota(Quota(name, "gpus", {TOTAL: Limit("gpus", hard, 1)}))


async def timed(client: TestClient, path: str) -> tuple[float, bytes]:  # type: ignore[type-arg] # of any application
    """Milliseconds until an answer is read, and the answer."""
    began = time.perf_counter()
    response = await client.get(BASE + path)
    body = await response.read()
    assert response.status == 200, body[:200]
    return (time.perf_counter() - began) * 1000, body


@contextlib.asynccontextmanager
async def beating(figures: Figures) -> AsyncIterator[None]:
    """While the context is open the longest pause of the event loop is taken down."""

    async def beat() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.process_time()
            figures.held = max(figures.held, (now - last) * 1000)
            last = now

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(namespaces: int, classes: int) -> Figures:
    """Serve that many, and measure."""
    view, tenancy, figures = View(), Tenancy(), Figures()
    fill(view, tenancy, namespaces, classes)
    versions = VersionSource(ServerClock(wall=time.time()))
    served = install(view, versions, lambda: None, Offering(tenancy, TenantRules(), lambda: None))
    app = make_app(Handlers(served, Health(), "0.1.0"), [])
    client: Client = TestClient(AppServer(app))
    async with client:
        await timed(client, "/gpuclasses")
        before = memory()
        figures.one_first, body = await timed(client, "/namespaces/tenant-00000/gpuoffers")
        assert len(json.loads(body)["items"]) == classes
        figures.one_again, _ = await timed(client, "/namespaces/tenant-00000/gpuoffers")
        for number in range(1, min(64, namespaces)):
            await timed(client, f"/namespaces/tenant-{number:05}/gpuoffers")
        figures.one_memory = memory() - before
        async with beating(figures):
            figures.page, _ = await timed(client, "/gpuoffers?limit=500")
        figures.page_again, _ = await timed(client, "/gpuoffers?limit=500")
        figures.all_memory = memory() - before
        figures.all_json, body = await timed(client, "/gpuoffers")
        assert body.count(b'"kind":"GPUOffer"') == namespaces * classes
        del body
        await follow(client, view, figures, namespaces, classes)
        figures.churn_memory = memory() - before
    return figures


async def follow(client: TestClient, view: View, figures: Figures, namespaces: int, classes: int) -> None:  # type: ignore[type-arg] # as above
    """Watch one namespace and all of them, take a device, and then change everything ten times."""
    across = await client.get(f"{BASE}/gpuoffers", params={"watch": "1", "timeoutSeconds": "600"})
    for _ in range(namespaces * classes):
        await across.content.readline()
    one = await client.get(f"{BASE}/namespaces/tenant-00001/gpuoffers", params={"watch": "1"})
    for _ in range(classes):
        await one.content.readline()
    began = time.perf_counter()
    view.apply_pod(Pod("ns", "vm", "node-0", {"nvidia.com/CARD_0": 1}))
    event = json.loads(await one.content.readline())
    figures.event = (time.perf_counter() - began) * 1000
    assert event["object"]["orderable"] == 9_999
    for _ in range(namespaces // 2):
        assert b"class-000" in await across.content.readline()
    figures.all_events = (time.perf_counter() - began) * 1000
    for turn in range(10):
        for number in range(classes):
            view.apply_pod(Pod("ns", f"vm-{turn}-{number}", f"node-{number}", {f"nvidia.com/CARD_{number}": 1}))
        for _ in range(namespaces // 2 * classes):
            await across.content.readline()
    across.close()
    one.close()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=50)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.namespaces, arguments.classes))
    sys.stdout.write(json.dumps({name: round(value, 1) for name, value in asdict(figures).items()}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
