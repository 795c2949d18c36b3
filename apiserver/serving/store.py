"""The objects of one resource as they are served, each with the version of its last visible change."""

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from apiserver.serving.history import ADDED, DELETED, MARK, MODIFIED, Change, History, Key, Stored
from apiserver.serving.status import Expired, StatusError, TooLargeVersion
from apiserver.serving.versions import VersionSource

COALESCE_SECONDS: Final = 0.02
"""Changes of the cluster that come this close together are one change to those who watch."""

FRESH_SECONDS: Final = 3
"""For how long a request waits for a version that has not come yet."""

_FRESH_POLL_SECONDS: Final = 0.05
_MARK_SECONDS: Final = 1
_WOKEN_AT_ONCE: Final = 16
"""How many of those who watch are told before somebody else has a turn."""

Tell = Callable[[History], bool]
"""Tells somebody who waits what is new, unless that cannot be done without waiting; whether it was done."""

RETRY_SECONDS: Final = 0.1
"""Between two looks whether a true answer can be given."""


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """The objects of a resource at one version, in the order of their keys."""

    version: str
    items: Sequence[Stored]
    _bodies: dict[bytes, bytes] = field(default_factory=dict)

    def body(self, head: bytes) -> bytes:
        """The list as compact JSON; made once for all who read it at this version.

        Args:
            head: the list without items, as compact JSON.
        """
        body = self._bodies.get(head)
        if body is None:
            body = self._bodies[head] = join_list(head, self.items)
        return body


def join_list(head: bytes, items: Iterable[Stored]) -> bytes:
    """A list as compact JSON with the newline that ends it, from the list without items and the JSON of each."""
    return head[:-1] + b',"items":[' + b",".join([item.body for item in items]) + b"]}\n"


class Past(Protocol):
    """What is known of deletions beyond what a store itself has seen: it may be younger than what it stands for."""

    @property
    def horizon(self) -> int:
        """Every deletion after this version is known."""

    def deletions(self) -> Iterable[Change]:
        """Those deletions, in the order of their versions."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How a store differs that is one of several. Together they may have many objects, so it keeps little of each.

    Attributes:
        past: what went before it was made.
        catch_up: brings it up to date without holding others up.
        keep: how many changes it remembers, or one for each of its objects if those are more.
        pause_seconds: between two batches of a watch; changes in between are told as one.
    """

    past: Past
    catch_up: Callable[[], Awaitable[None]]
    keep: int
    pause_seconds: float = 0


class ResourceStore:
    """What is served of one resource, or of a part of it.

    Args:
        versions: makes the versions.
        refresh: called before every read, to bring the store up to date with put and delete; raises a StatusError
            while no true answer can be given.
        clock: seconds that only grow.
        scope: what is different when the store is one of several.

    Attributes:
        watchers: how many follow at present.
        pause_seconds: between two batches of a watch.
    """

    def __init__(
        self,
        versions: VersionSource,
        refresh: Callable[["ResourceStore"], None],
        clock: Callable[[], float] = time.monotonic,
        scope: Scope | None = None,
    ) -> None:
        self._versions = versions
        self._refresh = refresh
        self._clock = clock
        self._scope = scope
        self.pause_seconds = scope.pause_seconds if scope is not None else 0
        self._objects: dict[Key, tuple[object, Stored]] = {}  # what tells one content from another, and the object
        self._listing: Listing | None = None
        self._listed = 0  # the version of the listing
        self._history: History | None = None
        self._version = 0
        self._advanced = -math.inf
        self.watchers = 0
        self._flush: asyncio.TimerHandle | None = None
        self._waiting: dict[asyncio.Future[None], Tell] = {}
        self._opened = nullcontext(self)  # one for all requests: it holds nothing

    # What it is told.

    def put(self, key: Key, content: Mapping[str, Any]) -> None:
        """Take an object as it now is, without resourceVersion. The same content again changes nothing.

        An object of another uid is another object: the old one is deleted first.
        """
        old, likeness = self._objects.get(key), content if self._scope is None else _digest(content)
        if old is not None and old[0] == likeness:
            return
        if old is not None and old[1].object["metadata"].get("uid") != content["metadata"].get("uid"):
            self.delete(key)
            old = None
        # What is there before anything is told needs no versions of its own.
        version = self._version if self._version and self._history is None else self._advance()
        stored = self._at_version(key, content, version)
        self._objects[key] = likeness, stored
        self._listing = None
        before = None if old is None else old[1]
        self._record(Change(self._version, ADDED if old is None else MODIFIED, key, stored, before))

    def delete(self, key: Key) -> None:
        """Forget an object."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._listing = None
            last = self._at_version(key, old[1].object, self._advance())
            self._record(Change(self._version, DELETED, key, last, old[1]))

    def end(self, key: Key, last: Mapping[str, Any] | None) -> None:
        """An object went that it may not hold: it may have come and gone between two looks.

        Somebody may have seen it at another replica and has to be told of its end; to all others it never was.

        Args:
            key: of the object.
            last: what it was, without resourceVersion; None if nobody can know.
        """
        if key in self._objects:
            self.delete(key)
        elif last is not None:
            self._record(Change(self._advance(), DELETED, key, None, self._at_version(key, last, self._version)))

    def touch(self) -> None:
        """Something may have changed: bring those who watch up to date soon. Without watchers this costs nothing.

        The first complete state is taken at once, watched or not: watches from other replicas are taken up from there.
        """
        if (self.watchers or self._history is None) and self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._flush_now)

    # What it answers.

    def open(self, _: str) -> AbstractAsyncContextManager["ResourceStore"]:
        """Itself: one store holds every namespace."""
        return self._opened

    def get(self, key: Key) -> Stored | None:
        """One object, or None."""
        self._update()
        found = self._objects.get(key)
        return None if found is None else found[1]

    def list(self) -> Listing:
        """All objects now, at a version of now.

        Were it the version of the last change, a quiet replica would hand out one that a younger replica cannot take
        up, again and again.
        """
        self.mark()
        if self._listing is None or self._listed != self._version:
            items = self._listing.items if self._listing else [self._objects[key][1] for key in sorted(self._objects)]
            self._listing, self._listed = Listing(str(self._version), items), self._version
        return self._listing

    def list_at(self, version: int) -> Listing:
        """All objects as they were at a version of this store's own.

        Raises:
            Expired: the version is not its own, or no longer remembered.
        """
        history = self.history
        position = history.position(version)
        if position is None:
            raise Expired("The resourceVersion for the provided list is too old.")
        objects = {key: stored for key, (_, stored) in self._objects.items()}
        for change in reversed(history.since(position)):
            if change.now is None:  # nothing that was ever in a list
                continue
            if change.before is not None:
                objects[change.key] = change.before
            else:
                del objects[change.key]
        return Listing(str(version), [objects[key] for key in sorted(objects)])

    async def wait_until_fresh(self, version: int | None) -> None:
        """Wait, not for long, until the store is not older than a version, and so is the version it tells.

        Raises:
            TooLargeVersion: it lies in the future.
        """
        if version is None:  # whoever reads brings it up to date
            return
        if self.history.position(version) is not None:
            return
        self._versions.follow(version)
        deadline = self._clock() + FRESH_SECONDS
        while version > self._versions.now():
            if self._clock() > deadline:
                raise TooLargeVersion(version, self._version)
            await asyncio.sleep(_FRESH_POLL_SECONDS)
            self._versions.follow(version)
        if self._scope is not None:
            await self._scope.catch_up()
        self._update()
        if version > self._version:
            self._record(Change(self._advance()))

    # What watches need.

    @property
    def history(self) -> History:
        """What changed lately, up to now."""
        return self._update()

    @property
    def horizon(self) -> int:
        """From versions after this one on, a watch can be taken up."""
        history = self.history
        return history.horizon if self._scope is None else self._scope.past.horizon

    def remembered(self) -> Sequence[Change]:
        """Every change that is known; of those from before this store was made, only deletions."""
        history = self.history
        past = () if self._scope is None else self._scope.past.deletions()
        return [*past, *history.remembered()]

    def mark(self) -> int:
        """A version of now, or of a moment ago: everything up to it is in the history."""
        self._update()
        if self._clock() - self._advanced > _MARK_SECONDS:
            self._record(Change(self._advance()))
        return self._version

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While the context is open, changes are told soon after they happen."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1

    async def news(self, waiter: asyncio.Future[None], tell: Tell) -> None:
        """Wait until something changes that cannot be told at once.

        Nothing that changes after the last look is missed, if that is the last await.

        Args:
            waiter: done when there is such news; whoever else makes it so ends the waiting too.
            tell: called at each change. A task that is woken for it would cost as much again.
        """
        self._waiting[waiter] = tell
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """Make everybody look who waits for news."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            asyncio.get_running_loop().call_soon(self._wake, deque(waiting.items()))

    def _wake(self, waiting: deque[tuple[asyncio.Future[None], Tell]]) -> None:
        """Tell some now, and the others after what else has come in by then: no reader waits for all who watch."""
        history = None
        try:
            with suppress(StatusError):  # no true answer at present: each finds out by itself
                history = self._update()
        finally:
            self._ring_some(waiting, history)

    def _ring_some(self, waiting: deque[tuple[asyncio.Future[None], Tell]], history: History | None) -> None:
        try:
            for _ in range(min(_WOKEN_AT_ONCE, len(waiting))):
                self._ring(*waiting.popleft(), history)
        finally:
            if waiting:
                asyncio.get_running_loop().call_soon(self._wake, waiting)

    def _ring(self, waiter: asyncio.Future[None], tell: Tell, history: History | None) -> None:
        """Tell one, who goes on waiting, or end its waiting: what failed here fails again there, where it belongs."""
        if waiter.done():
            return
        is_told = False
        try:
            is_told = history is not None and tell(history)
        finally:
            if is_told:
                self._waiting[waiter] = tell
            else:
                waiter.set_result(None)

    def _update(self) -> History:
        """Bring the store up to date, and begin the history with the first complete state."""
        if self._history is None:
            self._refresh(self)
            self._history = History(self._version or self._advance(), self._clock)
            return self._history
        self._refresh(self)
        return self._history

    def _flush_now(self) -> None:
        self._flush = None
        try:
            self._update()
        except StatusError:  # no true answer at present: nothing is told, and it is tried again
            if self.watchers or self._history is None:
                self._flush = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._flush_now)

    def _at_version(self, key: Key, content: Mapping[str, Any], version: int) -> Stored:
        return at_version(key, content, version, lean=self._scope is not None)

    def _advance(self) -> int:
        self._version = self._versions.next()
        self._advanced = self._clock()
        return self._version

    def _record(self, change: Change) -> None:
        if self._history is not None:
            if self._scope is not None:
                self._history.keep = max(self._scope.keep, len(self._objects))
            self._history.record(change)
            if change.type != MARK:
                self.wake()


class Stores(Protocol):
    """Where the objects of a resource are read: in one store, or in one for each namespace."""

    @property
    def watchers(self) -> int:
        """How many follow at present."""

    def open(self, namespace: str) -> AbstractAsyncContextManager[ResourceStore]:
        """The store for a namespace, or for all ("" for these), for the length of a request.

        Raises:
            StatusError: no true answer can be given at present.
        """

    def wake(self) -> None:
        """Make everybody look who waits for news."""


def at_version(key: Key, content: Mapping[str, Any], version: int, *, lean: bool) -> Stored:
    """An object as it is served at a version; a lean one takes little memory, and time whenever it is looked into."""
    served = {**content, "metadata": {**content["metadata"], "resourceVersion": str(version)}}
    # What orjson gives back holds on to the room it was written in, kilobytes more; a copy is as long as it is.
    body = bytes(memoryview(orjson.dumps(served)))
    return Stored(key, body, None if lean else served)


def _digest(content: Mapping[str, Any]) -> bytes:
    return hashlib.blake2b(orjson.dumps(content), digest_size=16).digest()
