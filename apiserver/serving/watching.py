"""Watches: what is told, and when, to who follows a collection.

Each batch of events is written before the next is asked for, so a slow reader holds back nobody but itself.
Source: apiserver pkg/endpoints/handlers/watch.go and pkg/storage/cacher of Kubernetes 1.37.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from apiserver.serving.history import ADDED, DELETED, MODIFIED, Change, ForgottenError, Key, Stored
from apiserver.serving.options import ListOptions
from apiserver.serving.pages import is_selected, key_of
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
        object: what it is about; for ERROR a Status.
        body: the object in JSON, where that exists already.
    """

    type: str
    object: Mapping[str, Any]
    body: bytes | None = None


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

    async def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        """The events, as they come, those that come together in one batch. The first may be empty.

        Raises:
            StatusError: the watch cannot begin; only before the first batch.
        """
        async with self.store.watching():
            await self.store.wait_until_fresh(self.options.resource_version)
            position, first = self._begin()
            yield first
            if position is not None:
                async for batch in self._follow(position):
                    yield batch

    def _begin(self) -> tuple[int | None, Sequence[Event]]:
        """Where in the history the watch begins, None if nowhere, and what comes before that."""
        history, version = self.store.history, self.options.resource_version
        if not self.options.send_initial_events and version is not None:
            position = history.position(version)
            if position is not None:
                return position, ()
            if not is_surely_later(version, than=history.horizon):
                message = f"too old resource version: {version} ({history.horizon})"
                return None, [Event(ERROR, Expired(message).body())]
        return history.end, self._initial()

    async def _follow(self, position: int) -> AsyncIterator[Sequence[Event]]:
        ends = self.clock() + self.lasts
        bookmark_at = self._next_bookmark(ends)
        is_closing = False
        while not is_closing and self.clock() < ends:
            is_closing = self.closing.is_set()
            if is_closing and self.options.allow_watch_bookmarks:
                bookmark_at = -math.inf  # so that another replica can take the watch up from now
            news = self.store.news
            try:
                mark = self.store.mark() if self.clock() >= bookmark_at else None
                changes = self.store.history.since(position)
            except (ForgottenError, StatusError):
                return  # too slow for what is remembered, or no true answer at present: the client begins anew
            position += len(changes)
            events = [event for change in changes for event in self._told(change)]
            if mark is not None:
                events.append(self._bookmark(mark))
                bookmark_at = self._next_bookmark(ends)
            if events:
                yield events
            elif not changes and not is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(ends, bookmark_at) - self.clock()):
                        await news.wait()

    def _initial(self) -> list[Event]:
        """All objects as they are, every deletion that is remembered if a version is taken up, and the closing mark."""
        store, options = self.store, self.options
        listing = store.list()
        events = [Event(ADDED, item.object, item.body) for item in listing.items if self._selects(item)]
        if options.resource_version is not None and not options.send_initial_events:
            events += self._gone({key_of(item) for item in listing.items if self._selects(item)})
        if options.marks_initial_events:
            events.append(self._bookmark(int(listing.version), {INITIAL_EVENTS_END: "true"}))
        return events

    def _gone(self, present: AbstractSet[Key]) -> Iterator[Event]:
        """A deletion of each object that was selected at any time that is remembered, and is not any more."""
        last = {
            change.key: (change.before, change.version)
            for change in self.store.history.remembered()
            if change.before is not None and self._selects(change.before)
        }
        for key, (known, version) in last.items():
            if key not in present:
                yield _last_state(known, version)

    def _told(self, change: Change) -> Iterator[Event]:
        """What of a change this watch is told."""
        if change.now is None:
            return
        before = change.before is not None and self._selects(change.before)
        now = change.type != DELETED and self._selects(change.now)
        if now:
            yield Event(MODIFIED if before else ADDED, change.now.object, change.now.body)
        elif before and change.before is not None:
            yield _last_state(change.before, change.version)

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


def _last_state(known: Stored, version: int) -> Event:
    """The end of an object for a watch: the last state that it knew, at the version of the end."""
    metadata = {**known.object["metadata"], "resourceVersion": str(version)}
    return Event(DELETED, {**known.object, "metadata": metadata})
