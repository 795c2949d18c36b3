"""Taints and tolerations, as the scheduler's filter and the taint eviction controller read them.

Source: core/v1 Toleration.ToleratesTaint, plugins/tainttoleration and controller/tainteviction of Kubernetes 1.37.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
EXISTS: Final = "Exists"
EQUAL: Final = "Equal"


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """The spelling of kubectl: key=value:effect."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a class; empty fields mean what they mean on a Pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether the toleration matches the taint.

        Lt and Gt match nothing: their feature gate is off through Kubernetes 1.37. The empty key with Equal is
        refused by validation, but the matcher takes it, and so do we.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", EQUAL):
            return self.value == taint.value
        return self.operator == EXISTS


def first_match(tolerations: Iterable[Toleration], taint: Taint) -> Toleration | None:
    """The toleration that decides: the first in list order that matches, as taint eviction takes it."""
    return next((toleration for toleration in tolerations if toleration.tolerates(taint)), None)


def is_blocking(taint: Taint) -> bool:
    """Whether an untolerated taint keeps pods off; PreferNoSchedule never does."""
    return taint.effect in (NO_SCHEDULE, NO_EXECUTE)


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
    """The taints for which the scheduler refuses the node. Every key is looked at, the node controller's own too."""
    return [taint for taint in taints if is_blocking(taint) and first_match(tolerations, taint) is None]


def temporarily_tolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[tuple[Taint, int]]:
    """The NoExecute taints that would evict a pod after a while, each with its seconds."""
    found = []
    for taint in taints:
        match = first_match(tolerations, taint) if taint.effect == NO_EXECUTE else None
        if match is not None and match.toleration_seconds is not None:
            found.append((taint, match.toleration_seconds))
    return found
