"""The threat model names the tests that hold its claims; they must be there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"`((?:unit|http|cluster|fuzz)/[a-z_./]*)`")


def test_named_tests_exist() -> None:
    """Every test file or directory that the threat model names exists."""
    named = NAMED.findall((TESTS.parent / "THREAT_MODEL.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (TESTS / name).exists()] == []
