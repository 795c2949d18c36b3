"""Writing a watch to a client: chunked HTTP or WebSocket, objects, Tables or metadata alone.

Source: apiserver pkg/endpoints/handlers/watch.go and response.go of Kubernetes 1.37.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from aiohttp import WSMsgType, web

from apiserver.serving.answers import WRITE_SECONDS, Stream
from apiserver.serving.negotiation import JSON, TABLE, Representation
from apiserver.serving.requests import Request, Response
from apiserver.serving.tables import INCLUDE_METADATA, INCLUDE_NONE, Layout, make_table, partial
from apiserver.serving.traffic import WatchCount
from apiserver.serving.watching import BOOKMARK, ERROR, INITIAL_EVENTS_END, Batch, Event, Watch

_EVENTS_AT_ONCE: Final = 500
"""How many events are encoded and written together; the first batch of a watch may hold a whole large collection."""


@dataclass(slots=True)
class Encoder:
    """Makes lines of events in the representation that was agreed on.

    Attributes:
        representation: what was negotiated.
        layout: the Table of the resource.
        include: how much of an object a row carries.
    """

    representation: Representation
    layout: Layout
    include: str
    _declares_columns: bool = field(default=True)

    def encode_batch(self, batch: Batch) -> bytes:
        """All lines of a batch; where they are the same for everybody, they are written once."""
        if self.representation.convert_to:
            return b"".join(map(self.encode, batch))
        if batch.lines is None:
            batch.lines = b"".join(map(self.encode, batch))
        return batch.lines

    def encode(self, event: Event) -> bytes:
        """One event as one line."""
        if event.type == ERROR or not self.representation.convert_to:
            body = event.body if event.body is not None else orjson.dumps(event.object)
        elif self.representation.convert_to == TABLE:
            body = orjson.dumps(self._table(event))
        else:
            body = orjson.dumps(partial(event.object, self.representation.convert_version))
        return b'{"type":"' + event.type.encode() + b'","object":' + body + b"}\n"

    def _table(self, event: Event) -> dict[str, Any]:
        """A Table of one row; only the first of a watch declares the columns."""
        version, metadata = self.representation.convert_version, event.object["metadata"]
        is_bookmark = event.type == BOOKMARK
        include = self.include
        if is_bookmark and include == INCLUDE_NONE and INITIAL_EVENTS_END in metadata.get("annotations", {}):
            include = INCLUDE_METADATA  # without it nobody could tell the end of the initial events
        table = make_table(
            self.layout.of_bookmark() if is_bookmark else self.layout,
            [event.object],
            metadata={"resourceVersion": metadata["resourceVersion"]},
            include=include,
            version=version,
            now=datetime.now(UTC),
        )
        if not self._declares_columns:
            table["columnDefinitions"] = []
        self._declares_columns = False
        return table


async def write_stream(request: Request, watch: Watch, encoder: Encoder, count: WatchCount) -> Response:
    """Write the events to the client until they end or the client leaves.

    Raises:
        StatusError: the watch cannot begin; nothing was sent yet.
    """
    if _is_websocket(request):
        async with aclosing(watch.batches()) as batches:
            return await _write_websocket(request, await anext(batches), batches, encoder, count)
    stream = Stream(request, {"Content-Type": JSON})

    def put(batch: Batch) -> bool:
        if len(batch) > _EVENTS_AT_ONCE or not stream.has_room:
            return False
        stream.put(encoder.encode_batch(batch))
        count.sent(len(batch))
        return True

    async with aclosing(watch.batches(put)) as batches:
        first = await anext(batches)
        await stream.send(request)
        with count.open(stream.status), suppress(ConnectionError, TimeoutError):
            await _write_lines(stream, first, encoder, count)
            async for batch in batches:
                await _write_lines(stream, batch, encoder, count)
            await stream.end()
        return stream


async def _write_lines(stream: Stream, batch: Sequence[Event], encoder: Encoder, count: WatchCount) -> None:
    for start in range(0, len(batch), _EVENTS_AT_ONCE):
        part = batch[start : start + _EVENTS_AT_ONCE]
        await stream.write(b"".join(map(encoder.encode, part)))
        count.sent(len(part))
        if start + _EVENTS_AT_ONCE < len(batch):
            await asyncio.sleep(0)  # a write that finds room gives nobody else a turn


def _is_websocket(request: Request) -> bool:
    tokens = [token.strip().lower() for token in request.headers.get("Connection", "").split(",")]
    return "upgrade" in tokens and request.headers.get("Upgrade", "").lower() == "websocket"


async def _write_websocket(
    request: Request,
    first: Sequence[Event],
    batches: AsyncIterator[Sequence[Event]],
    encoder: Encoder,
    count: WatchCount,
) -> web.WebSocketResponse:
    """One event to a text message. The one sub-protocol a client may ask for is agreed to, as in Go."""
    asked = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if name.strip()]
    socket = web.WebSocketResponse(protocols=asked[:1])
    await socket.prepare(request)
    left = asyncio.create_task(_until_left(socket))
    left.add_done_callback(lambda _: writer.cancel())
    writer = asyncio.create_task(_write_messages(socket, first, batches, encoder, count))
    with count.open(socket.status), suppress(asyncio.CancelledError, ConnectionError, TimeoutError):
        await writer
    left.cancel()
    await socket.close()
    return socket


async def _write_messages(
    socket: web.WebSocketResponse,
    first: Sequence[Event],
    batches: AsyncIterator[Sequence[Event]],
    encoder: Encoder,
    count: WatchCount,
) -> None:
    batch = first
    while True:
        for event in batch:
            async with asyncio.timeout(WRITE_SECONDS):
                await socket.send_str(encoder.encode(event).decode())
            count.sent(1)
        try:
            batch = await anext(batches)
        except StopAsyncIteration:
            return


async def _until_left(socket: web.WebSocketResponse) -> None:
    """Read and drop whatever the client says, until it leaves."""
    async for message in socket:
        if message.type in (WSMsgType.CLOSE, WSMsgType.ERROR):
            return
