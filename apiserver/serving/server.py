"""The listener, over TLS on a cluster and plain on loopback, and what answers behind it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from apiserver.serving.connections import HEAD_SECONDS, Connection
from apiserver.serving.filters import Filter, Handler, answering, measuring
from apiserver.serving.handlers import Handlers
from apiserver.serving.requests import Request
from apiserver.serving.shutdown import DRAIN_SECONDS, Shutdown

_BACKLOG: Final = 1024
"""Connections that may wait to be taken: all who watched come again at once when a server ends."""


@dataclass(frozen=True, slots=True)
class App:
    """What answers requests, whoever listens for them.

    Attributes:
        answer: a request to its answer, whatever its method and target.
        close: ends what would go on for ever.
    """

    answer: Handler
    close: Callable[[], None]

    def make_server(self) -> web.Server:
        """The HTTP side of it.

        Not an aiohttp Application: its router and signals take a fifth of the time of a short answer, and there is one
        route.
        """
        answer = cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", self.answer)
        # A watch ends when its client leaves, not when it next has something to say.
        return _Server(answer, request_factory=_make_request, handler_cancellation=True)


def make_app(handlers: Handlers, filters: Sequence[Filter], shutdown: Shutdown | None = None) -> App:
    """Send every request through the same filters to the same handlers.

    Args:
        handlers: answer what passed.
        filters: who may pass, outermost first.
        shutdown: says when only what was let in is still answered.
    """
    outermost = [measuring(handlers.traffic), answering(shutdown or Shutdown())]
    return App(through([*outermost, *filters], handlers.answer), handlers.close)


class _Server(web.Server):
    """Makes the connections."""

    def __call__(self) -> Connection:
        return Connection(self, loop=asyncio.get_running_loop(), head_seconds=HEAD_SECONDS)


def through(filters: Sequence[Filter], handler: Handler) -> Handler:
    """A handler behind filters, the outermost first."""
    for each in reversed(filters):
        handler = partial(each, handler)
    return handler


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    connection: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> Request:
    request = Request(message, payload, connection, writer, task, task.get_loop())
    request.peer = cast("Connection", connection).peer
    return request


@asynccontextmanager
async def listening(app: App, *, address: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve while the context is open.

    Leaving it closes the listener and idle connections, ends watches, and waits until what else is asked is answered.

    Yields:
        The URL it is served at; a port of 0 is replaced by the one taken.

    Raises:
        OSError: the address or port cannot be had.
    """
    loop = asyncio.get_running_loop()
    server = app.make_server()
    listener = await loop.create_server(
        server,
        address,
        port,
        ssl=tls,
        ssl_handshake_timeout=HEAD_SECONDS if tls else None,
        backlog=_BACKLOG,
    )
    try:
        bound: int = listener.sockets[0].getsockname()[1]
        host = f"[{address}]" if ":" in address else address
        yield f"{'https' if tls else 'http'}://{host}:{bound}"
    finally:
        listener.close()
        await asyncio.sleep(0)  # what has come in by now is begun before idle connections are closed
        server.pre_shutdown()
        app.close()
        await server.shutdown(DRAIN_SECONDS)
