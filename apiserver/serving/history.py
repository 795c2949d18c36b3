"""What happened to the objects of a resource lately, for watches to follow.

The memory is one for all watchers: a watcher only remembers how far it has come, so a slow one costs nothing. One that
has fallen out of what is remembered has to list anew.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

Key = tuple[str, str]
"""Namespace ("" at the cluster scope) and name; also the order of a list."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
MARK: Final = ""
"""Nothing happened: a version was handed out so that watchers can say how new they are."""

KEEP_SECONDS: Final = 600
KEEP_CHANGES: Final = 10_000
KEEP_MARKS: Final = 1000
"""How many versions without a change are remembered: clients ask for them, and must not push the changes out."""


class Stored:
    """One object. Never changed once stored.

    Args:
        key: of the object.
        body: it in JSON, as it is served, resourceVersion included.
        read: the same read; without, it is read from the JSON whenever it is needed, which saves most of the memory.
    """

    __slots__ = ("_read", "body", "key")

    def __init__(self, key: Key, body: bytes, read: Mapping[str, Any] | None = None) -> None:
        self.key = key
        self.body = body
        self._read = read

    @property
    def object(self) -> Mapping[str, Any]:
        """It as it is served."""
        if self._read is not None:
            return self._read
        read: Mapping[str, Any] = orjson.loads(self.body)
        return read


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        version: of the collection after it.
        type: ADDED, MODIFIED, DELETED or MARK.
        key: of the object; meaningless for MARK.
        now: the object after it; for DELETED its last state with the version of the deletion. None for MARK, and for
            the DELETED of an object that came and went before anybody here was told of it.
        before: the object before it; None for ADDED and MARK.
    """

    version: int
    type: str = MARK
    key: Key = ("", "")
    now: Stored | None = None
    before: Stored | None = None


class ForgottenError(LookupError):
    """What is asked for is no longer remembered."""


class History:
    """The changes of the last minutes.

    Args:
        begins: the version at which remembering begins; everything after it is known.
        clock: seconds that only grow.

    Attributes:
        horizon: changes after this version are remembered, those up to it are not.
        keep: how many changes are remembered at most, marks not counted; None for the usual number.
        made: what was made of the latest changes for one who watches, for all others to whom it is the same. Every
            change empties it.
    """

    def __init__(self, begins: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.horizon = begins
        self.keep: int | None = None
        self.made: dict[Hashable, Any] = {}
        self._clock = clock
        self._changes: deque[tuple[float, Change]] = deque()
        self._first = self._marks = 0
        self._positions = {begins: 0}

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self._first + len(self._changes)

    def record(self, change: Change) -> None:
        """Remember a change, and forget what is too old or too much."""
        self.made.clear()
        self._changes.append((self._clock(), change))
        self._positions[change.version] = self.end
        self._marks += change.type == MARK
        oldest = self._clock() - KEEP_SECONDS
        while self._is_full() or self._changes[0][0] < oldest:
            del self._positions[self.horizon]
            _, forgotten = self._changes.popleft()
            self._first += 1
            self._marks -= forgotten.type == MARK
            self.horizon = forgotten.version

    def _is_full(self) -> bool:
        keep = KEEP_CHANGES if self.keep is None else self.keep
        return len(self._changes) - self._marks > keep or self._marks > KEEP_MARKS

    def position(self, version: int) -> int | None:
        """Where the changes after a version begin; None if the version is not one of this history's own."""
        return self._positions.get(version)

    def remembered(self) -> list[Change]:
        """Every change after the horizon."""
        return [change for _, change in self._changes]

    def since(self, position: int) -> list[Change]:
        """The changes from a position on. O(1) when there are none.

        Raises:
            ForgottenError: some of them are forgotten.
        """
        if position < self._first:
            raise ForgottenError
        if position == self.end:
            return []
        start = position - self._first
        return [self._changes[index][1] for index in range(start, len(self._changes))]
