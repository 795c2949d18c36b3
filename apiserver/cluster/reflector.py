"""The reflector: keeps a handler told of every object of one collection, by a list and then a watch, for ever.

Each function adds one policy: `_follow` never gives up, `_list` tells a complete state, `_list_pages` survives a list
that expires while it is read, `_watch` follows one stream to its end; `_probe` asks how new it all is. What follows a
failure is decided by `must_list_after` and `Backoff`.

Source: client-go tools/cache/reflector.go (1.37), without its WatchList mode.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import GenericAlias
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import msgspec

from apiserver.cluster.client import ClusterError, ClusterUnreachableError, Response, SilenceError, Status
from apiserver.cluster.collection import JSON, Collection, unchanged
from apiserver.cluster.freshness import PROBE_SECONDS, Freshness
from apiserver.cluster.salvage import split_items, without_nulls

logger = logging.getLogger(__name__)
FAILURES = f"{__name__}.failures"
"""Logger of attempts that failed; who shows them in another way turns it down."""

_failures = logging.getLogger(FAILURES)

T = TypeVar("T")

CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
MALFORMED = (msgspec.DecodeError, RecursionError)
"""What decoding raises; the second for nesting deeper than Python's stack."""

_HEAD_BYTES = 8192
"""Within which the metadata of a list end."""

RELIST_AFTER_FAILURES = 5
"""Failed watches in a row after which a server error is taken to lie with the version that is asked for."""


class Transport(Protocol):
    """What is needed of a ClusterClient."""

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Response:
        """Read one page of a list."""

    def stream(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float, accept: str = JSON
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch, line by line."""


class Handler(Protocol[T]):
    """Who is told. The calls come in order and without an await between a list and its rejections."""

    def replace(self, objects: list[T]) -> None:
        """Take the complete collection: what is not in it is gone, and so is every earlier rejection."""

    def apply(self, event_type: str, obj: T) -> None:
        """Take one change: ADDED or MODIFIED with the object as it is, DELETED with its last state."""

    def reject(self, name: str, reason: str) -> None:
        """Hear of an object that is there and cannot be read, or no longer.

        Args:
            name: `namespace/name`, or the name alone without a namespace; empty if even that can't be read.
            reason: what is wrong with it.
        """


@dataclass(frozen=True, slots=True)
class Pace:
    """The times a reflector keeps, in seconds.

    Attributes:
        silence: without a byte before a stream is given up; a live one mostly gets a bookmark once a minute.
        watch: a stream is asked to last between this and twice this.
        short_watch: a stream that ends sooner and brought nothing counts as failed.
        first_pause: after the first failure; doubled with each further one.
        longest_pause: what doubling ends at, when the server answers and refuses.
        longest_absence_pause: what it ends at while nobody answers, so that the return is soon seen; an attempt on a
            server that is away costs it nothing.
        healthy: without a failure before the pauses start anew.
        probe: between two questions how new the cluster is.
        stale: age at which a stream is opened anew.
    """

    silence: float = 90
    watch: float = 300
    short_watch: float = 1
    first_pause: float = 0.8
    longest_pause: float = 30
    longest_absence_pause: float = 2
    healthy: float = 120
    probe: float = PROBE_SECONDS
    stale: float = 180


DEFAULT_PACE = Pace()


class Backoff:
    """Pauses that double from failure to failure; a random half of each keeps replicas apart.

    Args:
        pace: the times.
        rng: where the random half comes from.
    """

    def __init__(self, pace: Pace, rng: random.Random) -> None:
        self._pace = pace
        self._rng = rng
        self._pause = pace.first_pause
        self._was_absent = False

    def next(self, *, ran_for: float, at_least: float = 0, absent: bool = False) -> float:
        """Seconds to wait after a failure.

        Args:
            ran_for: seconds since the last pause ended.
            at_least: what the server asked for.
            absent: nobody answered. A server that is back begins with refusals, which are no sequel to its absence.
        """
        if ran_for >= self._pace.healthy or absent != self._was_absent:
            self._pause = self._pace.first_pause
        self._was_absent = absent
        longest = self._pace.longest_absence_pause if absent else self._pace.longest_pause
        pause, self._pause = min(self._pause, longest), min(2 * self._pause, longest)
        return max(pause * (1 + self._rng.random()) / 2, at_least)


class WatchEndedAtOnceError(ClusterUnreachableError):
    """A stream ended at once and brought nothing; opening it again without a pause would be a hot loop."""


class StaleError(ClusterUnreachableError):
    """A stream goes on but stays behind."""


class UnreadableError(ClusterError):
    """What came is not what Kubernetes sends."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreadable", message)


class ListMeta(msgspec.Struct):
    """metadata of a list."""

    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T]):
    """A list, or one page of it."""

    metadata: ListMeta
    items: list[T] | None = None


class Event(msgspec.Struct, Generic[T]):
    """One line of a watch."""

    type: str
    object: T


class Identity(msgspec.Struct, rename="camel"):
    """metadata of an object, as far as it says which object it is and in which version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class Stub(msgspec.Struct):
    """An object of which only the identity is read."""

    metadata: Identity = msgspec.field(default_factory=Identity)

    @property
    def name(self) -> str:
        """`namespace/name`, or the name alone."""
        return f"{self.metadata.namespace}/{self.metadata.name}".removeprefix("/")


@dataclass(slots=True)
class Listing(Generic[T]):
    """A complete list.

    Attributes:
        version: where to watch from.
        objects: what could be read.
        rejected: name and reason of what could not.
    """

    version: str = ""
    objects: list[T] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Counters:
    """What a reflector has done since it began; `listed` are the objects of the latest list, as far as it has come."""

    lists: int = 0
    relists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0
    silences: int = 0
    rejected: int = 0
    listed: int = 0


class Decoder(Generic[T]):
    """Bytes of the wire to what is kept of the objects of one collection.

    An object that does not fit the type costs only itself. Everything else that does not fit raises UnreadableError.

    Args:
        item_type: the msgspec type of an object; one with metadata has their resource_version.
        read: what of it is kept.

    Attributes:
        read: the same.
    """

    def __init__(self, item_type: type[Any], read: Callable[[Any], T] = unchanged) -> None:
        self.read = read
        self._tells_version = hasattr(item_type, "metadata")  # a plain mapping does not
        self._page: msgspec.json.Decoder[Page[Any]] = msgspec.json.Decoder(GenericAlias(Page, (item_type,)))
        self._event: msgspec.json.Decoder[Event[Any]] = msgspec.json.Decoder(GenericAlias(Event, (item_type,)))
        self._item = msgspec.json.Decoder(item_type)
        self._raw_page = msgspec.json.Decoder(Page[msgspec.Raw])
        self._stub = msgspec.json.Decoder(Stub)
        self._stub_event = msgspec.json.Decoder(Event[Stub])
        self._raw_event = msgspec.json.Decoder(Event[msgspec.Raw])
        self._item_type = item_type
        self._error_event = msgspec.json.Decoder(Event[Status])

    def add_page(self, listing: Listing[T], body: bytes) -> str:
        """Add one page of a list; the token of the next page, empty after the last."""
        try:
            page = self._page.decode(body)
        except MALFORMED:
            return self._add_page_singly(listing, body)
        listing.version = listing.version or page.metadata.version
        listing.objects += map(self.read, page.items or ())
        return page.metadata.token

    def token_ahead(self, body: bytes) -> str:
        """The token of the next page, if the head of this one tells it, as Kubernetes writes it; else empty."""
        head, found, _ = body[:_HEAD_BYTES].partition(b',"items":[')
        try:
            return self._raw_page.decode(head + b"}").metadata.token if found else ""
        except MALFORMED:
            return ""

    def version(self, body: bytes) -> str:
        """The version of a list."""
        try:
            return self._raw_page.decode(body).metadata.version
        except MALFORMED as error:
            raise UnreadableError(f"a list: {error}") from error

    def event(self, line: bytes) -> Event[Any] | None:
        """An event with its object as the wire has it, not `read` yet; None for one that needs a closer look.

        Nearly all fit, and to parse each twice, once to know what it is, would take half as long again.
        """
        if not self._tells_version:
            return None
        try:
            return self._event.decode(line)
        except MALFORMED:
            return None

    def head(self, line: bytes) -> Event[Stub]:
        """The type of an event and which object it is about."""
        try:
            return self._stub_event.decode(line)
        except MALFORMED as error:
            raise UnreadableError(f"an event: {error}") from error

    def change(self, line: bytes) -> T:
        """The object of an event; one that does not fit raises as in MALFORMED."""
        try:
            return self.read(self._event.decode(line).object)
        except msgspec.ValidationError:
            return self._read_item(self._raw_event.decode(line).object)

    def error(self, line: bytes) -> ClusterError:
        """The failure that an ERROR event carries."""
        try:
            return self._error_event.decode(line).object.error()
        except MALFORMED as error:
            return UnreadableError(f"an ERROR event: {error}")

    def _add_page_singly(self, listing: Listing[T], body: bytes) -> str:
        """The same object by object, to find those that don't fit."""
        page, items = self._split_page(body)
        listing.version = listing.version or page.metadata.version
        for raw in items:
            try:
                listing.objects.append(self._read_item(raw))
            except MALFORMED as error:
                listing.rejected.append((self._name(raw), str(error)))
        return page.metadata.token

    def _split_page(self, body: bytes) -> tuple[Page[msgspec.Raw], Sequence[bytes | msgspec.Raw]]:
        try:
            page = self._raw_page.decode(body)
        except MALFORMED as error:
            split = split_items(body)
            if split is None:
                raise UnreadableError(f"a list: {error}") from error
            head, items = split
            try:
                return self._raw_page.decode(head), items
            except MALFORMED:
                raise UnreadableError(f"a list: {error}") from error
        return page, page.items or ()

    def _read_item(self, raw: bytes | msgspec.Raw) -> T:
        """One object that did not fit at first sight: a null is what is not there, as in Go."""
        try:
            return self.read(self._item.decode(raw))
        except msgspec.ValidationError as error:
            try:
                return self.read(msgspec.convert(without_nulls(raw), self._item_type))
            except MALFORMED:
                raise error from None

    def _name(self, raw: bytes | msgspec.Raw) -> str:
        try:
            return self._stub.decode(raw).name
        except MALFORMED:
            return ""


class Reflector(Generic[T]):
    """Keeps a handler told of one collection.

    Args:
        transport: the way to the API server.
        collection: what to list and watch.
        handler: who is told.
        pace: the times to keep.
        rng: spreads pauses and the lengths of watches.

    Attributes:
        collection: what is listed and watched.
        counters: what was done.
        last_resource_version: what the handler has been told up to.
        last_error: why the latest attempt failed, for people; None once it works again.
        last_status: HTTP status of that failure, 0 without an answer; None once it works again.
    """

    def __init__(
        self,
        transport: Transport,
        collection: Collection[T],
        handler: Handler[T],
        *,
        pace: Pace = DEFAULT_PACE,
        rng: random.Random | None = None,
    ) -> None:
        self.collection = collection
        self.counters = Counters()
        self.last_resource_version = ""
        self.last_error: str | None = None
        self.last_status: int | None = None
        self._transport = transport
        self._handler = handler
        self._pace = pace
        self._rng = rng or random.SystemRandom()
        self._decoder = Decoder(collection.item_type, collection.read)
        self._backoff = Backoff(pace, self._rng)
        self._must_list = True
        self._synced = asyncio.Event()
        self._resumed = 0.0
        self._failures_in_a_row = 0
        self._known_bad: set[str] = set()
        self._freshness = Freshness()
        self._stream_limit: asyncio.Timeout | None = None

    @property
    def synced(self) -> bool:
        """Whether the handler has been given a complete list at least once."""
        return self._synced.is_set()

    @property
    def age(self) -> float | None:
        """Seconds since the latest time up to which the handler is known to have been told everything."""
        return self._freshness.age(_now())

    @property
    def told_until(self) -> float | None:
        """That time, on the clock of the event loop; None before the first list. It only grows."""
        return self._freshness.told_until

    def is_older(self, seconds: float) -> bool:
        """Whether there was a complete list, and the age is more than so many seconds."""
        age = self._freshness.age(_now())
        return age is not None and age > seconds

    async def wait_synced(self) -> None:
        """Wait for the first complete list."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Follow the collection for ever; ends only when cancelled, or by a fault of the handler."""
        probing = asyncio.create_task(self._probe(), name=f"probe {self.collection.name}")
        try:
            await self._follow()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    async def _probe(self) -> NoReturn:
        """Ask now and then which version the cluster has, and open a stream anew that stays too far behind."""
        while True:
            await asyncio.sleep(self._pace.probe)
            began = _now()
            try:
                params = self._selection() | {"limit": "1"}
                response = await self._transport.get(self.collection.path, params, accept=self.collection.accepts_list)
                self._freshness.probed(began, self._decoder.version(response.body))
            except ClusterError as error:
                logger.debug("%s: how new it is could not be asked: %s", self.collection.name, error)
            if self._stream_limit is not None and self.is_older(self._pace.stale):
                self._stream_limit.reschedule(_now())

    async def _follow(self) -> NoReturn:
        """List, watch, and after whatever failure go on."""
        self._resumed = _now()
        while True:
            try:
                if self._must_list:
                    await self._list()
                await self._watch_while_fresh()
            except SilenceError:
                # No failure: a server that has had no events at all since it started sends no bookmarks either.
                self.counters.silences += 1
                logger.info("%s: nothing came for %g s, opening a new watch", self.collection.name, self._pace.silence)
            except ClusterError as error:
                self._note_failure(error)
                pause = self._backoff.next(
                    ran_for=_now() - self._resumed, at_least=error.retry_after or 0, absent=is_absence(error)
                )
                await asyncio.sleep(pause)
                self._resumed = _now()

    async def _list(self) -> None:
        """Tell the handler the complete state."""
        began = _now()
        self.counters.lists += 1
        self.counters.relists += self.synced
        listing = await self._list_pages()
        if not listing.version:
            raise UnreadableError("a list without resourceVersion, which no watch can follow")
        self._known_bad.intersection_update(name for name, _ in listing.rejected)
        self._handler.replace(listing.objects)
        for name, reason in listing.rejected:
            self._reject(name, reason)
        self._must_list = False
        self._freshness.listed(began, listing.version)
        self._note_news(listing.version)
        self._synced.set()

    async def _list_pages(self) -> Listing[T]:
        """List in pages; if the list expires while it is read, at once and whole. Source: client-go tools/pager."""
        try:
            return await self._read_pages({"limit": str(self.collection.page_size)})
        except ClusterError as error:
            if not is_expired(error):
                raise
            logger.info("%s: the list expired between pages, reading it whole", self.collection.name)
            return await self._read_pages({})

    async def _read_pages(self, params: dict[str, str]) -> Listing[T]:
        """Read one consistent list to its end. Its version is that of the first page."""
        listing: Listing[T] = Listing()
        coming = asyncio.create_task(self._page(params))
        try:
            while True:
                body = (await coming).body
                ahead = self._decoder.token_ahead(body)
                if ahead:
                    coming = asyncio.create_task(self._page({**params, "continue": ahead}))
                    await asyncio.sleep(0)  # it is on its way before the event loop is held by this one
                token = self._decoder.add_page(listing, body)
                self.counters.listed = len(listing.objects) + len(listing.rejected)
                if not token:
                    return listing
                if token != ahead:
                    coming.cancel()
                    coming = asyncio.create_task(self._page({**params, "continue": token}))
        finally:
            coming.cancel()

    async def _page(self, params: Mapping[str, str]) -> Response:
        selected = self._selection() | dict(params)
        return await self._transport.get(self.collection.path, selected, accept=self.collection.accepts_list)

    async def _watch_while_fresh(self) -> None:
        """Follow one stream, unless it is found to be too far behind."""
        try:
            async with asyncio.timeout(None) as self._stream_limit:
                await self._watch()
        except TimeoutError as error:
            raise StaleError(f"told of nothing newer for {self.age or 0:.0f} s, though it goes on") from error
        finally:
            self._stream_limit = None

    async def _watch(self) -> None:
        """Follow one stream to its end."""
        self.counters.watches += 1
        opened, seen = _now(), self._news
        params = self._selection() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.last_resource_version,
            "timeoutSeconds": str(int(self._pace.watch * (1 + self._rng.random()))),
        }
        silence, accept = self._pace.silence, self.collection.accepts_watch
        async with self._transport.stream(
            self.collection.path, params, silence_seconds=silence, accept=accept
        ) as lines:
            async for line in lines:
                self._take(line)
        if self._news == seen and _now() - opened < self._pace.short_watch:
            raise WatchEndedAtOnceError("the watch ended at once and brought nothing")
        self._note_well()

    def _take(self, line: bytes) -> None:
        """Tell the handler of one event."""
        event = self._decoder.event(line)
        if event is None or event.type not in CHANGES:
            self._take_closely(line)
            return
        self.counters.events += 1
        self._handler.apply(event.type, self._decoder.read(event.object))
        self._note_news(event.object.metadata.resource_version)

    def _take_closely(self, line: bytes) -> None:
        """The same for what is no change, or does not fit."""
        event = self._decoder.head(line)
        if event.type == "ERROR":
            raise self._decoder.error(line)
        if event.type in CHANGES:
            self.counters.events += 1
            self._change(event, line)
        elif event.type == "BOOKMARK":
            self.counters.bookmarks += 1
        self._note_news(event.object.metadata.resource_version)

    def _change(self, event: Event[Stub], line: bytes) -> None:
        try:
            obj = self._decoder.change(line)
        except MALFORMED as error:
            self._reject(event.object.name, str(error))
            if event.type == "DELETED":
                # The handler must hear that it is gone, rather than unreadable, and a list is how it hears that.
                raise UnreadableError(f"the last state of {event.object.name}: {error}") from error
        else:
            self._handler.apply(event.type, obj)

    def _reject(self, name: str, reason: str) -> None:
        """Tell the handler of an object that can't be read, and the log when it is a new one."""
        self.counters.rejected += 1
        if name not in self._known_bad:
            self._known_bad.add(name)
            logger.warning("%s: %s cannot be read: %s", self.collection.name, name or "one", reason)
        self._handler.reject(name, reason)

    def _selection(self) -> dict[str, str]:
        """The query that lists and watches share."""
        selector = self.collection.field_selector
        return {"fieldSelector": selector} if selector else {}

    @property
    def _news(self) -> int:
        return self.counters.events + self.counters.bookmarks

    def _note_news(self, version: str) -> None:
        """The handler is as new as this version."""
        self._freshness.reached(version)
        self.last_resource_version = version or self.last_resource_version
        self._note_well()

    def _note_well(self) -> None:
        """Whatever failed before works again."""
        self._failures_in_a_row = 0
        if self.last_error is not None:
            logger.info("%s: going on at version %s", self.collection.name, self.last_resource_version)
            self.last_error = self.last_status = None

    def _note_failure(self, error: ClusterError) -> None:
        self.counters.failures += 1
        self._failures_in_a_row += 1
        # What is old already is made new by a list at once, by a watch only with its next bookmark.
        is_old = self.is_older(self._pace.stale / 2)
        self._must_list = self._must_list or is_old or must_list_after(error, self._failures_in_a_row)
        message = str(error)
        level = logging.DEBUG if message == self.last_error else logging.WARNING
        _failures.log(level, "%s: %s", self.collection.name, message)
        self.last_error, self.last_status = message, error.status


def is_expired(error: ClusterError) -> bool:
    """Whether the version or the page asked for is no longer kept."""
    return error.status == HTTPStatus.GONE or error.reason in {"Expired", "Gone"}


def is_absence(error: ClusterError) -> bool:
    """Whether nobody answered, as opposed to an answer of no use."""
    return isinstance(error, ClusterUnreachableError) and not isinstance(error, WatchEndedAtOnceError | StaleError)


def must_list_after(error: ClusterError, failures_in_a_row: int) -> bool:
    """Whether a watch that failed so can't be taken up where it broke off.

    It can after whatever the network does and after a server that is too busy. It can't after an expired version,
    nor after a refusal, whose cause may have changed the collection. A server error gets some attempts first.
    """
    if isinstance(error, ClusterUnreachableError) or error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return False
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_expired(error):
        return failures_in_a_row >= RELIST_AFTER_FAILURES
    return True


def _now() -> float:
    return asyncio.get_running_loop().time()
