"""The networks of their own that servers with addresses stand in."""

import ctypes
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import network
from tests.cluster.network import Host, Network, NetworkUnavailableError
from tests.needs import missing

HERE = Path(network.OF_THIS_THREAD)
SECONDS = 5


def identity() -> str:
    """The namespace that this thread is in."""
    return str(HERE.readlink())


@pytest.fixture
def entered() -> Iterator[Network]:
    """A network that we stand in."""
    try:
        with Network() as entered:
            yield entered
    except NetworkUnavailableError as reason:
        missing(reason)


def descriptors_open() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def listen(host: Host) -> socket.socket:
    """A listener there."""
    with host.inside():
        return socket.create_server((host.address, 6443))


def test_hosts_reach_each_other_and_us(entered: Network) -> None:
    """Each host has an address of its own, and the same port at each is another server."""
    first, second = entered.add_host(), entered.add_host()
    assert first.address != second.address
    with listen(first) as at_first, listen(second) as at_second:
        for listener, host in ((at_first, first), (at_second, second)):
            with socket.create_connection((host.address, 6443), SECONDS):
                listener.settimeout(SECONDS)
                connection, peer = listener.accept()
                connection.close()
                assert peer[0] == entered.address
        with first.inside(), socket.create_connection((second.address, 6443), SECONDS) as client:
            assert client.getsockname()[0] == first.address


def test_nobody_else_reaches_them(entered: Network) -> None:
    """In another network the same address is another's, and nothing answers there."""
    host = entered.add_host()
    with listen(host), Network() as other:
        assert other.add_host().address == host.address
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host.address, 6443), SECONDS)


def test_we_come_back() -> None:
    """After the block we are where we were, whatever went wrong in it, and the descriptors are closed."""
    before, descriptors = identity(), descriptors_open()
    try:
        _fail_inside()
    except NetworkUnavailableError as reason:
        missing(reason)
    except ZeroDivisionError:
        pass
    assert (identity(), descriptors_open()) == (before, descriptors)


def _fail_inside() -> None:
    before = identity()
    with Network() as made:
        assert identity() != before
        with made.add_host().inside():
            raise ZeroDivisionError


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not make a namespace is told so, and is where they were."""

    class Refusing:
        """The C library of one who is not root."""

        def unshare(self, *_: int) -> int:
            ctypes.set_errno(1)
            return -1

        setns = unshare

    before = identity()
    monkeypatch.setattr(network, "_libc", Refusing)
    with pytest.raises(NetworkUnavailableError, match="need root: unshare says 'Operation not permitted'"), Network():
        pass
    assert identity() == before


def test_without_iproute2(entered: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `ip` it says what to install."""
    monkeypatch.setenv("PATH", "/nonexistent")
    before = identity()
    with pytest.raises(NetworkUnavailableError, match="install iproute2"):
        entered.add_host()
    assert identity() == before
