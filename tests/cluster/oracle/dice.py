"""Chance that can be repeated, and what it brought about."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Coverage = Counter[tuple[str, str]]
"""How often each name of each group occurred, by (group, name)."""


class Dice:
    """A source of chance that gives the same for the same seed, and keeps count.

    Attributes:
        drawn: how often each name was drawn.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 # nothing is kept secret with it
        self.drawn: Coverage = Counter()

    def number(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return self._random.randint(low, high)

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return self._random.random() < share

    def one(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self._random.choice(items)

    def name(self, group: str, names: Iterable[str] | Mapping[str, int]) -> str:
        """One of the names, by weight if they have any; it is counted in its group."""
        weights: Mapping[str, int] = names if isinstance(names, Mapping) else dict.fromkeys(names, 1)
        (name,) = self._random.choices(list(weights), weights=list(weights.values()))
        self.drawn[group, name] += 1
        return name

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """The items in another order."""
        mixed = list(items)
        self._random.shuffle(mixed)
        return mixed
