"""Telling several readers what changed, each at its own time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """What changed between two looks of one reader.

    Attributes:
        names: what changed, came or went.
        departed: the last state of what went, also of what came only after the last look, or is back since.
    """

    names: set[str] = field(default_factory=set)
    departed: Mapping[str, T] = field(default_factory=dict)


class Changes(Generic[T]):
    """One reader's view of a feed.

    Args:
        on_change: called when something changed, once until the changes are taken.
        names: what there is already, to be taken first.
    """

    def __init__(self, on_change: Callable[[], None] | None = None, names: Iterable[str] = ()) -> None:
        self._on_change = on_change
        self._names = set(names)
        self._departed: dict[str, T] = {}

    @property
    def pending(self) -> bool:
        """Whether something changed since the last call of `take`."""
        return bool(self._names)

    def take(self) -> Taken[T]:
        """What changed since the last call."""
        taken = Taken(self._names, self._departed)
        self._names, self._departed = set(), {}
        return taken

    def mark(self, *names: str) -> None:
        """Remember what changed, and say so once until it is taken."""
        is_first = not self._names
        self._names.update(names)
        if is_first and self._names:
            self.announce()

    def departs(self, name: str, last: T) -> None:
        """Remember the last state of something that goes."""
        self._departed[name] = last

    def announce(self) -> None:
        """Say that there is something to be read, even if that is nothing."""
        if self._on_change is not None:
            self._on_change()


class Feed(Generic[T]):
    """What changes, told to every reader."""

    def __init__(self) -> None:
        self._readers: list[Changes[T]] = []

    def follow(self, on_change: Callable[[], None] | None, names: Iterable[str]) -> Changes[T]:
        """A reader that is told of everything from now on, and finds first what there is already."""
        reader = Changes[T](on_change, names)
        self._readers.append(reader)
        return reader

    def mark(self, *names: str) -> None:
        """Tell every reader what changed."""
        for reader in self._readers:
            reader.mark(*names)

    def departs(self, name: str, last: T) -> None:
        """Tell every reader the last state of something that goes; mark() says that it changed."""
        for reader in self._readers:
            reader.departs(name, last)

    def announce(self) -> None:
        """Tell every reader that there is something to be read."""
        for reader in self._readers:
            reader.announce()
