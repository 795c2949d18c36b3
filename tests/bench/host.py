"""What the machine's host kept from it during the bench: on a shared one, delays are also those of its other guests."""

from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.rows import Row

WHAT: Final = "processor time that the machine's host gave to other guests, of what was wanted"


class Taken(NamedTuple):
    """Processor time since the machine started, in ticks."""

    wanted: int
    stolen: int


def taken() -> Taken:
    """What programs wanted so far, and what of it they did not get. Source: proc(5), /proc/stat."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[1:9])
    return Taken(user + nice + system + irq + softirq + steal, steal)


def row(*, since: Taken) -> Row:
    """The share since a moment. It has no goal: it says how far the others are to be believed."""
    now = taken()
    share = 100 * (now.stolen - since.stolen) / max(1, now.wanted - since.wanted)
    return Row(WHAT, share, None, None, at_least=False, unit="%")
