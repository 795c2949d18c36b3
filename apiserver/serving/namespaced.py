"""A resource that has an object of each name in each namespace: too many to be kept, so they are made when needed.

There is a store for each namespace that somebody reads or watches, and one for all of them together while somebody
reads across. Each is filled when it is first opened, kept up to date by what changes, and dropped when nobody has come
for a while. While it lives the versions it gave are its own, and a watch from a list misses nothing and repeats
nothing. After that they are as those of another replica: a watch from them begins with every object, and with every
deletion of the last minutes. Those are known for every namespace, read or not, because they follow from what went on
either side, and little enough goes there to be remembered.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from apiserver.serving.history import DELETED, KEEP_SECONDS, Change, Key
from apiserver.serving.status import StatusError
from apiserver.serving.store import COALESCE_SECONDS, RETRY_SECONDS, ResourceStore, Scope, at_version
from apiserver.serving.versions import VersionSource

ALL: Final = ""
"""In place of a namespace: every one of them."""

IDLE_SECONDS: Final = 60
"""How long a store is kept that nobody reads: long enough to go on from a list to a watch, or to the next page."""

IDLE_STORES: Final = 64
"""How many of them at most."""

ACROSS_SECONDS: Final = 1.0
"""Between two batches of a watch across all namespaces: one change may be visible in every one of them."""

SLICE_SECONDS: Final = 0.005
"""How long objects are made at a stretch before others get their turn."""

KEEP_CHANGES: Final = 64
"""How many changes one of the stores remembers, unless it has more objects than that."""

N = TypeVar("N")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """What became of one name or namespace.

    Attributes:
        name: of it.
        now: what there is to know of it; None when it is gone.
        gone: the last that was known of one that went, though there may be another of that name now.
    """

    name: str
    now: T | None
    gone: T | None = None


@dataclass(frozen=True, slots=True)
class _Grave(Generic[T]):
    version: int
    dug: float
    last: T


class _Side(Generic[T]):
    """The names, or the namespaces: what there is, and what went lately.

    Args:
        take: what became of which, since it was last called.
    """

    def __init__(self, take: Callable[[], Iterable[Turn[T]]]) -> None:
        self._take = take
        self.now: dict[str, T] = {}
        self.graves: dict[str, _Grave[T]] = {}

    def follow(self, version: Callable[[], int], now: float) -> set[str]:
        """Take what became of which, and return those that changed."""
        changed = set()
        for turn in self._take():
            old = self.now.get(turn.name)
            gone = old if turn.gone is None and turn.now is None else turn.gone
            if gone is not None:
                self.graves.pop(turn.name, None)
                self.graves[turn.name] = _Grave(version(), now, gone)
            elif turn.now == old:
                continue
            if turn.now is None:
                self.now.pop(turn.name, None)
            else:
                self.now[turn.name] = turn.now
            changed.add(turn.name)
        return changed

    def forget(self, before: float) -> int:
        """Forget what went before a time, and return the version of the last that did; 0 for none."""
        version = 0
        while self.graves and (grave := next(iter(self.graves.values()))).dug < before:
            version = grave.version
            del self.graves[next(iter(self.graves))]
        return version

    def last(self, name: str) -> tuple[T | None, int]:
        """What is known of a name that is or lately was, and the version at which it went; 0 while it is."""
        known = self.now.get(name)
        if known is not None:
            return known, 0
        grave = self.graves.get(name)
        return (None, 0) if grave is None else (grave.last, grave.version)


class _Scoped:
    """One of the stores.

    Attributes:
        namespace: which, or ALL.
        store: the objects.
        pending: keys of what has to be made anew.
        users: how many requests have it open.
        left: when the last of them left.
        worked: when it was last brought up to date for those who watch.
        timer: when it is next.
    """

    def __init__(self, namespace: str, store: ResourceStore, keys: Iterable[Key]) -> None:
        self.namespace = namespace
        self.store = store
        self.pending = dict.fromkeys(keys)
        self.users = 0
        self.left = 0.0
        self.worked = -math.inf
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Do nothing more for it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class NamespacedStores(Generic[N, R]):
    """The stores of one resource.

    Args:
        versions: makes the versions.
        namespaces: what became of which namespace, since it was last called.
        names: the same of the names.
        make: the object of a name in a namespace, without resourceVersion, from what is known of both.
        require: raises a StatusError while no true answer can be given.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        versions: VersionSource,
        *,
        namespaces: Callable[[], Iterable[Turn[N]]],
        names: Callable[[], Iterable[Turn[R]]],
        make: Callable[[N, R], Mapping[str, Any]],
        require: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions = versions
        self._namespaces = _Side(namespaces)
        self._names = _Side(names)
        self._make = make
        self._require = require
        self._clock = clock
        self._scopes: dict[str, _Scoped] = {}
        self._horizon = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        """How many follow at present."""
        return sum(scope.store.watchers for scope in self._scopes.values())

    @property
    def kept(self) -> int:
        """How many stores are kept at present."""
        return len(self._scopes)

    @asynccontextmanager
    async def open(self, namespace: str) -> AsyncIterator[ResourceStore]:
        """The store of a namespace, or of ALL, up to date.

        Raises:
            StatusError: no true answer can be given at present.
        """
        self._follow()
        scope = self._scopes.get(namespace)
        if scope is None:
            scope = self._scopes[namespace] = self._new_scope(namespace)
        scope.users += 1
        try:
            await self._catch_up(scope)
            yield scope.store
        finally:
            scope.users -= 1
            scope.left = self._clock()
            self._sweep()

    def touch(self) -> None:
        """Something may have changed: bring those who watch up to date soon. Without watchers this costs nothing.

        The first complete state is taken at once, watched or not: watches from other replicas are taken up from there.
        """
        if (self.watchers or not self._horizon) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._flush)

    def wake(self) -> None:
        """Make everybody look who waits for news."""
        for scope in self._scopes.values():
            scope.store.wake()

    # How it follows.

    def _follow(self) -> None:
        """Take what changed on either side, and note what has to be made anew for it.

        Raises:
            StatusError: no true answer can be given at present.
        """
        self._require()
        now = self._clock()
        namespaces = self._namespaces.follow(self._versions.next, now)
        names = self._names.follow(self._versions.next, now)
        if not self._horizon:
            self._horizon = self._versions.next()
        forgotten = (side.forget(now - KEEP_SECONDS) for side in (self._namespaces, self._names))
        self._horizon = max(self._horizon, *forgotten)
        if namespaces or names:
            for scope in self._scopes.values():
                scope.pending.update(dict.fromkeys(self._touched(scope.namespace, namespaces, names)))
                self._schedule(scope, scope.worked + scope.store.pause_seconds - now)

    def _touched(self, scope: str, namespaces: set[str], names: set[str]) -> Iterable[Key]:
        """The keys of a scope that changes on either side concern, also where both went at once."""
        within = {*self._namespaces.now, *namespaces} if scope == ALL else {scope}
        for namespace in within & namespaces:
            for name in {*self._names.now, *names}:
                yield namespace, name
        for namespace in within - namespaces:
            for name in names:
                yield namespace, name

    def _flush(self) -> None:
        """Look what changed."""
        self._timer = None
        try:
            self._follow()
        except StatusError:  # no true answer at present: nothing is told, and it is tried again
            if self.watchers or not self._horizon:
                self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._flush)

    def _schedule(self, scope: _Scoped, seconds: float) -> None:
        """Bring a store up to date for those who watch it, after so long or at once."""
        if scope.store.watchers and scope.pending and scope.timer is None:
            scope.timer = asyncio.get_running_loop().call_later(max(0, seconds), self._work, scope)

    def _work(self, scope: _Scoped) -> None:
        """Make some of what has to be made anew, and let others have their turn."""
        scope.timer = None
        self._settle(scope, SLICE_SECONDS)
        scope.worked = self._clock()
        self._schedule(scope, 0)

    async def _catch_up(self, scope: _Scoped) -> None:
        """Make everything anew that has to be, in slices."""
        self._follow()
        while not self._settle(scope, SLICE_SECONDS):  # noqa: ASYNC110 # it works, it does not wait
            await asyncio.sleep(0)

    def _settle(self, scope: _Scoped, seconds: float) -> bool:
        """Make what is pending for so long, and say whether that was all."""
        deadline = self._clock() + seconds
        while scope.pending:
            self._settle_one(scope.store, scope.pending.popitem()[0])
            if self._clock() > deadline:
                break
        return not scope.pending

    def _settle_one(self, store: ResourceStore, key: Key) -> None:
        namespace, name = self._namespaces.now.get(key[0]), self._names.now.get(key[1])
        if namespace is None or name is None:
            store.end(key, self._last(key))
        else:
            store.put(key, self._make(namespace, name))

    # The stores.

    def _new_scope(self, namespace: str) -> _Scoped:
        within = self._namespaces.now if namespace == ALL else {namespace} & self._namespaces.now.keys()

        def refresh(_: ResourceStore) -> None:
            self._follow()
            if namespace != ALL:
                self._settle(scope, math.inf)

        async def catch_up() -> None:
            await self._catch_up(scope)

        how = Scope(
            past=_Past(self, namespace),
            catch_up=catch_up,
            keep=KEEP_CHANGES,
            pause_seconds=ACROSS_SECONDS if namespace == ALL else 0,
        )
        store = ResourceStore(self._versions, refresh, self._clock, how)
        scope = _Scoped(namespace, store, ((each, name) for each in within for name in self._names.now))
        return scope

    def _sweep(self) -> None:
        """Drop the stores that nobody has come to for a while, and the longest left of too many."""
        idle = sorted((scope for scope in self._scopes.values() if not scope.users), key=lambda scope: scope.left)
        due = self._clock() - IDLE_SECONDS
        for index, scope in enumerate(idle):
            if scope.left <= due or index < len(idle) - IDLE_STORES:
                scope.stop()
                del self._scopes[scope.namespace]
        if self._sweeper is None and any(not scope.users for scope in self._scopes.values()):
            self._sweeper = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeper = None
        self._sweep()

    # What went.

    @property
    def horizon(self) -> int:
        """Every deletion after this version is known."""
        return self._horizon

    def deletions(self, scope: str) -> list[Change]:
        """What went lately of a scope, in the order in which it went."""
        names = {*self._names.now, *self._names.graves}
        if scope == ALL:
            gone = {*self._namespaces.graves} - self._namespaces.now.keys()
            keys = {(namespace, name) for namespace in gone for name in names}
            keys |= {(namespace, name) for namespace in self._namespaces.now for name in self._names.graves}
        else:
            keys = {(scope, name) for name in (names if scope in self._namespaces.graves else self._names.graves)}
        found = [change for key in keys if (change := self._deletion(key)) is not None]
        return sorted(found, key=lambda change: (change.version, change.key))

    def _deletion(self, key: Key) -> Change | None:
        content, version = self._last(key), max(self._namespaces.last(key[0])[1], self._names.last(key[1])[1])
        if content is None or not version:
            return None
        last = at_version(key, content, version, lean=True)
        return Change(version, DELETED, key, last, last)

    def _last(self, key: Key) -> Mapping[str, Any] | None:
        """What is known of an object that is or lately was."""
        (namespace, _), (name, _) = self._namespaces.last(key[0]), self._names.last(key[1])
        return None if namespace is None or name is None else self._make(namespace, name)


@dataclass(frozen=True, slots=True)
class _Past(Generic[N, R]):
    """What went before a store was made, from what all of them know."""

    stores: NamespacedStores[N, R]
    scope: str

    @property
    def horizon(self) -> int:
        return self.stores.horizon

    def deletions(self) -> Iterable[Change]:
        return self.stores.deletions(self.scope)
