"""One Chromium for all tests of the page; each has a tab of its own."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import UnavailableError
from tests.page.chromium import Tab, find_chromium, opened, started
from tests.page.stage import Stage, staged

HERE = Path(__file__).parent
FOUND = pytest.StashKey[Path | UnavailableError]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or install Chromium before the first test: an installation may take longer than a test may."""
    if session.config.option.collectonly or not any(item.path.is_relative_to(HERE) for item in session.items):
        return
    try:
        session.config.stash[FOUND] = find_chromium()
    except UnavailableError as error:
        session.config.stash[FOUND] = error


@pytest.fixture(scope="session")
def devtools(pytestconfig: pytest.Config) -> Iterator[str]:
    """A browser; without one the test is skipped, and in CI it fails."""
    found = pytestconfig.stash[FOUND]
    if isinstance(found, UnavailableError):
        if os.environ.get("CI") == "true":
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    with started(found) as address:
        yield address


@pytest.fixture
async def tab(devtools: str) -> AsyncIterator[Tab]:
    """A tab."""
    async with opened(devtools) as tab:
        yield tab


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A server of one class with 3 of 4 devices free."""
    async with staged() as stage:
        yield stage
