"""The end of a server, seen by those who are connected: real processes, plain and over TLS."""

import asyncio
import signal
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.resources import GroupVersion
from apiserver.serving.server import make_app
from apiserver.serving.shutdown import Shutdown
from tests.fake_apiserver import FakeApiserver
from tests.http.running import CLASSES, LIST, SPEC, Running, running, write_kubeconfig, write_snapshot

WATCHES = 100
SLOW = f"{LIST}?resourceVersion=9007199254740991&resourceVersionMatch=NotOlderThan"
"""Waits three seconds for a version that does not come."""


@asynccontextmanager
async def on_cluster(directory: Path, *arguments: str) -> AsyncIterator[Running]:
    """A server over TLS, of a cluster of one class in which everybody may do everything."""
    async with FakeApiserver() as apiserver:
        apiserver.put(CLASSES, "one", spec=SPEC)
        kubeconfig = write_kubeconfig(directory / "kubeconfig", apiserver.url)
        flags = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1", "--secure-port", "0")
        async with running(*flags, *arguments) as server:
            yield server


async def wait_for(session: aiohttp.ClientSession, url: str, status: int) -> None:
    """Wait until an answer has the status."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(url) as response:
                if response.status == status:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("tls", [pytest.param(False, id="plain"), pytest.param(True, id="TLS")])
async def test_everything_let_in_ends_well(tmp_path: Path, tls: bool) -> None:
    """Unready first and still serving; then watches end with their last chunk, a slow request is answered, exit 0."""
    delay = ("--shutdown-delay-duration", "2s")
    flags = ("--snapshot", str(write_snapshot(tmp_path / "snapshot.json")), "--insecure-port", "0")
    context = on_cluster(tmp_path, *delay) if tls else running(*flags, *delay)
    async with (
        context as server,
        AsyncExitStack() as stack,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=False)) as session,
    ):
        await wait_for(session, server.url + LIST, 200)
        watches = [await stack.enter_async_context(session.get(f"{server.url}{LIST}?watch=1")) for _ in range(WATCHES)]
        for watch in watches:
            assert b"ADDED" in await watch.content.readline()
        socket = await stack.enter_async_context(session.ws_connect(f"{server.url}{LIST}?watch=1"))
        await socket.receive_str()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=_unverified() if tls else None)

        server.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        await wait_for(session, server.url + "/readyz", 500)
        await wait_for(session, server.url + "/readyz/shutdown", 500)
        assert time.monotonic() - told < 2, "readiness came too late to see it in the delay"
        for path in (LIST, "/livez"):
            async with session.get(server.url + path) as response:
                assert response.status == 200
        await asyncio.sleep(max(0.0, told + 1 - time.monotonic()))
        assert not any(watch.content.at_eof() for watch in watches)
        slow = asyncio.create_task(_status(session, server.url + SLOW))

        async with asyncio.timeout(30):
            for watch in watches:
                assert await watch.content.read() == b""  # aiohttp raises where the last chunk is missing
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == 1000
            assert await reader.read() == b""  # an idle connection is closed, not reset
            assert await slow == 504
            assert await server.process.wait() == 0
        writer.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.url + "/livez")


async def test_twice_is_at_once(tmp_path: Path) -> None:
    """A second signal ends the process without waiting for anybody."""
    flags = ("--snapshot", str(write_snapshot(tmp_path / "snapshot.json")), "--insecure-port", "0")
    async with running(*flags, "--shutdown-delay-duration", "10m") as server, aiohttp.ClientSession() as session:
        server.process.send_signal(signal.SIGTERM)
        await wait_for(session, server.url + "/readyz", 500)
        server.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await server.process.wait() == 1


async def test_the_view_goes_on_while_draining(tmp_path: Path) -> None:
    """In the delay a figure is as true as before: what changes in the cluster is still told."""
    async with FakeApiserver() as apiserver:
        apiserver.put(CLASSES, "one", spec=SPEC)
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", apiserver.url)
        flags = ("--local", "--kubeconfig", kubeconfig, "--insecure-port", "0", "--shutdown-delay-duration", "30s")
        async with running(*flags) as server, aiohttp.ClientSession() as session:
            await wait_for(session, server.url + LIST, 200)
            server.process.send_signal(signal.SIGTERM)
            await wait_for(session, server.url + "/readyz/shutdown", 500)
            apiserver.put(CLASSES, "two", spec=SPEC)
            await wait_for(session, f"{server.url}{LIST}/two", 200)


async def test_late(aiohttp_client: AiohttpClient) -> None:
    """What comes when the listener is closed is told to try elsewhere, whatever it asks, and the connection ends."""
    shutdown = Shutdown()
    handlers = Handlers(GroupVersion("toys.example.com", "v1", ()), Health(), "0.1.0")
    client = await aiohttp_client(make_app(handlers, [only_loopback], shutdown))
    assert (await client.get("/livez")).status == 200
    shutdown.draining = True
    for path in ("/livez", "/apis/toys.example.com/v1"):
        response = await client.get(path)
        assert (response.status, (await response.json())["message"]) == (503, "apiserver is shutting down")
        assert (response.headers["Retry-After"], response.headers["Connection"]) == ("1", "close")


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as response:
        await response.read()
        return response.status


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
