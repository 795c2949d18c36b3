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

from apiserver.serving.answers import Answer
from apiserver.serving.connections import HEAD_SECONDS, Connection
from apiserver.serving.filters import Filter, Handler, Repeatable, answering, measuring
from apiserver.serving.handlers import Handlers
from apiserver.serving.repeats import Repeat, Repeats
from apiserver.serving.requests import Request
from apiserver.serving.shutdown import DRAIN_SECONDS, Shutdown

_BACKLOG: Final = 1024
"""Connections that may wait to be taken: all who watched come again at once when a server ends."""


def _never(_: Request, __: Answer) -> Repeat | None:
    return None


@dataclass(frozen=True, slots=True)
class App:
    """What answers requests, whoever listens for them.

    Attributes:
        answer: a request to its answer, whatever its method and target.
        close: ends what would go on for ever.
        prepare: how a request is answered again, once it is answered; None where it is read anew each time.
    """

    answer: Handler
    close: Callable[[], None]
    prepare: Callable[[Request, Answer], Repeat | None] = _never

    def make_server(self) -> web.Server:
        """The HTTP side of it.

        Not an aiohttp Application: its router and signals take a fifth of the time of a short answer, and there is one
        route.
        """
        answer = cast("Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]", self.answer)
        return _Server(answer, repeats=Repeats(self.prepare))


def make_app(handlers: Handlers, filters: Sequence[Filter], shutdown: Shutdown | None = None) -> App:
    """Send every request through the same filters to the same handlers.

    Args:
        handlers: answer what passed.
        filters: who may pass, outermost first.
        shutdown: says when only what was let in is still answered.
    """
    every = [measuring(handlers.traffic), answering(shutdown or Shutdown()), *filters]

    def prepare(request: Request, answer: Answer) -> Repeat | None:
        make = handlers.make_again(request)
        said = [each.again(request) for each in every if isinstance(each, Repeatable)] if make is not None else []
        standings = [each for each in said if each is not None]
        return None if make is None or len(standings) < len(every) else Repeat(answer, standings, make)

    return App(through(every, handlers.answer), handlers.close, prepare)


class _Server(web.Server):
    """Makes the connections."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], *, repeats: Repeats) -> None:
        # A watch ends when its client leaves, not when it next has something to say.
        super().__init__(answer, request_factory=_make_request, handler_cancellation=True)
        self._repeats = repeats

    def __call__(self) -> Connection:
        return Connection(self, self._repeats, loop=asyncio.get_running_loop(), head_seconds=HEAD_SECONDS)


def through(filters: Sequence[Filter], handler: Handler) -> Handler:
    """A handler behind filters, the outermost first."""
    for each in reversed(filters):
        handler = partial(each.answer if isinstance(each, Repeatable) else each, handler)
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
