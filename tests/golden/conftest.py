"""The comparison with a golden file."""

import difflib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Golden = Callable[[str, object], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a JSON value with the file of that name; the failure shows what differs."""

    def compare(name: str, value: object) -> None:
        file = HERE / f"{name}.json"
        found = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        if request.config.getoption("--update-golden"):
            file.write_text(found)
        expected = file.read_text() if file.exists() else ""
        if found != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), found.splitlines(), f"tests/golden/{file.name}", "served", lineterm=""
            )
            difference = "\n".join(lines)
            pytest.fail(f"{difference}\n\nIf this is meant: pytest --update-golden", pytrace=False)

    return compare
