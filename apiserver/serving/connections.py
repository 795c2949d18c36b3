"""One connection: HTTP/1.1 with the limits an API server needs.

Source: net/http Server.ReadHeaderTimeout as set in apiserver pkg/server/secure_serving.go of Kubernetes 1.37.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from apiserver.serving.answers import Answer
from apiserver.serving.audit_ids import audit_id
from apiserver.serving.certificates import Peer, peer_of
from apiserver.serving.eager import Begun
from apiserver.serving.repeats import Repeats
from apiserver.serving.requests import Request, Response

KEEPALIVE_SECONDS: Final = 300
"""Longer than the 90 s for which Go clients, kube-aggregator among them, keep an idle connection to use again."""
HEAD_SECONDS: Final = 32.0
"""For how long the head of a request may come in, once it has begun."""
_MAX_HEADERS: Final = 4096
"""kube-aggregator sends one header line for each group of a user."""
_MAX_LINE: Final = 64 * 1024
_log = logging.getLogger(__name__)


class Connection(web.RequestHandler):
    """A connection that answers at once what it can, and is closed when a request is begun and not asked to its end.

    The framework has a time for connections that are idle, and none for those that say a byte a minute. It answers in a
    task for each request, whatever is asked; here one is made only for a request that has to wait for something.

    Args:
        server: the server's.
        repeats: what was asked lately on all connections.
        loop: the event loop.
        head_seconds: for the head of a request, and for the first one to begin.

    Attributes:
        peer: what the client showed of itself; None where the connection is plain.
    """

    __slots__ = ("_begun", "_head_seconds", "_head_timer", "_is_between", "_repeats", "_shown", "peer")

    def __init__(
        self, server: web.Server, repeats: Repeats, *, loop: asyncio.AbstractEventLoop, head_seconds: float
    ) -> None:
        limits: dict[str, Any] = {
            "keepalive_timeout": KEEPALIVE_SECONDS,
            "max_headers": _MAX_HEADERS,
            "max_line_size": _MAX_LINE,
            "max_field_size": _MAX_LINE,
            "access_log": None,
            "auto_decompress": False,  # no body is ever read, only skipped
        }
        super().__init__(server, loop=loop, **limits)
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._begun: Begun[tuple[web.StreamResponse, bool]] | None = None
        self.peer: Peer | None = None
        self._repeats = repeats
        self._shown: tuple[bytes, tuple[bytes, ...]] | None = None  # by a client that showed a certificate
        self._is_between = True  # two requests, of the next of which nothing has come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look who is there, and wait for the first request, not for long."""
        super().connection_made(transport)
        secure: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.peer = peer = None if secure is None else peer_of(secure)
        if peer is not None and peer.certificate is not None:
            self._shown = peer.certificate, peer.intermediates
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take what came: a whole head, a part of one, or what belongs to a request that is being answered."""
        if self._is_between and self._answer_again(data):
            return
        known, waiter = self._request_count, self._waiter
        head = data if self._is_between else b""
        self._waiter = None  # who waits there answers in a task of its own, and is woken only if that is needed
        try:
            super().data_received(data)
        finally:
            self._waiter = waiter
        has_come = self._request_count - known
        # The end of a head, and if there was a body, of that: whatever has begun behind it ends otherwise.
        self._is_between = has_come > 0 and data.endswith(b"\r\n\r\n") and not self._upgraded
        if has_come:
            self._forget_head()
            if waiter is not None and not waiter.done() and not self._answer_at_once(head):
                waiter.set_result(None)
        elif waiter is not None and self._head_timer is None:
            self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting."""
        self._forget_head()
        if self._begun is not None:  # nobody has taken it up yet, so nobody else will tell it
            self._loop.create_task(self._begun).cancel()
        super().connection_lost(exc)

    def _answer_again(self, data: bytes) -> bool:
        """Answer what was asked before in the same words, if that is what has come, and return whether it is."""
        waiter, transport = self._waiter, self.transport
        if self._shown is None or waiter is None or waiter.done() or transport is None or transport.is_closing():
            return False
        if self._force_close or self._close or self.writing_paused:
            return False
        found = self._repeats.answer(self._shown, data)
        if found is None:
            return False
        self._forget_head()
        answer, given = found
        answer.write_to(cast("asyncio.WriteTransport", transport), HttpVersion11, audit_id(given))
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SECONDS
        return True

    def _answer_at_once(self, head: bytes) -> bool:
        """Begin to answer the one request that has come, and return whether that was all there was to do.

        If not, the framework's own loop goes on: with the rest of the answer, or with what was not begun here.

        Args:
            head: what came, if the request is that and nothing else.
        """
        message, payload = self._messages[0]
        server, factory, answer = self._manager, self._request_factory, self._request_handler
        if server is None or factory is None or answer is None or self._task_handler is None:
            return False
        if len(self._messages) > 1 or not isinstance(message, RawRequestMessage) or not payload.is_eof():
            return False
        if message.should_close or message.upgrade:
            return False
        request = factory(message, payload, self, StreamWriter(self, self._loop), self._task_handler)
        begun = Begun(super()._handle_request(request, None, answer), copy_context())
        if not begun.done:
            self._begun = begun
            return False
        response, is_lost = begun.result
        server.requests_count += 1
        self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if is_lost or not response.keep_alive:
            self.force_close()
        elif head and self._is_between and self._shown is not None and isinstance(response, Answer):
            self._repeats.remember(self._shown, head, cast("Request", request), response)
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SECONDS
        return True

    async def finish_response(
        self, request: web.BaseRequest, resp: Response, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer that is not sent yet, and return it with whether the client has left."""
        if not isinstance(resp, Answer):
            return await super().finish_response(request, resp, start_time)
        if self._upgraded:  # an upgrade that is declined: what came behind it has still to be read as requests
            declined = web.Response(status=resp.status, body=resp.body, headers=resp.headers)
            if resp.closes:
                declined.force_close()
            return await super().finish_response(request, declined, start_time)
        sent = cast("web.StreamResponse", resp)  # all that is still asked of it is keep_alive
        try:
            await resp.send(cast("Request", request))
        except ConnectionError:
            return sent, True
        return sent, False

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        """Answer within a task; the request may have been begun before."""
        begun, self._begun = self._begun, None
        if begun is None:
            return await super()._handle_request(request, start_time, request_handler)
        return await begun

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 # it repeats what was sent
    ) -> web.StreamResponse:
        """Refuse what is no HTTP, in the words of Go and without repeating it; the connection ends with the answer.

        What nobody understood is worth one line to whoever looks for it. Anything else here is a bug.

        Raises:
            ConnectionError: an answer has begun already.
        """
        if isinstance(exc, HttpProcessingError):
            # Not its message, which repeats what may be a token.
            _log.debug("%s sent what is no request: %s", request.remote, type(exc).__name__)
        else:
            _log.error("an answer to %s failed", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if isinstance(exc, LineTooLong) else HTTPStatus(status)
        response = web.Response(status=refusal, text=f"{refusal.value} {refusal.phrase}")
        response.force_close()
        return response

    def _expect_head(self) -> None:
        self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
