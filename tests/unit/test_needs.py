"""What is missing stops a test: quietly on a person's machine, and not at all quietly in CI."""

from pathlib import Path

import pytest

from tests.needs import missing

TESTS = Path(__file__).parents[1]
SKIPPING = {
    "needs.py": "here it is decided",
    "cluster/test_conformance.py": "clients that the machine may have, or a registry: SkippedError says which",
}
"""Where a test may be skipped although CI=true, and for want of what; everything else goes through `missing`."""


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]) -> None:
    """With CI=true the test fails, else it is skipped; both say the reason."""
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no etcd here"):
        missing("no etcd here")


def test_nothing_else_skips() -> None:
    """No test skips past `missing`."""
    others = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    found = {str(path.relative_to(TESTS)) for path in others if "pytest.skip(" in path.read_text()}
    assert found == set(SKIPPING)
