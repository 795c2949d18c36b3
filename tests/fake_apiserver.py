"""A kube-apiserver on loopback that fails on demand, for what the real one can't be made to show.

Any path is a collection. Lists are paged, watches are followed live, and the next list, watch or post can be given a
fault instead of an answer.
"""

import asyncio
import contextlib
import copy
import json
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

Json = dict[str, Any]


class Fault(Protocol):
    """What is done to one request instead of answering it."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        """Answer; `closing` is set when the server must end."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A Status, or another body where `text` is given."""

    status: int
    reason: str = ""
    message: str = "told to"
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:  # noqa: ARG002 - a Fault
        """Refuse."""
        if self.text is not None:
            return web.Response(status=self.status, text=self.text, headers=self.headers)
        body = failure(self.status, self.reason, self.message)
        return web.json_response(body, status=self.status, headers=self.headers)


class End(Enum):
    """How a scripted body ends."""

    CLEANLY = auto()
    NEVER = auto()
    TORN = auto()


@dataclass(frozen=True, slots=True)
class Script:
    """A 200 whose body is these chunks, each a write of its own, and then that end."""

    chunks: tuple[bytes, ...] = ()
    end: End = End.CLEANLY

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        """Play it."""
        response = await begin_stream(request)
        for chunk in self.chunks:
            await response.write(chunk)
            await asyncio.sleep(0.002)  # else the next chunk may reach the client in the same read
        if self.end is End.NEVER:
            await closing.wait()
        elif self.end is End.TORN and request.transport is not None:
            request.transport.abort()
        return response


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection is cut instead of an answer."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:  # noqa: ARG002 - a Fault
        """Cut it."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


@dataclass(frozen=True, slots=True)
class Stall:
    """The request is taken and never answered."""

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:  # noqa: ARG002 - a Fault
        """Wait for the end."""
        await closing.wait()
        return web.Response()


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came, and when, in seconds of the event loop."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    at: float


@dataclass(slots=True)
class Change:
    """One event of the log; a bookmark is one too."""

    version: int
    path: str
    type: str
    object: Json


class FakeApiserver:
    """Holds objects by collection path, for as long as an `async with` block lasts.

    Args:
        tls: its certificate and key; without, it speaks plain HTTP.
        host: the address it listens on.
        port: where it listens; 0 takes a free one.

    Attributes:
        seen: every request, in order.
        list_faults: for the next lists; None lets one pass.
        watch_faults: for the next watches; None lets one pass.
        post_faults: for the next posts; None lets one pass.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.seen: list[Seen] = []
        self.list_faults: deque[Fault | None] = deque()
        self.sorts_keys = False
        self.watch_faults: deque[Fault | None] = deque()
        self.post_faults: deque[Fault | None] = deque()
        self._objects: dict[str, dict[str, Json]] = {}
        self._log: list[Change] = []
        self._version = 1000
        self._oldest = 0
        self._pages: dict[str, list[Json]] = {}
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._generation = 0
        app = web.Application()
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_post("/{path:.*}", self._post)
        self._tls = tls
        self._server = TestServer(app, scheme="https" if tls else "http", host=host, port=port or None)

    async def __aenter__(self) -> Self:
        await self._server.start_server(ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._wake()
        await self._server.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self._server.make_url("/")).rstrip("/")

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return self._server.port or 0

    @property
    def version(self) -> str:
        """The latest resourceVersion."""
        return str(self._version)

    @property
    def lists(self) -> list[Seen]:
        """The list requests so far, page by page."""
        return [each for each in self.seen if each.method == "GET" and "watch" not in each.query]

    @property
    def watches(self) -> list[Seen]:
        """The watch requests so far."""
        return [each for each in self.seen if "watch" in each.query]

    def is_watched(self, times: int) -> bool:
        """Whether that many watches have been opened."""
        return len(self.watches) >= times

    # What the cluster's people do.

    def put(self, path: str, name: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON
        """Create an object or replace it."""
        known = self._objects.setdefault(path, {})
        kind = "MODIFIED" if name in known else "ADDED"
        known[name] = self._record(path, kind, {"metadata": {"name": name}, **fields})

    def remove(self, path: str, name: str) -> None:
        """Delete an object."""
        self._record(path, "DELETED", self._objects[path].pop(name))

    # What the server does.

    def bookmark(self, path: str) -> None:
        """Send the watchers of a collection a bookmark."""
        self._record(path, "BOOKMARK", {})

    def compact(self) -> None:
        """Forget every version but the latest: a watch from an earlier one is told 410 in an ERROR event."""
        self._oldest = self._version

    def end_watches(self) -> None:
        """End all live watches as a timeout does."""
        self._generation += 1
        self._wake()

    def _record(self, path: str, kind: str, obj: Json) -> Json:
        self._version += 1
        obj = copy.deepcopy(obj)
        obj.setdefault("metadata", {})["resourceVersion"] = self.version
        self._log.append(Change(self._version, path, kind, obj))
        self._wake()
        return obj

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        watching = "watch" in request.query
        fault = _next(self.watch_faults if watching else self.list_faults)
        if fault is not None:
            return await fault.answer(request, self._closing)
        return await (self._watch(request) if watching else self._list(request))

    async def _post(self, request: web.Request) -> web.StreamResponse:
        """Echo the review with a status, as a SubjectAccessReview that is allowed."""
        self._note(request)
        fault = _next(self.post_faults)
        if fault is not None:
            return await fault.answer(request, self._closing)
        review = await request.json()
        return web.json_response(review | {"status": {"allowed": True}}, status=HTTPStatus.CREATED)

    def _note(self, request: web.Request) -> None:
        at = asyncio.get_running_loop().time()
        self.seen.append(Seen(request.method, request.path, dict(request.query), request.headers.copy(), at))

    async def _list(self, request: web.Request) -> web.Response:
        """One page; a token names the rest as it was when the list began."""
        token = request.query.get("continue", "")
        version = token.partition(".")[0] or self.version
        rest = self._pages[token] if token else list(self._objects.get(request.path, {}).values())
        limit = int(request.query.get("limit", 0)) or len(rest)
        metadata = {"resourceVersion": version}
        if rest[limit:]:
            metadata["continue"] = f"{version}.{len(self._pages)}"
            self._pages[metadata["continue"]] = rest[limit:]
        body = {"kind": "List", "metadata": metadata, "items": rest[:limit]}
        text = json.dumps(dict(sorted(body.items())) if self.sorts_keys else body, separators=(",", ":"))
        return web.Response(text=text, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = await begin_stream(request)
        sent = int(request.query["resourceVersion"])
        if sent < self._oldest:
            await response.write(event("ERROR", failure(HTTPStatus.GONE, "Expired", "too old resource version")))
            return response
        generation = self._generation
        with contextlib.suppress(ConnectionError):
            while generation == self._generation and not self._closing.is_set():
                changed = self._changed
                for change in self._since(sent, request.path):
                    await response.write(event(change.type, change.object))
                    sent = change.version
                await changed.wait()
        return response

    def _since(self, version: int, path: str) -> Iterator[Change]:
        return (change for change in self._log if change.version > version and change.path == path)


def event(kind: str, obj: Json) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def failure(code: int, reason: str = "", message: str = "told to", **details: int) -> Json:
    """A Status."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return status | {"message": message, "details": details}


async def begin_stream(request: web.Request) -> web.StreamResponse:
    """The headers of a watch, sent at once."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def _next(faults: deque[Fault | None]) -> Fault | None:
    return faults.popleft() if faults else None
