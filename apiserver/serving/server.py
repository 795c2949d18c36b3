"""The listener, over TLS on a cluster and plain on loopback, and the application behind it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Middleware

from apiserver.serving.connections import HEAD_SECONDS, Connection
from apiserver.serving.filters import INFO, answering, measuring, set_headers
from apiserver.serving.handlers import Handlers
from apiserver.serving.shutdown import DRAIN_SECONDS, Shutdown

_BACKLOG: Final = 1024
"""Connections that may wait to be taken: all who watched come again at once when a server ends."""


def make_app(
    handlers: Handlers, middlewares: Sequence[Middleware], shutdown: Shutdown | None = None
) -> web.Application:
    """The application: every path and method goes through the same filters to the same handlers.

    Args:
        handlers: answer what passed.
        middlewares: who may pass, outermost first.
        shutdown: says when only what was let in is still answered.
    """
    app = web.Application(middlewares=[measuring(handlers.traffic), answering(shutdown or Shutdown()), *middlewares])
    app._router = _OneRoute()  # noqa: SLF001 # a router of one's own can be given to an application in no other way

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handlers.answer(request, request[INFO])

    app.router.add_route("*", "/{path:.*}", answer, expect_handler=_expect)
    app.on_response_prepare.append(set_headers)

    async def close(_: web.Application) -> None:
        handlers.close()

    app.on_shutdown.append(close)
    return app


class _OneRoute(web.UrlDispatcher):
    """Sends every request to the one route there is.

    aiohttp matches paths only, and answers a target that is none (that of CONNECT) by itself, past our filters.
    """

    async def resolve(self, request: web.Request) -> web.UrlMappingMatchInfo:  # noqa: ARG002 # whatever it asks for
        (route,) = self.routes()
        return web.UrlMappingMatchInfo({}, route)


async def _expect(request: web.Request) -> None:
    """Let a client send its body that asks whether to; aiohttp's own answer to any other expectation repeats it.

    Repeated, a byte that is not UTF-8 would become a 500.
    """
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="unknown Expect")
    if request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun


@asynccontextmanager
async def listening(
    app: web.Application, *, address: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve while the context is open.

    Leaving it closes the listener and idle connections, ends watches, and waits until what else is asked is answered.

    Yields:
        The URL it is served at; a port of 0 is replaced by the one taken.

    Raises:
        OSError: the address or port cannot be had.
    """
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(
        app,
        shutdown_timeout=DRAIN_SECONDS,
        handler_cancellation=True,  # a watch ends when its client leaves, not when it next has something to say
    )
    await runner.setup()
    server = runner.server
    if server is None:
        raise RuntimeError("a runner that is set up has a server")
    listener: asyncio.Server | None = None
    try:
        listener = await loop.create_server(
            lambda: Connection(server, loop=loop, head_seconds=HEAD_SECONDS),
            address,
            port,
            ssl=tls,
            ssl_handshake_timeout=HEAD_SECONDS if tls else None,
            backlog=_BACKLOG,
        )
        bound: int = listener.sockets[0].getsockname()[1]
        host = f"[{address}]" if ":" in address else address
        yield f"{'https' if tls else 'http'}://{host}:{bound}"
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()
