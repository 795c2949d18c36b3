"""Durations as Go writes them: 90s, 1h30m, 0.5s, -1m.

Source: time.ParseDuration of Go 1.26.
"""

import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")
_LONGEST: Final = 2**63 * 1e-9
_LONGEST_TEXT: Final = 256
"""More text than any duration needs; it is repeated in the answer."""


class DurationError(ValueError):
    """A text that is no duration, in the words of Go."""


def parse_duration(text: str) -> float:
    """Seconds of a duration.

    Raises:
        DurationError: it is none, or longer than Go's 290 years.
    """
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest or len(text) > _LONGEST_TEXT:
        raise _invalid(text)
    seconds = 0.0
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise _invalid(text)
        number, unit = part.groups()
        if not unit:
            raise DurationError(f'time: missing unit in duration "{text[:_LONGEST_TEXT]}"')
        if unit not in _UNITS:
            raise DurationError(f'time: unknown unit "{unit}" in duration "{text[:_LONGEST_TEXT]}"')
        seconds += float(number) * _UNITS[unit]
        rest = rest[part.end() :]
    if seconds >= _LONGEST:
        raise _invalid(text)
    return -seconds if text.startswith("-") else seconds


def _invalid(text: str) -> DurationError:
    return DurationError(f'time: invalid duration "{text[:_LONGEST_TEXT]}"')
