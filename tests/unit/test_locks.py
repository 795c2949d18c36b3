"""The lock files install with the pip that comes with any Python we support."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[\w.-]+)(\[(?P<extras>[^\]]+)\])?==", re.MULTILINE)


def pinned(lock: str) -> dict[str, set[str]]:
    """The extras that a lock file pins, by the package's name."""
    return {
        canonicalize_name(pin["name"]): set((pin["extras"] or "").split(",")) - {""}
        for pin in PIN.finditer((ROOT / lock).read_text())
    }


def asked(pins: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The (package, extra) that locked packages ask for on this machine."""
    found: set[tuple[str, str]] = set()
    for name, extras in pins.items():
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another platform
            continue
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                found |= {(canonicalize_name(requirement.name), extra) for extra in requirement.extras}
    return found


@pytest.mark.parametrize(
    ("lock", "known"),
    [
        ("requirements.lock", ("coverage", "toml")),
        ("requirements-run.lock", ("opentelemetry-exporter-http-transport", "requests")),
    ],
)
def test_extras_are_pinned(lock: str, known: tuple[str, str]) -> None:
    """Before 23.3 pip takes `coverage[toml]` for a package of its own, which a pin of `coverage` says nothing about.

    The newest that answers is taken, and on the day that it is another than the pinned one, nothing installs.
    """
    pins = pinned(lock)
    extras = asked(pins)
    assert known in extras
    assert [f"{name}[{extra}]" for name, extra in sorted(extras) if extra not in pins[name]] == []
