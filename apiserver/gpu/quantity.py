"""Kubernetes quantities as exact integers.

A quantity is held in thousandths (milli-units), because the v1 API rounds every resource list up to
that grain when it decodes one; whole devices are rounded up from the exact sum afterwards.

Source: apimachinery pkg/api/resource (quantity.go, suffix.go) and SetDefaults_ResourceList of Kubernetes 1.37.
"""

import re
from functools import lru_cache
from typing import Final

MAX_VALUE: Final = 2**63 - 1
"""Largest whole value Kubernetes can compute with (int64); beyond it Quantity.Value wraps or is 0."""

_DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_POWERS: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)"
)
_MAX_LENGTH: Final = 64
"""Longer text is no quantity anybody wrote; the bound keeps the arithmetic below cheap."""
_MAX_BITS: Final = 256
"""Longer integers are not written out: that takes time, and Python refuses more than 4,300 digits."""
_MAX_EXPONENT: Final = 64
"""Powers of ten beyond this are out of int64 (or below one milli-unit) whatever digits stand before them."""


class MalformedQuantityError(ValueError):
    """The text is not a quantity, or one too large for Kubernetes to compute with.

    Attributes:
        text: what stood there, its beginning if it is long.
    """

    def __init__(self, text: object) -> None:
        self.text = _cut(text)
        super().__init__(f"{self.text!r} is not a quantity within int64")


def parse_milli(raw: object) -> int:
    """Parse a quantity as the wire carries it: a string, a bare JSON number, or null for 0.

    Returns:
        Thousandths, rounded away from zero: "1" is 1000, "500m" is 500, "1n" is 1.

    Raises:
        MalformedQuantityError: not in the grammar, or its whole value is outside int64.
    """
    if raw is None:
        return 0
    if isinstance(raw, str):
        return _parse_bounded(raw.strip())
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise MalformedQuantityError(raw)
    if isinstance(raw, int) and not -MAX_VALUE - 1 <= raw <= MAX_VALUE:
        raise MalformedQuantityError(raw)  # before its digits are written out, of which Python refuses too many
    return _parse_bounded(repr(raw))


@lru_cache(maxsize=4096)  # the pods of a cluster use the same few again and again
def _parse_bounded(text: str) -> int:
    milli = _parse_text(text)
    if not -MAX_VALUE - 1 <= whole(milli) <= MAX_VALUE:
        raise MalformedQuantityError(text)
    return milli


def _cut(raw: object) -> str:
    if isinstance(raw, int) and not isinstance(raw, bool) and raw.bit_length() > _MAX_BITS:
        return f"an integer of {raw.bit_length()} bits"
    return str(raw)[:_MAX_LENGTH]


def whole(milli: int) -> int:
    """Whole units of a quantity, rounded away from zero, as Quantity.Value does."""
    return -(-milli // 1000) if milli >= 0 else milli // 1000


def _parse_text(text: str) -> int:
    match = _GRAMMAR.fullmatch(text) if 0 < len(text) <= _MAX_LENGTH else None
    if match is None:
        raise MalformedQuantityError(text)
    sign, whole_digits, fraction, suffix = match.group("sign", "whole", "fraction", "suffix")
    fraction = fraction or ""
    digits = int(whole_digits + fraction or "0")
    exponent = 3 - len(fraction)
    if suffix in _BINARY_POWERS:
        digits *= 1024 ** _BINARY_POWERS[suffix]
    elif suffix in _DECIMAL_EXPONENTS:
        exponent += _DECIMAL_EXPONENTS[suffix]
    else:
        exponent += int(suffix[1:])
    magnitude = _scale(digits, exponent)
    return -magnitude if sign == "-" else magnitude


def _scale(digits: int, exponent: int) -> int:
    """Digits times ten to the exponent, rounded up."""
    if digits == 0:
        return 0
    if exponent >= 0:
        power: int = 10 ** min(exponent, _MAX_EXPONENT)
        return digits * power
    # Digits are bounded in length, so a longer division than this leaves the same remainder: one milli-unit.
    divisor: int = 10 ** min(-exponent, 2 * _MAX_EXPONENT)
    return -(-digits // divisor)
