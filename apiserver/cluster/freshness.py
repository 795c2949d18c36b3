"""How old what was told may be: the age of a reflector.

Now and then a consistent list of one object gives the version L that the cluster had at a time t. Once the stream has
reached L, everything up to t has been told. The age is the time since the latest such t. A quiet stream reaches it by a
bookmark, which kube-apiserver sends about once a minute to a collection that is asked about in this way.
"""

from collections import deque
from typing import Final

PROBE_SECONDS: Final = 30
_KEPT_PROBES: Final = 100


class Freshness:
    """Follows how far a stream has come. Times are of the event loop, in seconds."""

    def __init__(self) -> None:
        self._probes: deque[tuple[float, int]] = deque(maxlen=_KEPT_PROBES)
        self._told_until: float | None = None
        self._reached = 0

    def listed(self, began: float, version: str) -> None:
        """A complete list was told: it holds everything up to when it was asked for."""
        self._told_until = max(began, self._told_until or began)
        self._reached = _number(version)
        self.reached(version)

    def probed(self, began: float, version: str) -> None:
        """A probe that was sent at that time found that version."""
        self._probes.append((began, _number(version)))
        self._settle()

    def reached(self, version: str) -> None:
        """The stream has come to a version."""
        self._reached = max(self._reached, _number(version))
        self._settle()

    @property
    def told_until(self) -> float | None:
        """The latest time up to which everything is known to be told; None before the first list. It only grows."""
        return self._told_until

    def age(self, now: float) -> float | None:
        """Seconds since that time; None before the first list."""
        return None if self._told_until is None else now - self._told_until

    def _settle(self) -> None:
        while self._told_until is not None and self._probes and self._probes[0][1] <= self._reached:
            began, _ = self._probes.popleft()
            self._told_until = max(self._told_until, began)


def _number(version: str) -> int:
    """Versions of one cluster compare as numbers: guaranteed since Kubernetes 1.35, and so with etcd before."""
    return int(version) if version.isascii() and version.isdigit() else 0
