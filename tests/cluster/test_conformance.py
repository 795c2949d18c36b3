"""The short form of `make conformance`: some real clients against two replicas, behind the shared control plane."""

from collections.abc import Iterator

import pytest

from tests.cluster.binaries import UnavailableError
from tests.cluster.catalog import CatalogServer
from tests.cluster.cleaning import left_as_found
from tests.cluster.control_plane import ControlPlane
from tests.conformance import dashboard, informers, kubectl, replicas, websockets
from tests.conformance.checks import Check, SkippedError
from tests.conformance.stage import Stage, set_up

SHORT = [
    check
    for checks in (kubectl.CHECKS, informers.CHECKS, websockets.CHECKS, dashboard.CHECKS, replicas.CHECKS)
    for check in checks
    if check.is_short
]


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, catalog: CatalogServer) -> Iterator[Stage]:
    """A second replica beside the shared one, and something on sale."""
    second = CatalogServer(control_plane)
    try:
        second.start()
        with left_as_found(control_plane.client), set_up(control_plane, (catalog, second)) as stage:
            yield stage
    finally:
        second.stop()
        catalog.install()
        catalog.wait_until_available()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [pytest.param(check, id=check.name) for check in SHORT])
def test_client(stage: Stage, check: Check) -> None:
    """A real client gets what it would get from a server built on k8s.io/apiserver."""
    try:
        check.run(stage)
    except (SkippedError, UnavailableError) as reason:
        pytest.skip(str(reason))
