"""A transport that gives reflectors what was prepared, without a network."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import orjson

from apiserver.cluster.client import Response
from apiserver.cluster.collection import JSON
from tests.cluster.client import Json


class Replayed:
    """Lists answer with what was prepared, all other collections are empty; watches bring what is fed.

    Args:
        objects: by path of their collection.
    """

    def __init__(self, objects: Mapping[str, Sequence[Json]]) -> None:
        self._bodies = {path: _list(items) for path, items in objects.items()}
        self._batches: defaultdict[str, asyncio.Queue[Sequence[bytes]]] = defaultdict(asyncio.Queue)

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Response:
        """A list, in one page."""
        del params, accept
        return Response(200, {}, self._bodies.get(path, _list(())))

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float, accept: str = JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch."""
        del params, silence_seconds, accept
        yield self._lines(path)

    async def feed(self, path: str, lines: Sequence[bytes]) -> None:
        """Let these lines come on the collection's watch, and return when each is taken."""
        await self._batches[path].put(lines)
        await self._batches[path].join()

    async def _lines(self, path: str) -> AsyncIterator[bytes]:
        batches = self._batches[path]
        while True:
            for line in await batches.get():
                yield line
            batches.task_done()


def _list(items: Sequence[Json]) -> bytes:
    return orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": list(items)})
