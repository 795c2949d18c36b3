"""Bad objects in a broken API server, before the real process: the good ones are answered all the same."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.cluster.processes import Process, free_ports
from tests.fake_apiserver import FakeApiserver
from tests.unit.test_bad_objects import BAD_QUANTITIES, BAD_SPECS, DEVICE, READY, SPEC, UNREADABLE

CLASSES, NODES, PODS = "/apis/cozystack.io/v1alpha1/gpuclasses", "/api/v1/nodes", "/api/v1/pods"
LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SECONDS = 20
"""For one answer; generous, for the machine may be busy."""


class BrokenApiserver(FakeApiserver):
    """Lists, besides its objects, bytes that are none."""

    async def _list(self, request: web.Request) -> web.Response:
        proper = list(self._objects.get(request.path, {}).values())
        raw = list(UNREADABLE.values()) if request.path in (CLASSES, NODES, PODS) else []
        items = b",".join([*raw, *(json.dumps(each).encode() for each in proper)])
        body = b'{"kind":"List","metadata":{"resourceVersion":"%s"},"items":[%s]}' % (self.version.encode(), items)
        return web.Response(body=body, content_type="application/json")


def fill(fake: FakeApiserver) -> None:
    """One good object of each kind, and every bad one that JSON can hold."""
    good = {"nodeName": "good", "containers": [{"name": "c", "resources": {"requests": {DEVICE: "1"}}}]}
    fake.put(CLASSES, "good", spec=SPEC)
    fake.put(NODES, "good", status={"allocatable": {DEVICE: "4"}, "conditions": READY})
    fake.put(PODS, "good", spec=good)
    for number, spec in enumerate(BAD_SPECS.values()):
        fake.put(CLASSES, f"bad-{number}", spec=spec)
    for number, quantity in enumerate(BAD_QUANTITIES.values()):
        fake.put(NODES, f"bad-{number}", status={"allocatable": {DEVICE: quantity}, "conditions": READY})
        requests: dict[str, Any] = {"requests": {DEVICE: quantity}}
        fake.put(PODS, f"bad-{number}", spec={"nodeName": "good", "containers": [{"name": "c", "resources": requests}]})


@pytest.fixture
async def fake() -> AsyncIterator[BrokenApiserver]:
    """A broken API server, on loopback."""
    async with BrokenApiserver() as running:
        fill(running)
        yield running


@pytest.fixture
async def url(fake: BrokenApiserver, tmp_path: Path) -> AsyncIterator[str]:
    """Our server in front of it, in sync."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": fake.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    (port,) = free_ports(1)
    command = (sys.executable, "-m", "apiserver", "serve", "--local", f"--kubeconfig={file}")
    process = Process("the server", (*command, f"--insecure-port={port}"), tmp_path / "server.log")
    try:
        served = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            for _ in range(300):
                process.require_running()
                if await answers(session, f"{served}/readyz"):
                    break
                await asyncio.sleep(0.1)
        yield served
        process.require_running()
        assert "Traceback" not in process.log.read_text()
    finally:
        await asyncio.to_thread(process.stop)


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether it answers 200."""
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def test_bad_objects_in_the_cluster(url: str, fake: BrokenApiserver) -> None:
    """Every page can be had in every form, in a moment; the good class is counted right, the bad ones are invalid."""
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=SECONDS)) as session:

        async def get(path: str, accept: str = "application/json") -> bytes:
            async with session.get(path, headers={"Accept": accept}) as response:
                assert response.status == 200, path
                return await response.read()

        async def classes() -> dict[str, Any]:
            return {each["metadata"]["name"]: each["status"] for each in json.loads(await get(LIST))["items"]}

        found = await classes()
        assert found.pop("good")["free"] == 3
        assert {f"bad-{number}" for number in range(len(BAD_SPECS))} <= found.keys()
        assert {status["reason"] for status in found.values()} == {"Invalid"}
        for accept in ("application/json", "application/yaml", TABLE):
            await get(LIST, accept)
            for name in ("good", "bad-0"):
                await get(f"{LIST}/{name}", accept)
                await get(f"{LIST}/{name}/catalog", accept)
        page = json.loads(await get(f"{LIST}/good/catalog"))
        reasons = {each["name"]: [reason["reason"] for reason in each["reasons"]] for each in page["nodes"]}
        assert all("MalformedQuantity" in reasons[f"bad-{number}"] for number in range(len(BAD_QUANTITIES)))
        # The same once more as events, and a good change after them.
        fill(fake)
        fake.put(NODES, "good", status={"allocatable": {DEVICE: "8"}, "conditions": READY})
        began = time.monotonic()
        while (await classes())["good"]["free"] != 7:
            assert time.monotonic() - began < SECONDS
            await asyncio.sleep(0.05)
