"""A network that drops every packet for a while, and how soon after it the cluster is followed again."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from apiserver.cluster.client import Access, ClusterClient, ClusterUnreachableError
from apiserver.cluster.reflector import DEFAULT_PACE
from tests.cluster.network import BRIDGE, Host, Network, NetworkUnavailableError
from tests.fake_apiserver import FakeApiserver, Stall
from tests.needs import missing
from tests.unit.test_reflector import PATH, Shelf, reflect, synced, until

RECOVERY_SECONDS = 5


def ip(*arguments: str) -> str:
    """What `ip` says."""
    return subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True, timeout=30).stdout


def link_address(device: str) -> str:
    """Of a device of the namespace we are in."""
    (link,) = json.loads(ip("-json", "link", "show", "dev", device))
    return str(link["address"])


class Cable:
    """Between us and a host; both know each other's link address, as that of a router, so that nothing tells of a cut.

    Args:
        host: on the bridge.
    """

    def __init__(self, host: Host) -> None:
        self._port = f"host{host.address.rpartition('.')[2]}"
        ours = link_address(BRIDGE)
        ip("link", "set", "dev", BRIDGE, "address", ours)  # else it is that of a port, and changes with it
        with host.inside():
            theirs = link_address("eth0")
            ip("neigh", "replace", Network.address, "lladdr", ours, "dev", "eth0", "nud", "permanent")
        ip("neigh", "replace", host.address, "lladdr", theirs, "dev", BRIDGE, "nud", "permanent")

    def cut(self) -> None:
        """Drop every packet, both ways, without a word: a bridge does not know of a port that is down."""
        ip("link", "set", "dev", self._port, "down")

    def mend(self) -> None:
        """Let packets pass again."""
        ip("link", "set", "dev", self._port, "up")


@pytest.fixture
def host() -> Iterator[Host]:
    """A host in a network that we stand in."""
    try:
        with Network() as network:
            yield network.add_host()
    except NetworkUnavailableError as reason:
        missing(reason)


@asynccontextmanager
async def serving(host: Host) -> AsyncIterator[FakeApiserver]:
    """A kube-apiserver on that host, in this process: what it accepts stays where it listens."""
    async with AsyncExitStack() as stack:
        with host.inside():
            fake = await stack.enter_async_context(FakeApiserver(host=host.address))
        yield fake


@pytest.mark.parametrize("seconds", [8, 20])
async def test_blackhole(host: Host, seconds: int) -> None:
    """What changed in the meantime is known within 5 s after the network is back, and a question is lost no longer."""
    cable, shelf = Cable(host), Shelf()
    async with (
        serving(host) as fake,
        ClusterClient(Access(fake.url), user_agent="tests") as client,
        synced(reflect(client, shelf, pace=DEFAULT_PACE)),
    ):
        await until(lambda: fake.watches)
        fake.list_faults.append(Stall())
        question = asyncio.create_task(client.get(PATH))
        await until(lambda: not fake.list_faults)
        cable.cut()
        fake.put(PATH, "b")
        await asyncio.sleep(seconds)
        assert "b" not in shelf.things
        cable.mend()
        async with asyncio.timeout(RECOVERY_SECONDS):
            while "b" not in shelf.things:  # noqa: ASYNC110 # no event tells it
                await asyncio.sleep(0.01)
            with suppress(ClusterUnreachableError):
                await question
