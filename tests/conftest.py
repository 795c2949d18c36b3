"""Options of the whole test run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` takes what is served now as what is expected, to be read as a diff before it is committed."""
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")
