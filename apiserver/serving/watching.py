"""Watches: what is told, and when, to who follows a collection.

Each batch of events is written before the next is asked for, so a slow reader holds back nobody but itself.
Source: apiserver pkg/endpoints/handlers/watch.go and pkg/storage/cacher of Kubernetes 1.37.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from apiserver.serving.history import ADDED, DELETED, MARK, MODIFIED, Change, ForgottenError, History, Key, Stored
from apiserver.serving.options import ListOptions
from apiserver.serving.pages import is_selected
from apiserver.serving.selectors import Selection
from apiserver.serving.status import Expired, StatusError
from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import is_surely_later

BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

BOOKMARK_SECONDS: Final = 60
LAST_BOOKMARK_SECONDS: Final = 2
"""How long before its end a watch gets a last bookmark, to be taken up from there."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch.

    Attributes:
        type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
        what: it is about; for ERROR a Status.
    """

    type: str
    what: Stored | Mapping[str, Any]

    @property
    def object(self) -> Mapping[str, Any]:
        """What it is about, read."""
        return self.what.object if isinstance(self.what, Stored) else self.what

    @property
    def body(self) -> bytes | None:
        """The same in JSON, where that exists already."""
        return self.what.body if isinstance(self.what, Stored) else None


class Batch(list[Event]):
    """Events that are told together, and perhaps to many.

    Attributes:
        lines: the same as lines of JSON, once somebody has written them.
    """

    lines: bytes | None = None


Sink = Callable[[Batch], bool]
"""Takes a batch of events if it can at once; whether it did."""

_MADE_AT_MOST: Final = 64
"""How many batches are kept for others; they are forgotten with the next change."""


def _takes_nothing(_: Batch) -> bool:
    """A sink for those who ask for each batch."""
    return False


@dataclass(frozen=True, slots=True)
class Watch:
    """One watch.

    Attributes:
        store: what is followed.
        namespace: the one namespace, or "" for all.
        selection: the objects it is about; one that leaves the selection is DELETED, one that enters it ADDED.
        options: how it begins and what it may carry.
        lasts: seconds until it ends.
        closing: set when the server ends.
        type_meta: kind and apiVersion of the objects, for bookmarks.
        clock: seconds that only grow.
    """

    store: ResourceStore
    namespace: str
    selection: Selection
    options: ListOptions
    lasts: float
    closing: asyncio.Event
    type_meta: Mapping[str, str]
    clock: Callable[[], float] = time.monotonic

    async def batches(self, sink: Sink = _takes_nothing) -> AsyncGenerator[Sequence[Event], None]:
        """The events, as they come, those that come together in one batch. The first may be empty.

        Args:
            sink: offered, while the next batch is waited for, what there is to tell; what it takes does not come again.

        Raises:
            StatusError: the watch cannot begin; only before the first batch.
        """
        async with self.store.watching():
            await self.store.wait_until_fresh(self.options.resource_version)
            history, version = self.store.history, self.options.resource_version
            first: Sequence[Event] = ()
            place = _Place(history.end)
            if version is None or self.options.send_initial_events:
                first = self._initial()
            elif (own := history.position(version)) is not None:
                place.position = own
            elif is_surely_later(version, than=self.store.horizon):
                first, place.is_taken_up = [*self._initial(), *self._gone()], True
            else:
                message = f"too old resource version: {version} ({self.store.horizon})"
                yield [Event(ERROR, Expired(message).body())]
                return
            yield first
            alarm = _Alarm(self.clock)
            try:
                async for batch in self._follow(place, alarm, sink):
                    yield batch
            finally:
                alarm.stop()

    async def _follow(self, place: "_Place", alarm: "_Alarm", sink: Sink) -> AsyncIterator[Sequence[Event]]:
        ends = self.clock() + self.lasts
        tell = partial(self._tell, place, sink)
        bookmark_at = self._next_bookmark(ends)
        is_closing = False
        while not is_closing and self.clock() < ends:
            is_closing = self.closing.is_set()
            if is_closing and self.options.allow_watch_bookmarks:
                bookmark_at = -math.inf  # so that another replica can take the watch up from now
            try:
                mark = self.store.mark() if self.clock() >= bookmark_at else None
                changes = self.store.history.since(place.position)
            except (ForgottenError, StatusError):
                return  # too slow for what is remembered, or no true answer at present: the client begins anew
            place.position += len(changes)
            events = self._events(fold(changes) if self.store.pause_seconds else changes, place)
            if mark is not None:
                events.append(self._bookmark(mark))
                bookmark_at = self._next_bookmark(ends)
            if events:
                yield events
                await self._pause(ends)
            elif not changes and not is_closing:
                await self.store.news(alarm.waiter(min(ends, bookmark_at)), tell)

    def _tell(self, place: "_Place", sink: Sink, history: History) -> bool:
        """Have the sink take at once what is new; where it does not, or the watch is to end, nothing is done."""
        if self.closing.is_set() or self.store.pause_seconds:
            return False
        # Most who watch watch the same: what is made for the first of them is there for all.
        alike = place.position, self.selection, self.namespace, place.is_taken_up
        batch: Batch | None = history.made.get(alike)
        if batch is None:
            try:
                batch = Batch(self._events(history.since(place.position), place))
            except ForgottenError:
                return False
            if len(history.made) < _MADE_AT_MOST:
                history.made[alike] = batch
        if batch and not sink(batch):
            return False
        place.position = history.end
        return True

    async def _pause(self, ends: float) -> None:
        """Let changes come together, if the store wants it so."""
        seconds = min(self.store.pause_seconds, ends - self.clock())
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.closing.wait()

    def _initial(self) -> list[Event]:
        """All objects as they are, and the closing mark if one is wanted."""
        listing = self.store.list()
        events = [Event(ADDED, item) for item in listing.items if self._selects(item)]
        if self.options.marks_initial_events:
            events.append(self._bookmark(int(listing.version), {INITIAL_EVENTS_END: "true"}))
        return events

    def _gone(self) -> Iterator[Event]:
        """A deletion of each object that was selected at any time that is remembered, and is not any more."""
        present = {item.key for item in self.store.list().items if self._selects(item)}
        last = {
            change.key: (change.before, change.version)
            for change in self.store.remembered()
            if change.before is not None and self._selects(change.before)
        }
        for key, (known, version) in last.items():
            if key not in present:
                yield _last_state(known, version)

    def _events(self, changes: Iterable[Change], place: "_Place") -> list[Event]:
        """What a watch is told of the changes; one taken up from elsewhere also of the end of what never was here."""
        events = []
        for change in changes:
            before = change.before if change.before is not None and self._selects(change.before) else None
            if change.now is not None and change.type != DELETED and self._selects(change.now):
                events.append(Event(ADDED if before is None else MODIFIED, change.now))
            elif before is not None and (change.now is not None or place.is_taken_up):
                events.append(_last_state(before, change.version))
        return events

    def _selects(self, item: Stored) -> bool:
        return is_selected(item, self.namespace, self.selection)

    def _bookmark(self, version: int, annotations: Mapping[str, str] | None = None) -> Event:
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return Event(BOOKMARK, {**self.type_meta, "metadata": metadata})

    def _next_bookmark(self, ends: float) -> float:
        """When the next bookmark is due: in a minute, or just before the end; never, if the client wants none."""
        if not self.options.allow_watch_bookmarks:
            return math.inf
        now, last = self.clock(), ends - LAST_BOOKMARK_SECONDS
        return min(now + BOOKMARK_SECONDS, last) if now < last else math.inf


@dataclass(slots=True)
class _Place:
    """Where a watch is.

    Attributes:
        position: of the next change in the history.
        is_taken_up: whether it began at another replica.
    """

    position: int
    is_taken_up: bool = False


class _Alarm:
    """Ends the waiting for news at a time.

    One timer serves until the time is another: to set one for each wait costs more than to write an event.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def waiter(self, at: float) -> asyncio.Future[None]:
        """What is to be waited for: done at a time, or earlier by whoever has news."""
        loop = asyncio.get_running_loop()
        if at != self._at:
            self.stop()
            self._at, self._timer = at, loop.call_later(max(0, at - self._clock()), self._ring)
        self._waiter = loop.create_future()
        return self._waiter

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer, self._at = None, -math.inf
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def fold(changes: Iterable[Change]) -> list[Change]:
    """The same in fewer changes: one of each object, from before the first to after the last, in order of the last.

    One that came and went is only told to those who may have seen it elsewhere; one that was made again is another.
    """
    done, folded = list[Change](), dict[Key, Change]()
    for change in changes:
        earlier = folded.pop(change.key, None)
        if earlier is not None and earlier.type == DELETED:
            done.append(earlier)
            earlier = None
        if change.type == MARK:
            continue
        if earlier is None:
            folded[change.key] = change
        elif change.type != DELETED:
            folded[change.key] = replace(change, type=earlier.type, before=earlier.before)
        elif earlier.type == ADDED:
            folded[change.key] = replace(change, now=None)
        else:
            folded[change.key] = replace(change, before=earlier.before)
    return sorted([*done, *folded.values()], key=lambda change: change.version)


def _last_state(known: Stored, version: int) -> Event:
    """The end of an object for a watch: the last state that it knew, at the version of the end."""
    metadata = {**known.object["metadata"], "resourceVersion": str(version)}
    return Event(DELETED, {**known.object, "metadata": metadata})
