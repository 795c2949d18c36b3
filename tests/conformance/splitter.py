"""What stands where a Service would be: it sends each request to the replica that we choose for its kind.

A Service chooses at random. Here a list and the watch that follows it reach different replicas every time.
"""

import asyncio
import contextlib
import itertools
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from tests import loops
from tests.cluster.catalog import NAME, NAMESPACE, CatalogServer, Endpoint
from tests.cluster.control_plane import FRONT_PROXY, ControlPlane
from tests.cluster.pki import file_name
from tests.cluster.processes import free_ports

PART: Final = 65536
END_OF_HEAD: Final = b"\r\n\r\n"
START_SECONDS: Final = 10
HANDSHAKE_SECONDS: Final = 0.2


class Splitter:
    """Forwards to two replicas for as long as a `with` block lasts, with kube-apiserver's own certificate.

    It stands where kube-apiserver does, and is the one endpoint of the Service. A replica that does not listen is
    passed over, as one that is not ready is by a Service.

    Attributes:
        endpoint: where it listens.
        for_watches: the index of the replica for each watch in turn.
        for_others: the same for everything else.
        watches: the index of the replica that each watch went to since `take_watches`.
    """

    def __init__(self, control_plane: ControlPlane, replicas: tuple[CatalogServer, CatalogServer]) -> None:
        """Prepare its port and certificate; entering the block starts it."""
        (port,) = free_ports(1)
        self.endpoint = Endpoint(control_plane.address, port)
        authority = control_plane.extension_authority
        serving = authority.serving(f"splitter-{port}", ("localhost", f"{NAME}.{NAMESPACE}.svc"))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(serving.certificate, serving.key)
        self._backends = [(each.host.address, each.port) for each in replicas]
        self._client_context = _client_context(control_plane)
        self.for_others: Iterator[int] = itertools.repeat(0)
        self.for_watches: Iterator[int] = itertools.repeat(1)
        self.watches: list[int] = []
        self._thread = threading.Thread(target=lambda: loops.run(self._run()), daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_SECONDS):
            raise TimeoutError("the splitter did not start")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(START_SECONDS)

    def take_watches(self) -> list[int]:
        """The watches so far, which are then forgotten."""
        taken, self.watches = self.watches, []
        return taken

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._accept, self.endpoint.address, self.endpoint.port, ssl=self._context)
        self._started.set()
        await self._ending.wait()
        server.close()
        await asyncio.sleep(HANDSHAKE_SECONDS)  # who is still in a handshake comes to an end, and is refused
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task that is known, so that all of them can be ended, even before they have begun."""
        if self._ending.is_set():
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for one request: so the next one is sent where it belongs."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with _closing(writer):
                head = await reader.readuntil(END_OF_HEAD)
                backend_reader, backend_writer = await self._connect(is_watch(head))
                async with _closing(backend_writer):
                    backend_writer.write(_for_one_request(head))
                    await _first_of(_pump(reader, backend_writer), _pump(backend_reader, writer))

    async def _connect(self, is_watch: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        index = next(self.for_watches if is_watch else self.for_others)
        try:
            connected = await self._open(index)
        except ConnectionRefusedError:
            index = 1 - index
            connected = await self._open(index)
        if is_watch:
            self.watches.append(index)
        return connected

    async def _open(self, index: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address, port = self._backends[index]
        return await asyncio.open_connection(address, port, ssl=self._client_context)


def is_watch(head: bytes) -> bool:
    """Whether the head of a request asks for a watch."""
    target = head.split(b" ", 2)[1].decode()
    values = parse_qs(urlsplit(target).query, keep_blank_values=True).get("watch", ["0"])
    return values[0].lower() not in ("0", "false")


def _for_one_request(head: bytes) -> bytes:
    """The head with the demand that the connection is closed after the answer; an upgrade goes through as it is."""
    first, *fields = head.removesuffix(END_OF_HEAD).split(b"\r\n")
    names = [field.partition(b":")[0].lower() for field in fields]
    if b"upgrade" in names:
        return head
    kept = [field for field, name in zip(fields, names, strict=True) if name != b"connection"]
    return b"\r\n".join([first, *kept, b"Connection: close"]) + END_OF_HEAD


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the connection with the block: after all that was written, or at once if the block failed.

    Whoever is cancelled while it closes does not leave it half closed: the loop may end then.
    """
    closed = asyncio.ensure_future(writer.wait_closed())
    try:
        yield
        writer.close()
        await asyncio.shield(closed)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await closed


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(PART):
            writer.write(part)
            await writer.drain()


async def _first_of(*both: Coroutine[Any, Any, None]) -> None:
    """Run both until one ends; without a half-closed connection that is the end of the other too."""
    tasks = [asyncio.create_task(each) for each in both]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _client_context(control_plane: ControlPlane) -> ssl.SSLContext:
    stem = control_plane.directory / file_name(FRONT_PROXY, ())
    context = ssl.create_default_context(cafile=control_plane.extension_authority.certificate)
    context.load_cert_chain(stem.with_name(f"{stem.name}.crt"), stem.with_name(f"{stem.name}.key"))
    return context
