"""The start: health and discovery answer before anything is known of the cluster, or even whether there is one."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.http.running import LIST, running, write_kubeconfig

GROUP_VERSION = "/apis/catalog.cozystack.io/v1alpha1"
GOAL_SECONDS = 1.0


@contextmanager
def nobody() -> Iterator[str]:
    """An address where every connection is refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def blackhole() -> Iterator[str]:
    """An address that takes connections and never says a word."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


def seconds_to_import() -> float:
    """What this machine, as busy as it is now, takes to start Python and the HTTP library alone."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import aiohttp.web, cryptography.x509"], check=True, timeout=60)
    return time.monotonic() - began


@pytest.mark.parametrize("cluster", [nobody, blackhole])
async def test_answers_before_any_sync(cluster: Callable[[], AbstractContextManager[str]], tmp_path: Path) -> None:
    """Within a second of its start the server answers, although kube-apiserver does not."""
    usual = seconds_to_import()
    with cluster() as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        local = ("--local", "--kubeconfig", kubeconfig, "--insecure-port", "0")
        secure = ("--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", "0")
        for flags, group_version in ((local, 200), (secure, 503)):
            began = time.monotonic()
            async with running(*flags) as server, session() as client:
                async with client.get(server.url + "/livez") as response:
                    assert response.status == 200
                async with client.get(server.url + GROUP_VERSION) as response:
                    # 503 as long as it is not known whom to trust; never 404, which would mean that there is no group.
                    assert response.status == group_version
                took = time.monotonic() - began
                print(f"{flags[0]}: answers {took:.2f} s after its start (imports alone {usual:.2f} s)")  # noqa: T201
                assert took < max(GOAL_SECONDS, 3 * max(usual, seconds_to_import()))
                async with client.get(server.url + LIST) as response:
                    assert response.status == 503
                assert await longest_answer(client, server.url + "/livez", 2) < 1


def test_slow_libraries_come_last() -> None:
    """What takes seconds to import is not imported with the server."""
    code = "import sys, apiserver.cli; sys.exit(bool({'kubernetes_asyncio', 'prometheus_client'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


async def longest_answer(client: aiohttp.ClientSession, url: str, seconds: float) -> float:
    """The longest that an answer took, asked again and again: meanwhile the slow library is imported."""
    longest, ends = 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        async with client.get(url) as response:
            assert response.status == 200
        longest = max(longest, time.monotonic() - began)
        await asyncio.sleep(0.01)
    return longest


def session() -> aiohttp.ClientSession:
    """A client that takes any certificate."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False))
