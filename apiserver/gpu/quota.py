"""Budgets of devices: the keys that a ResourceQuota names them by, and what is left of them.

No controller of Kubernetes counts these keys. It keeps what another controller writes into status.used, so `used` may
be missing; that is not known, and never 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apiserver.gpu.classes import BUDGET_DOMAIN
from apiserver.gpu.quantity import MalformedQuantityError, parse_milli
from apiserver.gpu.resources import is_qualified_name

TOTAL: Final = ""
"""In place of a class name: the devices of all classes together."""

_NAME: Final = "devices"
_MILLI: Final = 1000
_SHOWN: Final = 32
"""How much is repeated of a text that cannot be read."""


def budget_key(class_name: str) -> str:
    """The key of one class's budget, or of the budget of all classes (TOTAL).

    Raises:
        ValueError: no ResourceQuota can hold such a key.
    """
    key = f"{class_name}.{BUDGET_DOMAIN}/{_NAME}" if class_name else f"{BUDGET_DOMAIN}/{_NAME}"
    if not is_qualified_name(key):
        raise ValueError(f"{class_name!r} cannot be part of a quota key: it must be a DNS subdomain, and not too long")
    return key


def budgeted_class(key: str) -> str | None:
    """The class that a key is about, TOTAL for all together, None for a key that is no budget of devices."""
    domain, _, name = key.rpartition("/")
    if name != _NAME or not is_qualified_name(key):
        return None
    if domain == BUDGET_DOMAIN:
        return TOTAL
    class_name = domain.removesuffix(f".{BUDGET_DOMAIN}")
    return None if class_name == domain else class_name


@dataclass(frozen=True, slots=True)
class Limit:
    """What one ResourceQuota says about one key, in whole devices.

    Attributes:
        quota: name of the ResourceQuota.
        hard: the most that may be used; None when it cannot be read.
        used: what is used; None when nobody has counted it, or it cannot be read.
        problem: why one of them is not known, in a sentence; "" when both are.
    """

    quota: str
    hard: int | None
    used: int | None
    problem: str = ""

    @property
    def remaining(self) -> int | None:
        """What is left, negative when more is used than may be; None when it is not known. Of nothing, 0 is left."""
        if self.hard is None or self.used is None:
            return 0 if self.hard == 0 else None
        return self.hard - self.used

    @property
    def at_most(self) -> int | None:
        """The most that can be left: the remainder, or all of it while that is not known; None for no bound."""
        return self.hard if self.remaining is None else self.remaining


def read_limits(quota: str, hard: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, Limit]:
    """What a ResourceQuota says about budgets of devices, by class name or TOTAL; other keys are passed over.

    Args:
        quota: name of the ResourceQuota.
        hard: spec.hard as JSON gave it: what was set, which status.hard only follows.
        used: status.used as JSON gave it.
    """
    limits = {}
    for key, raw in hard.items():
        class_name = budgeted_class(key)
        if class_name is not None:
            limits[class_name] = _read_limit(quota, key, raw, used.get(key))
    return limits


def _read_limit(quota: str, key: str, raw_hard: object, raw_used: object) -> Limit:
    hard, used = _devices(raw_hard), _devices(raw_used)
    problem = ""
    if hard is None:
        problem = f"ResourceQuota {quota}: spec.hard of {key} is {_shown(raw_hard)}, which is no number of devices."
    elif raw_used is None:
        problem = f"ResourceQuota {quota}: status.used does not tell {key}."
    elif used is None:
        problem = f"ResourceQuota {quota}: status.used of {key} is {_shown(raw_used)}, which is no number of devices."
    return Limit(quota, hard, used, problem)


def _devices(raw: object) -> int | None:
    """A whole number that is not negative, as kube-apiserver demands of these keys; None for everything else."""
    try:
        milli = -1 if raw is None else parse_milli(raw)
    except MalformedQuantityError:
        return None
    return None if milli < 0 or milli % _MILLI else milli // _MILLI


def _shown(raw: object) -> str:
    return repr(str(raw)[:_SHOWN])


@dataclass(frozen=True, slots=True)
class Budget:
    """What a namespace has left of one key, as the tightest of its ResourceQuotas says.

    Attributes:
        key: as the ResourceQuota spells it.
        quota: name of the ResourceQuota that decides.
        hard: the most that may be used; None when it is not known.
        used: what is used, more than hard if that was lowered later; None when it is not known.
        remaining: what is left, never negative; None when it is not known.
        at_most: the most that can be left, also while remaining is not known; None for no bound.
        problem: why something is not known, in a sentence; "" when all is.
    """

    key: str
    quota: str
    hard: int | None
    used: int | None
    remaining: int | None
    at_most: int | None
    problem: str = ""


def tightest(class_name: str, limits: Iterable[Limit]) -> Budget:
    """The budget that several ResourceQuotas leave together.

    One that is used up decides, whatever is not known of the others. Otherwise one that is not known leaves the
    remainder unknown, and is the one that is shown. A remainder below 0 is 0: what ResourceQuota itself computes ends
    there too (SubtractWithNonNegativeResult), and by how much it is exceeded can be seen from hard and used.

    Args:
        class_name: or TOTAL.
        limits: what each of them says about the key; at least one.
    """
    limits = sorted(limits, key=_tightness)
    shown = limits[0]
    bounds = [limit.at_most for limit in limits if limit.at_most is not None]
    return Budget(
        key=budget_key(class_name),
        quota=shown.quota,
        hard=shown.hard,
        used=shown.used,
        remaining=None if shown.remaining is None else max(0, shown.remaining),
        at_most=max(0, min(bounds)) if bounds else None,
        problem="" if shown.remaining is not None else shown.problem,
    )


def _tightness(limit: Limit) -> tuple[int, int, int, str]:
    """Used up ones first, then those not known, those without any bound before the rest; then by what is left."""
    if limit.remaining is None:
        return 1, 0 if limit.hard is None else 1, limit.hard or 0, limit.quota
    return 0 if limit.remaining <= 0 else 2, limit.remaining, limit.hard or 0, limit.quota
