"""Answers and how they are sent: whole, or bit by bit as a watch.

The framework's own response is built in steps that take as long as everything else of a short answer. It stays for
WebSockets, and for what is no HTTP.
"""

import asyncio
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import HttpVersion

    from apiserver.serving.requests import Request

AUDIT_ID: Final = "Audit-Id"
"""The header with the id that a request is logged by."""
NOT_CACHED: Final = "no-cache, private"
"""The Cache-Control of every answer that does not say otherwise."""
WRITE_SECONDS: Final = 60
"""For how long a client may take nothing before it is let go; what waits for it is bounded by the write buffer."""
UNWAITED_BYTES: Final = 64 * 1024
"""What a connection takes without waiting for its client."""
_JOINED_BYTES: Final = 16 * 1024
"""Bodies up to this, which is one TLS record, are copied behind their head; to copy more costs as much as a record."""
_WITHOUT_BODY: Final = (204, 304)


class Answer:
    """An answer.

    Args:
        status: HTTP status.
        body: what is answered; not sent to HEAD.
        headers: each name in one spelling; Audit-Id, Cache-Control, Content-Length and Date are added. They and their
            values are the server's own words, never a client's.

    Attributes:
        keep_alive: whether the connection stays open; known once it is sent.
        is_sent: whether it is on its way.
        closes: whether it is the last of its connection.
    """

    __slots__ = ("_lines", "body", "closes", "headers", "is_sent", "keep_alive", "status")

    def __init__(self, status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = {} if headers is None else headers
        self.is_sent = False
        self.keep_alive = self.closes = False
        self._lines = ""  # the headers that are always the same, once they are written

    def with_body(self, body: bytes) -> "Answer":
        """The same with another body."""
        answer = Answer(self.status, body, self.headers)
        answer.keep_alive = self.keep_alive
        answer._lines = self._lines = self._lines or _lines(self.headers)
        return answer

    def force_close(self) -> None:
        """End the connection with this answer."""
        self.closes = True
        self.keep_alive = False

    async def send(self, request: "Request") -> None:
        """Send it once, and wait until the connection has room again.

        Raises:
            ConnectionError: the client has left.
        """
        if self.is_sent:
            return
        transport = _transport(request)
        self.is_sent = True
        self.keep_alive = request.keep_alive and not self.closes
        if request.method == "HEAD":
            transport.write(self._head(request.version, request.audit_id))
        else:
            self.write_to(transport, request.version, request.audit_id)
        if request.protocol.writing_paused:
            await request.writer.drain()

    def write_to(self, transport: asyncio.WriteTransport, version: "HttpVersion", audit_id: str) -> None:
        """Write it whole, whether the connection has room or not.

        Args:
            transport: of the connection.
            version: the caller's version of HTTP, which is repeated, as the framework does.
            audit_id: of the request.
        """
        head, body = self._head(version, audit_id), self.body
        if len(body) <= _JOINED_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def _head(self, version: "HttpVersion", audit_id: str) -> bytes:
        """What goes before the body."""
        lines = self._lines or _lines(self.headers)
        audit = f"{AUDIT_ID}: {audit_id}\r\n" if audit_id else ""
        length = connection = ""
        if self.status not in _WITHOUT_BODY and "Transfer-Encoding" not in self.headers:
            length = f"Content-Length: {len(self.body)}\r\n"
        if self.keep_alive:
            if version.minor == 0:
                connection = "Connection: keep-alive\r\n"
        elif version.minor:
            connection = "Connection: close\r\n"
        status_line = _status_line(version, self.status)
        return f"{status_line}{audit}{lines}{length}{connection}{_clock.date()}\r\n\r\n".encode()


class Stream(Answer):
    """An answer that is sent bit by bit, over HTTP/1.1 in chunks.

    Args:
        request: what it answers; `send` sends the head.
        headers: as in Answer, with Transfer-Encoding instead of Content-Length.
    """

    __slots__ = ("_is_chunked", "_request")

    def __init__(self, request: "Request", headers: dict[str, str]) -> None:
        super().__init__(headers=headers)
        self._request = request
        self._is_chunked = request.version.minor > 0
        if self._is_chunked:
            self.headers["Transfer-Encoding"] = "chunked"
        else:
            self.force_close()  # the end of the connection is that of the body

    @property
    def has_room(self) -> bool:
        """Whether the client is there and takes what it is sent."""
        transport = self._request.transport
        return transport is not None and not transport.is_closing() and not self._request.protocol.writing_paused

    def put(self, data: bytes) -> None:
        """Send some of the body, whether the connection has room or not.

        Raises:
            ConnectionError: the client has left.
        """
        _transport(self._request).write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    async def write(self, data: bytes) -> None:
        """Send some of the body, and wait until the connection has room again.

        Raises:
            ConnectionError: the client has left.
            TimeoutError: it takes nothing; the connection is gone.
        """
        self.put(data)
        request = self._request
        if request.protocol.writing_paused:
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await request.writer.drain()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise

    async def end(self) -> None:
        """Send the end of the body.

        Raises:
            ConnectionError: the client has left.
            TimeoutError: it takes nothing; the connection is gone.
        """
        if self._is_chunked:
            self._is_chunked = False
            await self.write(b"0\r\n\r\n")


def _transport(request: "Request") -> asyncio.WriteTransport:
    """Where an answer is written.

    Raises:
        ConnectionError: the client has left.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has left")
    return transport


def _lines(headers: dict[str, str]) -> str:
    """Headers as they are sent."""
    lines = "" if "Cache-Control" in headers else f"Cache-Control: {NOT_CACHED}\r\n"
    for name, value in headers.items():
        lines += f"{name}: {value}\r\n"
    return lines


class _Clock:
    """The Date header, made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = ""

    def date(self) -> str:
        now = int(time.time())
        if now != self._second:
            self._second, self._line = now, f"Date: {formatdate(now, usegmt=True)}"
        return self._line


_clock = _Clock()


@lru_cache(maxsize=128)
def _status_line(version: "HttpVersion", status: int) -> str:
    return f"HTTP/{version.major}.{version.minor} {status} {HTTPStatus(status).phrase}\r\n"
