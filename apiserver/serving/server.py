"""The listener: HTTP/1.1 with the limits an API server needs, over TLS on a cluster and plain on loopback."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from apiserver.serving.filters import INFO, answering, set_headers
from apiserver.serving.handlers import Handlers
from apiserver.serving.shutdown import DRAIN_SECONDS, Shutdown

KEEPALIVE_SECONDS: Final = 300
"""Longer than the 90 s for which Go clients, kube-aggregator among them, keep an idle connection to use again."""
_MAX_HEADERS: Final = 4096
"""kube-aggregator sends one header line for each group of a user."""
_MAX_LINE: Final = 64 * 1024


def make_app(
    handlers: Handlers, middlewares: Sequence[Middleware], shutdown: Shutdown | None = None
) -> web.Application:
    """The application: every path and method goes through the same filters to the same handlers.

    Args:
        handlers: answer what passed.
        middlewares: who may pass, outermost first.
        shutdown: says when only what was let in is still answered.
    """
    app = web.Application(middlewares=[answering(shutdown or Shutdown()), *middlewares])

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handlers.answer(request, request[INFO])

    app.router.add_route("*", "/{path:.*}", answer)
    app.on_response_prepare.append(set_headers)

    async def close(_: web.Application) -> None:
        handlers.close()

    app.on_shutdown.append(close)
    return app


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
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        max_headers=_MAX_HEADERS,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
        shutdown_timeout=DRAIN_SECONDS,
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
