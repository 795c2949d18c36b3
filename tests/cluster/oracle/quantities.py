"""Ways to write a number of devices that kube-apiserver accepts."""

from collections.abc import Callable, Mapping
from decimal import Decimal

from tests.cluster.oracle.dice import Dice

Written = str | int
"""A quantity as it goes onto the wire: a string or a bare JSON number."""

GROUP = "quantity form"

SPELLINGS: Mapping[str, Callable[[int], Written]] = {
    "digits": str,
    "a bare number": int,
    "thousandths (2000m)": lambda devices: f"{devices}000m",
    "millionths (2000000u)": lambda devices: f"{devices}000000u",
    "billionths (2000000000n)": lambda devices: f"{devices}000000000n",
    "a part of a thousand (0.002k)": lambda devices: f"0.{devices:03}k",
    "a part of a Ki (0.001953125Ki)": lambda devices: f"{Decimal(devices) / 1024:f}Ki",
    "an exponent (2e0)": lambda devices: f"{devices}e0",
    "an upper-case exponent (2E0)": lambda devices: f"{devices}E0",
    "a negative exponent (20e-1)": lambda devices: f"{devices}0e-1",
    "nothing before the point (.02e2)": lambda devices: f".{devices:02}e2",
    "nothing after the point (2.)": lambda devices: f"{devices}.",
    "a fraction of zero (2.0)": lambda devices: f"{devices}.0",
    "a plus sign (+2)": lambda devices: f"+{devices}",
    "leading zeros (002)": lambda devices: f"00{devices}",
}
"""For up to 99 devices."""

LARGE: Mapping[str, int] = {
    "1k": 10**3,
    "2k": 2 * 10**3,
    "1e3": 10**3,
    "1E3": 10**3,
    "1Ki": 2**10,
    "1.5Ki": 1536,
    "1M": 10**6,
    "1Mi": 2**20,
    "1G": 10**9,
    "1Ti": 2**40,
    "1P": 10**15,
    "9E": 9 * 10**18,
    "8Ei": 2**63 - 1,  # kube-apiserver caps what is binary
    "9223372036854775807": 2**63 - 1,
}
"""What only a node has; Pods hold nearly all of it, so that few probes fill the rest."""

BEYOND = ("10E", "100E", "1e19", "1e30")
"""Out of int64: the scheduler takes them for 0, as the model does.

Left out is what has too many digits, from 2**63 on: it wraps round, the scheduler's sums overflow with it, and where it
stands on a node, Pods may be placed without end.
"""

FRACTIONS = ("500m", "1500m", "0.25", "1.5", "1n", "100u", "2500m", "0.3")
"""Accepted only for names with kubernetes.io/ in them, which need not be whole."""

LARGER, OUT_OF_RANGE, FRACTIONAL = "larger than any node (1k, 9E)", "beyond int64 (10E)", "a part of one device (500m)"
NAMES = (*SPELLINGS, LARGER, OUT_OF_RANGE, FRACTIONAL)


def spelled(dice: Dice, devices: int) -> Written:
    """So many devices in some spelling."""
    return SPELLINGS[dice.name(GROUP, list(SPELLINGS))](devices)


def large(dice: Dice) -> tuple[str, int]:
    """More devices than a node can have: as written, and how many."""
    dice.name(GROUP, [LARGER])
    return dice.one(list(LARGE.items()))


def beyond(dice: Dice) -> str:
    """More than an int64 holds."""
    dice.name(GROUP, [OUT_OF_RANGE])
    return dice.one(BEYOND)


def fraction(dice: Dice) -> str:
    """A part of a device."""
    dice.name(GROUP, [FRACTIONAL])
    return dice.one(FRACTIONS)


def in_thousands(devices: int) -> list[str]:
    """Quantities that add up to so many devices, as 1234567 is 1M, 234k and 567.

    In one piece most numbers beyond 2**63 / 1000 are refused: kube-apiserver takes a wrapped product for a fraction.
    """
    pieces = (
        (devices // 1000**power % 1000, suffix) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))
    )
    return [f"{piece}{suffix}" for piece, suffix in pieces if piece]


CPU_SPELLINGS: Mapping[str, Callable[[int], Written]] = {
    "thousandths (250m)": lambda milli: f"{milli}m",
    "a part of a cpu (0.25)": lambda milli: f"{Decimal(milli) / 1000:f}",
    "millionths (250000u)": lambda milli: f"{milli}000u",
    "an exponent (250e-3)": lambda milli: f"{milli}e-3",
}
MEMORY_SPELLINGS: Mapping[str, Callable[[int], Written]] = {
    "Mi": lambda mebibytes: f"{mebibytes}Mi",
    "Ki": lambda mebibytes: f"{mebibytes * 1024}Ki",
    "bytes": lambda mebibytes: str(mebibytes * 2**20),
    "M": lambda mebibytes: f"{mebibytes}M",
    "a part of a Gi": lambda mebibytes: f"{Decimal(mebibytes) / 1024:f}Gi",
}
CPU_FORM, MEMORY_FORM = "cpu form", "memory form"


def cpu_and_memory(dice: Dice, *, low: int = 0, high: int = 9, always: bool = False) -> dict[str, Written]:
    """Some cpu and some memory in some spelling, from low to high tenths; one or both may be missing."""
    found: dict[str, Written] = {}
    if always or dice.chance(0.8):
        spell = CPU_SPELLINGS[dice.name(CPU_FORM, list(CPU_SPELLINGS))]
        found["cpu"] = spell(100 * dice.number(low, high) + 1)
    if always or dice.chance(0.8):
        spell = MEMORY_SPELLINGS[dice.name(MEMORY_FORM, list(MEMORY_SPELLINGS))]
        found["memory"] = spell(100 * dice.number(low, high) + 1)
    return found
