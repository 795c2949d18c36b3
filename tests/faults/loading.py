"""The load: readers that list and watchers that keep a copy, all the while, in an event loop of their own."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp

from tests.cluster.catalog import API
from tests.cluster.pki import KeyPair
from tests.faults.figures import Figures, Json, told
from tests.faults.judging import Told
from tests.loops import PatientLoop

T = TypeVar("T")
CLASSES: Final = f"{API}/gpuclasses"
READ_PAUSE_SECONDS: Final = 0.25
WATCH_PAUSE_SECONDS: Final = 0.5
WATCH_SECONDS: Final = 60
TIMEOUT_SECONDS: Final = 10
CALL_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Target:
    """Where and as whom the load asks.

    Attributes:
        name: of the server and the way to it.
        url: where.
        context: TLS as the caller.
    """

    name: str
    url: str
    context: ssl.SSLContext


def client_context(authority: Path, certificate: KeyPair) -> ssl.SSLContext:
    """TLS as the holder of a certificate; its files are read at once, for whoever asks next has them written anew."""
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


@dataclass(frozen=True, slots=True)
class Refused:
    """A request without figures: when it was sent and answered, and what came instead, in a few words."""

    server: str
    asked: float
    answered: float
    what: str
    body: str = ""


@dataclass(slots=True)
class Copy:
    """What one watcher holds.

    Attributes:
        server: whom it watches.
        state: figures by class.
        lists: how often it listed.
        watches: how many watches it began.
    """

    server: str
    state: dict[str, Figures] = field(default_factory=dict)
    lists: int = 0
    watches: int = 0


class Load:
    """Readers and watchers for as long as a `with` block lasts.

    Attributes:
        told: every answer with figures and every event.
        refused: every other answer of a read.
        copies: one for each watcher.
    """

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.refused: list[Refused] = []
        self.copies: list[Copy] = []
        self._loop = PatientLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._intern: dict[tuple[tuple[str, Figures], ...], Mapping[str, Figures]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T], timeout_seconds: float = CALL_SECONDS) -> T:
        """Run something in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_seconds)

    def begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run something in the loop until it ends or is cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def add(self, target: Target, *, readers: int, watchers: int) -> list[Future[None]]:
        """Let so many readers and watchers begin."""
        begun = [self.begin(self._read(target)) for _ in range(readers)]
        for _ in range(watchers):
            copy = Copy(target.name)
            self.copies.append(copy)
            begun.append(self.begin(self._watch(target, copy)))
        return begun

    async def _read(self, target: Target) -> None:
        async with _session(target) as session:
            while True:
                asked = time.time()
                try:
                    async with session.get(CLASSES) as response:
                        body = await response.read()
                        self._take(target.name, asked, response.status, body)
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    self.refused.append(Refused(target.name, asked, time.time(), type(error).__name__))
                await asyncio.sleep(READ_PAUSE_SECONDS)

    def _take(self, name: str, asked: float, code: int, body: bytes) -> None:
        now = time.time()
        if code != HTTPStatus.OK:
            self.refused.append(Refused(name, asked, now, str(code), body[:300].decode(errors="replace")))
            return
        figures = {item["metadata"]["name"]: told(item) for item in json.loads(body)["items"]}
        self.told.append(Told("reader", name, asked, now, self._same(figures)))

    def _same(self, figures: dict[str, Figures]) -> Mapping[str, Figures]:
        """The same figures once only: an hour of load then fits into memory."""
        return self._intern.setdefault(tuple(sorted(figures.items())), figures)

    async def _watch(self, target: Target, copy: Copy) -> None:
        async with _session(target) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, _BeginAnewError):
                    await self._follow(session, copy)
                await asyncio.sleep(WATCH_PAUSE_SECONDS)

    async def _follow(self, session: aiohttp.ClientSession, copy: Copy) -> None:
        """List, then watch after watch, until one ends badly."""
        async with session.get(CLASSES) as response:
            if response.status != HTTPStatus.OK:
                raise _BeginAnewError
            answer: Json = json.loads(await response.read())
        copy.lists += 1
        copy.state = {item["metadata"]["name"]: told(item) for item in answer["items"]}
        version = answer["metadata"]["resourceVersion"]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS, sock_read=WATCH_SECONDS + 30)
        while True:
            query = f"watch=1&allowWatchBookmarks=1&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
            async with session.get(f"{CLASSES}?{query}", timeout=timeout) as response:
                if response.status != HTTPStatus.OK:
                    raise _BeginAnewError
                copy.watches += 1
                while line := await response.content.readline():
                    version = self.hear(copy, json.loads(line))

    def hear(self, copy: Copy, event: Json) -> str:
        """Take what a watcher was told into its copy, and return the version it has come to."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise _BeginAnewError
        name, version = item["metadata"].get("name", ""), item["metadata"]["resourceVersion"]
        if kind == "DELETED":
            copy.state.pop(name, None)
        elif kind != "BOOKMARK":
            now, figures = time.time(), told(item)
            copy.state[name] = figures
            self.told.append(Told("watcher", copy.server, now, now, self._same({name: figures}), is_list=False))
        return str(version)


class _BeginAnewError(Exception):
    """A watch that cannot be taken up where it ended."""


def _session(target: Target) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=target.context, limit=4)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    return aiohttp.ClientSession(target.url, connector=connector, timeout=timeout)
