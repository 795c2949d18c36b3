"""Durations as Go writes them: 90s, 1h30m, 0.5s, -1m.

Source: time.ParseDuration of Go 1.26.
"""

import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION: Final = re.compile(rf"([+-]?)(0|(?:{_PART})+)", re.ASCII)
_LONGEST: Final = (2**63 - 1) * 1e-9


def parse_duration(text: str) -> float:
    """Seconds of a duration.

    Raises:
        ValueError: it is none, or longer than Go's 290 years.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("a duration such as 90s, 3m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, found[2], re.ASCII))
    if seconds > _LONGEST:
        raise ValueError("a duration of less than 290 years")
    return -seconds if found[1] == "-" else seconds
