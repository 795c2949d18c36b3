"""Options of the whole test run."""

import pytest

USUAL_SECONDS = 120
"""As in pyproject.toml."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` takes what is served now as what is expected, to be read as a diff before it is committed."""
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest: with several workers none is then left over at the end."""
    longest: dict[object, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker else USUAL_SECONDS
        longest[item.path] = max(longest.get(item.path, 0), seconds)
    items.sort(key=lambda item: -longest[item.path])
