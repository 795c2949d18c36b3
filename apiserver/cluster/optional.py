"""Kinds a cluster may not have: watched when they are there, "not checked" when they are not.

KubeVirt and DRA are optional, and so is the right to read their objects. Neither keeps the catalog from answering; what
is not known is said.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

from apiserver.cluster.collection import Collection
from apiserver.cluster.objects import ObjectMeta
from apiserver.cluster.reflector import DEFAULT_PACE, Pace, Reflector, Transport

POLL_SECONDS: Final = 1
FAILING_SECONDS: Final = 60
"""For how long a kind may fail before it is told: a watch that is taken up again in between is no news."""

_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Named(Protocol):
    """An object with metadata."""

    metadata: ObjectMeta


T = TypeVar("T", bound=Named)


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """What is known of an optional kind.

    Attributes:
        objects: all of them as last known; None when the cluster does not have the kind, or nothing is known yet.
        problem: why they may be out of date, for health and logs; None when they are not.
    """

    objects: tuple[T, ...] | None = None
    problem: str | None = None


class OptionalKind(Generic[T]):
    """Follows one optional kind.

    Args:
        collection: what to follow.
        tell: told of every change of what is known.
        pace: the times the reflector keeps.
    """

    def __init__(
        self, collection: Collection[T], tell: Callable[[Known[T]], None], *, pace: Pace = DEFAULT_PACE
    ) -> None:
        self._collection = collection
        self._tell = tell
        self._pace = pace
        self._objects: dict[str, T] = {}
        self._before: dict[str, T] = {}
        self._unreadable: dict[str, str] = {}
        self._reflector: Reflector[T] | None = None
        self._failing_since: float | None = None
        self.known: Known[T] = Known()

    async def run(self, transport: Transport) -> None:
        """Follow the kind until cancelled."""
        self._reflector = Reflector(transport, self._collection, self, pace=self._pace)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name=f"reflector {self._collection.name}")
            while True:
                self._look()
                await asyncio.sleep(POLL_SECONDS)

    def reflectors(self) -> tuple[Reflector[T], ...]:
        """What follows the kind, as far as it has begun."""
        return () if self._reflector is None else (self._reflector,)

    def settled(self) -> bool:
        """Whether the first attempt has ended: with objects, without the kind, or refused."""
        reflector = self._reflector
        return reflector is not None and (reflector.synced or reflector.last_status is not None)

    def replace(self, objects: list[T]) -> None:
        """Take the complete collection."""
        self._before, self._objects = self._objects, {_key(each): each for each in objects}
        self._unreadable = {}
        self._look(answered=True)

    def apply(self, event_type: str, obj: T) -> None:
        """Take one change."""
        self._unreadable.pop(_key(obj), None)
        if event_type == "DELETED":
            self._objects.pop(_key(obj), None)
        else:
            self._objects[_key(obj)] = obj
        self._look(answered=True)

    def reject(self, name: str, reason: str) -> None:
        """Keep what was last known of an object that cannot be read any more."""
        if name in self._before:
            self._objects.setdefault(name, self._before[name])
        self._unreadable[name] = reason
        self._look(answered=True)

    def _look(self, *, answered: bool = False) -> None:
        """Work out what is known, and tell it if it is news.

        Args:
            answered: the cluster has just said so, whatever the reflector noted of the attempt before.
        """
        known = self._listed() if answered else self._current()
        if known != self.known:
            self.known = known
            self._tell(known)

    def _listed(self) -> Known[T]:
        unreadable = [f"{name}: {reason}" for name, reason in self._unreadable.items()]
        return Known(tuple(self._objects.values()), "; ".join(unreadable) or None)

    def _current(self) -> Known[T]:
        reflector = self._reflector
        if reflector is None or reflector.last_error is None:
            self._failing_since = None
            return self._listed() if reflector and reflector.synced else Known()
        if reflector.last_status == HTTPStatus.NOT_FOUND:
            self._failing_since = None
            return Known()
        now = asyncio.get_running_loop().time()
        self._failing_since = self._failing_since or now
        if reflector.last_status not in _REFUSALS and now - self._failing_since < FAILING_SECONDS:
            return self.known
        return Known(self.known.objects, f"{self._collection.name}: {reflector.last_error}")


def _key(obj: Named) -> str:
    """The name as the reflector says it: `namespace/name`, or the name alone."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}".removeprefix("/")
