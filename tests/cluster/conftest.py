"""Fixtures of the tests that need a real control plane: it is started once, and each test leaves it as it found it."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries, UnavailableError, find_binaries
from tests.cluster.catalog import CatalogServer
from tests.cluster.cleaning import left_as_found
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane

HERE = Path(__file__).parent
FOUND = pytest.StashKey[Binaries | UnavailableError]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this directory, so that `-m "not cluster"` leaves them out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the programs before the first test: a build takes longer than a test may."""
    if session.config.option.collectonly or not any(item.get_closest_marker("cluster") for item in session.items):
        return
    try:
        session.config.stash[FOUND] = find_binaries(_announcer(session.config))
    except UnavailableError as error:
        session.config.stash[FOUND] = error


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """The programs of the control plane; without them the test is skipped, and in CI it fails."""
    found = pytestconfig.stash[FOUND]
    if isinstance(found, Binaries):
        return found
    message = f"not run for want of a real control plane: {found}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the real scheduler, shared by all tests."""
    with ControlPlane(binaries, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def catalog(control_plane: ControlPlane) -> Iterator[CatalogServer]:
    """Our server on that control plane: installed, running, and Available."""
    with CatalogServer(control_plane) as running:
        yield running


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Client]:
    """The administrator's connection; what the test makes is deleted at its end.

    Deleted are Pods, Nodes, GPUClasses, ResourceQuotas, Secrets and Namespaces.
    """
    with left_as_found(control_plane.client):
        yield control_plane.client


def _announcer(config: pytest.Config) -> Callable[[str], None]:
    """What says a sentence where the person who runs the tests reads it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say: Callable[[str], None] = reporter.write_line if reporter else logging.getLogger(__name__).info
    return say
