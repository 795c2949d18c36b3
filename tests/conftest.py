"""Options of the whole test run, what every test puts back, and the browser that tests of several directories use."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from apiserver.cluster.reflector import FAILURES
from tests.cluster.binaries import UnavailableError
from tests.loops import PatientLoop
from tests.needs import missing
from tests.page.chromium import Tab, find_chromium, opened, started

CHROMIUM = pytest.StashKey[Path | UnavailableError]()

USUAL_SECONDS = 120
"""As in pyproject.toml."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` takes what is served now as what is expected, to be read as a diff before it is committed."""
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every asynchronous test."""
    return {"patient": PatientLoop}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest: with several workers none is then left over at the end."""
    longest: dict[object, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker else USUAL_SECONDS
        longest[item.path] = max(longest.get(item.path, 0), seconds)
    items.sort(key=lambda item: -longest[item.path])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or install Chromium before the first test: an installation may take longer than a test may."""
    looking = ("devtools" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not any(looking):
        return
    try:
        session.config.stash[CHROMIUM] = find_chromium()
    except UnavailableError as error:
        session.config.stash[CHROMIUM] = error


@pytest.fixture(autouse=True)
def verbosity() -> Iterator[None]:
    """What the program's loggers tell, as it was before a test that ran a command in this process."""
    levels = {name: logging.getLogger(name).level for name in ("apiserver", FAILURES)}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session")
def devtools(pytestconfig: pytest.Config) -> Iterator[str]:
    """A browser; without one the test is skipped, and in CI it fails."""
    found = pytestconfig.stash[CHROMIUM]
    if isinstance(found, UnavailableError):
        missing(found)
    with started(found) as address:
        yield address


@pytest.fixture
async def tab(devtools: str) -> AsyncIterator[Tab]:
    """A page of that browser."""
    async with opened(devtools) as tab:
        yield tab
