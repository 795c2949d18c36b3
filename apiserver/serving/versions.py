"""resourceVersions: rising within a process and over its restarts, comparable in time between replicas.

A version is a number of 1/16 ms ticks since 2026-01-01, shifted by a tag that is random per process. It stays exact in
JavaScript (below 2^53) until 2043, at up to 16,000 versions a second.
"""

import math
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
_TICKS_PER_SECOND: Final = 16_000
_TAG_BITS: Final = 10
_SKEW_TICKS: Final = 2 * _TICKS_PER_SECOND
"""A Date header tells whole seconds, so the clocks of two replicas may differ by one, and a round trip."""
_SURE_TICKS: Final = 2 * _SKEW_TICKS
"""How much greater a version of another replica must be to be surely later: its clock may be ahead, and it may itself
have followed a version that is ahead of its clock."""

_SLOT_SECONDS: Final = 5
_SLOTS_KEPT: Final = 31
_WITNESSES: Final = 3
"""So many slots must agree on how late it is, or a Date that is far ahead of the others is passed over."""
_SPREAD_SECONDS: Final = 2
"""What one steady clock tells differs by less: by the part of a second that a Date leaves out, and a round trip."""


class ServerClock:
    """Seconds since 1970 as kube-apiserver counts them: the monotonic clock plus an offset learnt from it.

    A Date header only tells whole seconds that have begun, and may be read late, so each one gives a lower bound of the
    offset, and the greatest comes within a round trip of the truth. It is the greatest of the last minutes, kept in
    slots of some seconds, on which three slots agree: a server whose clock stepped ahead for a moment must not decide,
    and one that did so for longer is forgotten. So the clock may go back; `VersionSource` rises nevertheless.

    Args:
        wall: the starting point where nobody will tell the time, as with a snapshot; None where somebody will.
        monotonic: the process's monotonic clock.
    """

    def __init__(self, wall: float | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset = None if wall is None else wall - monotonic()
        self._slots: deque[float] = deque(maxlen=_SLOTS_KEPT)
        self._slot_ends = -math.inf

    def observe(self, date: datetime, received: float) -> None:
        """Take a Date header that had arrived at the monotonic time `received`."""
        bound = date.timestamp() - received
        if received >= self._slot_ends:
            self._slots.append(bound)
            self._slot_ends = received + _SLOT_SECONDS
        else:
            self._slots[-1] = max(self._slots[-1], bound)
        falling = sorted(self._slots, reverse=True)
        witnessed = zip(falling, falling[_WITNESSES - 1 :], strict=False)
        self._offset = next((most for most, least in witnessed if most - least < _SPREAD_SECONDS), falling[0])

    def __call__(self) -> float:
        """Now.

        Raises:
            RuntimeError: nobody has told the time yet; there is nothing to version before the first answer.
        """
        if self._offset is None:
            raise RuntimeError("no Date header was seen yet")
        return self._monotonic() + self._offset


def is_surely_later(version: int, than: int) -> bool:
    """Whether a version of another replica was made after one of ours, however their clocks may differ."""
    return version >> _TAG_BITS > (than >> _TAG_BITS) + _SURE_TICKS


class VersionSource:
    """Makes versions, each greater than any before.

    Args:
        clock: seconds since 1970.
        tag: 0 … 1023, told apart from other replicas'; random by default.
    """

    def __init__(self, clock: Callable[[], float], tag: int | None = None) -> None:
        self._clock = clock
        self._tag = random.SystemRandom().getrandbits(_TAG_BITS) if tag is None else tag
        self._last_tick = 0

    def next(self) -> int:
        """A new version."""
        self._last_tick = max(self._tick(), self._last_tick + 1)
        return self._last_tick << _TAG_BITS | self._tag

    def follow(self, version: int) -> None:
        """Go on after a version of another replica whose clock is a little ahead, as a Lamport clock does.

        What changes here after a client came with that version is then newer to the client too. Bounded by our own
        clock, so that nobody can push it further.
        """
        tick = version >> _TAG_BITS
        if tick <= self._tick() + _SKEW_TICKS:
            self._last_tick = max(self._last_tick, tick)

    def now(self) -> int:
        """The greatest version that anybody can have made by now."""
        return max(self._tick(), self._last_tick) << _TAG_BITS | (1 << _TAG_BITS) - 1

    def _tick(self) -> int:
        return int((self._clock() - EPOCH) * _TICKS_PER_SECOND)
