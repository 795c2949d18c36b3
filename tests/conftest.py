"""Options of the whole test run, and the browser that tests of several directories look with."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import UnavailableError
from tests.page.chromium import Tab, find_chromium, opened, started

CHROMIUM = pytest.StashKey[Path | UnavailableError]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` takes what is served now as what is expected, to be read as a diff before it is committed."""
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or install Chromium before the first test: an installation may take longer than a test may."""
    looking = ("devtools" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not any(looking):
        return
    try:
        session.config.stash[CHROMIUM] = find_chromium()
    except UnavailableError as error:
        session.config.stash[CHROMIUM] = error


@pytest.fixture(scope="session")
def devtools(pytestconfig: pytest.Config) -> Iterator[str]:
    """A browser; without one the test is skipped, and in CI it fails."""
    found = pytestconfig.stash[CHROMIUM]
    if isinstance(found, UnavailableError):
        if os.environ.get("CI") == "true":
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    with started(found) as address:
        yield address


@pytest.fixture
async def tab(devtools: str) -> AsyncIterator[Tab]:
    """A page of that browser."""
    async with opened(devtools) as tab:
        yield tab
