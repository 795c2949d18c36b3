"""Addresses of their own for the servers of a cluster: network namespaces on a bridge, cut off from everything else.

Who enters a `Network` stands in a network namespace of its own, and so does whatever is started from there, processes
and threads. Nothing in it can be reached from outside, and it reaches nothing outside. Two runs have the same addresses
and never meet. No namespace has a name: the kernel takes everything away with the last process, however that ended.
"""

import contextlib
import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

CLONE_NEWNET: Final = 0x40000000
"""Source: sched.h of Linux. Python has unshare and setns since 3.12."""

PREFIX: Final = "10.77.0"
BRIDGE: Final = "bridge"
OF_THIS_THREAD: Final = "/proc/thread-self/ns/net"
FIRST_HOST, LAST_HOST = 11, 250


class NetworkUnavailableError(Exception):
    """No network namespaces can be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a server listens.

    Attributes:
        address: its IP address.
        namespace: descriptor of its network namespace; None for the one we are in.
    """

    address: str
    namespace: int | None = None

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Be there: what is started in the block stays there."""
        if self.namespace is None:
            yield
            return
        with _returning():
            _enter(self.namespace)
            yield


LOOPBACK: Final = Host("127.0.0.1")


class Network:
    """A network namespace with a bridge for as long as a `with` block lasts; the thread that enters it stands in it.

    Attributes:
        address: ours on the bridge, which every host can reach.
    """

    address: Final = f"{PREFIX}.1"

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(FIRST_HOST)

    def __enter__(self) -> Self:
        """Make it, and go there.

        Raises:
            NetworkUnavailableError: this is not Linux, we are not root, or there is no `ip`.
        """
        if sys.platform != "linux":
            raise NetworkUnavailableError("network namespaces are Linux's")
        with contextlib.ExitStack() as stack:
            stack.enter_context(_returning())
            _leave_for_new()
            self._home = stack.enter_context(_descriptor())
            _ip("link", "set", "lo", "up")
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("address", "add", f"{self.address}/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def add_host(self) -> Host:
        """A namespace with the next address, as a new Pod has one; it reaches us and the other hosts."""
        number = next(self._numbers)
        if number > LAST_HOST:
            raise NetworkUnavailableError(f"{PREFIX}.0/24 has no address left")
        with _returning():
            _leave_for_new()
            namespace = self._stack.enter_context(_descriptor())
            _ip("link", "set", "lo", "up")
        port = f"host{number}"
        there = f"/proc/{os.getpid()}/fd/{namespace}"
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there)
        _ip("link", "set", port, "master", BRIDGE, "up")
        host = Host(f"{PREFIX}.{number}", namespace)
        with host.inside():
            _ip("address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("link", "set", "eth0", "up")
        return host


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Be at the end of the block in the namespace that we were in at its beginning."""
    with _descriptor() as here:
        try:
            yield
        finally:
            if Path(OF_THIS_THREAD).stat().st_ino != os.fstat(here).st_ino:  # who may not leave may not enter either
                _enter(here)


@contextlib.contextmanager
def _descriptor() -> Iterator[int]:
    """The namespace of this thread; it lives at least as long as the block."""
    descriptor = os.open(OF_THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _leave_for_new() -> None:
    if _libc().unshare(CLONE_NEWNET):
        raise NetworkUnavailableError(f"network namespaces need root: unshare says {os.strerror(ctypes.get_errno())!r}")


def _enter(namespace: int) -> None:
    if _libc().setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True, timeout=30)
    except FileNotFoundError as error:
        raise NetworkUnavailableError("there is no `ip`: install iproute2") from error
    except subprocess.CalledProcessError as error:
        raise NetworkUnavailableError(f"`ip {' '.join(arguments)}`: {error.stderr.strip()}") from error
