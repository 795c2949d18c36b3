"""The page over a real cluster, as `serve --local` has it from a person's own kubeconfig."""

import asyncio
import time

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.workload import DEVICE, NODES, STORED, create_node, create_pod, gpu_class, node, pod
from tests.http.running import running
from tests.page.chromium import Tab
from tests.page.reading import CARD, CARDS, HEADLINE, ROWS, STATE

LOCAL = ("--local", "--insecure-port", "0", "--kubeconfig")
GOAL_SECONDS = 1


async def test_page(api: Client, catalog: CatalogServer, control_plane: ControlPlane, tab: Tab) -> None:
    """What is stored, bound and cordoned on the cluster is on the page within a second, and no stranger is asked."""
    catalog.require_running()  # it brings the stored kind
    await asyncio.to_thread(create_node, api, node("n1", capacity={DEVICE: 4}))
    async with running(*LOCAL, control_plane.kubeconfig) as server:
        await tab.open(f"{server.url}/ui/#l40s")
        await tab.wait("document.body.innerText.includes('There are no GPU classes')")
        await asyncio.to_thread(api.post, STORED, gpu_class("l40s"))
        await tab.wait(f"{STATE} === 'live' && {HEADLINE}.startsWith('4 of 4 free')")
        assert await tab.run(f"{CARD}.querySelector('details').open"), "the address named it before it was there"
        took = []
        for index in range(3):
            bound = pod(f"vm-{index}", node="n1", requests={DEVICE: 1})
            began = time.monotonic()
            await asyncio.to_thread(create_pod, api, bound)
            await tab.wait(f"{HEADLINE}.startsWith('{3 - index} of 4 free')")
            took.append(time.monotonic() - began)
        print("on the page after", ", ".join(f"{seconds:.2f} s" for seconds in took))  # noqa: T201
        assert min(took) < GOAL_SECONDS
        await asyncio.to_thread(api.patch, f"{NODES}/n1", {"spec": {"unschedulable": True}})
        await tab.wait(f"{HEADLINE} === '0 of 0 free' && {ROWS}[0].includes('Cordoned')")
        await asyncio.to_thread(api.delete, f"{STORED}/l40s")
        await tab.wait(f"{CARDS}.length === 0")
        strangers = [url for url in tab.requests if not url.startswith((server.url, "data:", "about:"))]
        assert strangers == []
