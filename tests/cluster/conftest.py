"""Fixtures of the tests that need a real control plane: it is started once, and each test leaves it as it found it."""

import dataclasses
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from tests.cluster.binaries import Binaries, UnavailableError, find_binaries, find_helm, find_older_kube_apiserver
from tests.cluster.catalog import CatalogServer, composed
from tests.cluster.cleaning import left_as_found
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.network import OF_THIS_THREAD
from tests.cluster.renderings import distinct, variants
from tests.monitoring.judging import Promjudge, find_promjudge
from tests.needs import missing

T = TypeVar("T")

HERE = Path(__file__).parent
FOUND = pytest.StashKey[Binaries | UnavailableError]()
JUDGE_FOUND = pytest.StashKey[Path | UnavailableError]()
OLDER_FOUND = pytest.StashKey[Path | UnavailableError]()
HELM_FOUND = pytest.StashKey[Path | UnavailableError]()
NEWEST, OLDEST = "1.37", "1.34"
OWN_NETWORK = os.path.realpath(OF_THIS_THREAD)


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
    stash, announce = session.config.stash, _announcer(session.config)
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    stash[FOUND] = _attempt(find_binaries, announce)
    if "older_control_plane" in wanted or any(_is_for_oldest(item) for item in session.items):
        stash[OLDER_FOUND] = _attempt(find_older_kube_apiserver, announce)
    if "helm" in wanted:
        stash[HELM_FOUND] = _attempt(find_helm, announce)
    if "promjudge" in wanted:
        stash[JUDGE_FOUND] = _attempt(find_promjudge, announce)


@pytest.fixture(scope="session")
def announce(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Says a sentence to the person who runs the tests."""
    return _announcer(pytestconfig)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """The programs of the control plane; without them the test is skipped, and in CI it fails."""
    return _required(pytestconfig.stash[FOUND])


@pytest.fixture(scope="session")
def promjudge(pytestconfig: pytest.Config) -> Promjudge:
    """Prometheus' and Grafana's packages as judges; without them the test is skipped, and in CI it fails."""
    return Promjudge(_required(pytestconfig.stash[JUDGE_FOUND]))


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config) -> Path:
    """The program helm; without it the test is skipped, and in CI it fails."""
    return _required(pytestconfig.stash[HELM_FOUND])


@pytest.fixture(scope="session")
def kustomize_renderings(binaries: Binaries) -> dict[tuple[str, ...], list[Json]]:
    """Every choice of components, as kustomize gives it with the base."""
    chosen = list(variants())
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(chosen, pool.map(lambda each: composed(binaries.kubectl, *each), chosen), strict=True))


@pytest.fixture(scope="session")
def everything(kustomize_renderings: dict[tuple[str, ...], list[Json]]) -> list[Json]:
    """Each object that any choice has, once for each form in which it comes."""
    return distinct(itertools.chain.from_iterable(kustomize_renderings.values()))


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the real scheduler, shared by all tests."""
    _require_own_network()
    with ControlPlane(binaries, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def older_control_plane(
    pytestconfig: pytest.Config, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane with the oldest kube-apiserver that we promise to work with, and without a scheduler."""
    _require_own_network()
    older = dataclasses.replace(binaries, kube_apiserver=_required(pytestconfig.stash[OLDER_FOUND]))
    with ControlPlane(older, tmp_path_factory.mktemp("older-control-plane"), scheduler=False) as running:
        yield running


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def either_control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """A control plane of each Kubernetes version in turn; each is started once."""
    name = "older_control_plane" if request.param == OLDEST else "control_plane"
    running: ControlPlane = request.getfixturevalue(name)
    return running


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


def _attempt(find: Callable[[Callable[[str], None]], T], announce: Callable[[str], None]) -> T | UnavailableError:
    """What is found or built, or why it is not."""
    try:
        return find(announce)
    except UnavailableError as error:
        return error


def _required(found: T | UnavailableError) -> T:
    """What was found; without it the test is skipped, and in CI it fails."""
    if isinstance(found, UnavailableError):
        missing(f"not run for want of a real control plane: {found}")
    return found


def _require_own_network() -> None:
    """What all tests share must not be started by one that stands in a network of its own: no other would reach it."""
    if os.path.realpath(OF_THIS_THREAD) != OWN_NETWORK:
        raise RuntimeError("this test stands in another network, where the shared control plane would reach nobody")


def _is_for_oldest(item: pytest.Item) -> bool:
    """Whether a test is the one of its versions that needs the older kube-apiserver, which takes minutes to build."""
    callspec = getattr(item, "callspec", None)
    if "older_control_plane" in getattr(item, "fixturenames", ()):
        return True
    return callspec is not None and callspec.params.get("either_control_plane") == OLDEST


def _announcer(config: pytest.Config) -> Callable[[str], None]:
    """What says a sentence where the person who runs the tests reads it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say: Callable[[str], None] = reporter.write_line if reporter else logging.getLogger(__name__).info
    return say
