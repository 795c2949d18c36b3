"""What stands between our servers and kube-apiserver: it can hold back watches, or be a network that is cut.

It ends TLS, so that it can tell a watch from other requests, and goes on as the same ServiceAccount.
"""

import asyncio
import contextlib
import ssl
from enum import Enum, auto
from pathlib import Path
from typing import Final

from tests.cluster.catalog import SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pki import write_kubeconfig
from tests.cluster.processes import free_ports

PART: Final = 65536


class Mode(Enum):
    """What the network does."""

    OPEN = auto()
    WATCHES_FROZEN = auto()
    BLACKHOLE = auto()
    CUT = auto()


class _Link:
    """One connection of ours and its counterpart to kube-apiserver."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.is_watch = False
        self.writers = [writer]

    def reset(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Proxy:
    """Forwards to kube-apiserver; its methods are called in its event loop.

    Attributes:
        kubeconfig: how to reach the cluster through it, as the ServiceAccount.
        watches: how many watches were opened through it.
        held: how many parts of watches were held back.
    """

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self._backend_port = control_plane.port
        self.watches = self.held = 0
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._mode = Mode.OPEN
        self._moved = asyncio.Condition()
        authority = control_plane.authority
        account = authority.client(SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS)
        serving = authority.serving("proxy-serving", ("127.0.0.1",))
        self._server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_context.load_cert_chain(serving.certificate, serving.key)
        self._client_context = ssl.create_default_context(cafile=authority.certificate)
        self._client_context.load_cert_chain(account.certificate, account.key)
        self.kubeconfig = directory / "proxy.kubeconfig"
        url = f"https://127.0.0.1:{self._port}"
        write_kubeconfig(self.kubeconfig, server=url, authority=authority.certificate, client=account)

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._server_context)

    async def stop(self) -> None:
        """Listen no more, and reset what is open."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.reset()

    async def set_mode(self, mode: Mode) -> None:
        """Change what the network does; a cut resets what is open."""
        async with self._moved:
            self._mode = mode
            self._moved.notify_all()
        if mode is Mode.CUT:
            for link in list(self._links):
                link.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        if self._mode is Mode.CUT:
            link.reset()
            return
        self._links.add(link)
        try:
            backend_reader, backend_writer = await asyncio.open_connection(
                "127.0.0.1", self._backend_port, ssl=self._client_context
            )
            link.writers.append(backend_writer)
            tasks = [
                asyncio.create_task(self._pump(link, reader, backend_writer, is_request=True)),
                asyncio.create_task(self._pump(link, backend_reader, writer, is_request=False)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass
        finally:
            self._links.discard(link)
            link.reset()

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(PART):
                if is_request and part.startswith((b"GET ", b"POST ")):
                    link.is_watch = b"watch=true" in part.partition(b"\r\n")[0]
                    self.watches += link.is_watch
                await self._pass(link, is_request=is_request)
                writer.write(part)
                await writer.drain()

    async def _pass(self, link: _Link, *, is_request: bool) -> None:
        """Wait until the network carries a part."""

        def is_held() -> bool:
            frozen = self._mode is Mode.WATCHES_FROZEN and link.is_watch and not is_request
            return frozen or self._mode is Mode.BLACKHOLE

        if is_held():
            self.held += 1
            async with self._moved:
                await self._moved.wait_for(lambda: not is_held())
