"""A cluster that is away for a while, and how soon a real server sees its return."""

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest

from tests.fake_apiserver import FakeApiserver, Refusal
from tests.http.running import CLASSES, LIST, SPEC, running, write_kubeconfig

AWAY_SECONDS = 20
GOAL_SECONDS = 5


@pytest.mark.parametrize("refusals", [pytest.param(0, id="at once"), pytest.param(1, id="after a refusal each")])
async def test_recovery(tmp_path: Path, refusals: int) -> None:
    """What changed while the cluster was away is told within five seconds of its return."""
    async with FakeApiserver() as before:
        before.put(CLASSES, "one", spec=SPEC)
        port, kubeconfig = before.port, write_kubeconfig(tmp_path / "kubeconfig", before.url)
        context = running("--local", "--kubeconfig", kubeconfig, "--insecure-port", "0")
        server = await context.__aenter__()
        session = aiohttp.ClientSession()
        await seen(session, f"{server.url}{LIST}/one")
    try:
        await asyncio.sleep(AWAY_SECONDS)
        async with session.get(f"{server.url}{LIST}/one") as response:
            assert response.status == 200, "it is not stale yet"
        async with FakeApiserver(port=port) as after:
            back = time.monotonic()
            after.put(CLASSES, "one", spec=SPEC)
            after.put(CLASSES, "two", spec=SPEC)
            # A kube-apiserver that has just started refuses before it knows its own rules.
            after.watch_faults.extend([Refusal(403, "Forbidden")] * 4 * refusals)
            await seen(session, f"{server.url}{LIST}/two")
            took = time.monotonic() - back
            print(f"seen {took:.1f} s after the return")  # noqa: T201
            assert took < GOAL_SECONDS
            assert len(after.seen) < 40
    finally:
        await session.close()
        await context.__aexit__(None, None, None)


async def seen(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until it is served."""
    async with asyncio.timeout(60):
        while True:
            async with session.get(url) as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)
