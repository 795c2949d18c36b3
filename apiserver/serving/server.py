"""The listener: HTTP/1.1 with the limits an API server needs, over TLS on a cluster and plain on loopback."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.typedefs import Middleware

from apiserver.serving.filters import INFO, answering, set_headers
from apiserver.serving.handlers import Handlers

KEEPALIVE_SECONDS: Final = 300
"""Longer than the 90 s for which Go clients, kube-aggregator among them, keep an idle connection to use again."""
_MAX_HEADERS: Final = 4096
"""kube-aggregator sends one header line for each group of a user."""
_MAX_LINE: Final = 64 * 1024
_SHUTDOWN_SECONDS: Final = 10


def make_app(handlers: Handlers, middlewares: Sequence[Middleware]) -> web.Application:
    """The application: every path and method goes through the same filters to the same handlers.

    Args:
        handlers: answer what passed.
        middlewares: who may pass, outermost first.
    """
    app = web.Application(middlewares=[answering, *middlewares])
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
    """Serve while the context is open; leaving it ends open requests within a few seconds.

    Yields:
        The URL it is served at; a port of 0 is replaced by the one taken.

    Raises:
        OSError: the address or port cannot be had.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        max_headers=_MAX_HEADERS,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
        shutdown_timeout=_SHUTDOWN_SECONDS,
        handler_cancellation=True,  # a watch ends when its client leaves, not when it next has something to say
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port, ssl_context=tls).start()
        bound: int = runner.addresses[0][1]
        host = f"[{address}]" if ":" in address else address
        yield f"{'https' if tls else 'http'}://{host}:{bound}"
    finally:
        await runner.cleanup()
