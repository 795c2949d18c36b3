"""The short form of `make conformance`: some real clients against two replicas, with addresses of their own."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.binaries import Binaries, UnavailableError
from tests.conformance import dashboard, informers, kubectl, replicas, service, websockets
from tests.conformance.checks import Check, SkippedError
from tests.conformance.stage import Stage, opened
from tests.needs import missing

SHORT = [
    check
    for checks in (kubectl.CHECKS, informers.CHECKS, websockets.CHECKS, dashboard.CHECKS, replicas.CHECKS)
    for check in checks
    if check.is_short
]


@pytest.fixture(scope="module")
def stage(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory, announce: Callable[[str], None]
) -> Iterator[Stage]:
    """A control plane of its own: while it lasts, this thread is in another network."""
    with contextlib.suppress(UnavailableError):  # the check says it
        informers.find_informer(lambda _: None)
    with opened(binaries, tmp_path_factory.mktemp("conformance"), announce=announce) as stage:
        yield stage


@pytest.fixture
def by_service(stage: Stage) -> Iterator[Stage]:
    """The same, with a Service that chooses between the replicas instead of the splitter."""
    if stage.control_plane.network is None:
        missing("the replicas have no addresses of their own: that takes Linux, root and iproute2")
    stage.lead_to(*(replica.endpoint() for replica in stage.replicas))
    yield stage
    stage.lead_to(stage.splitter.endpoint)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [pytest.param(check, id=check.name) for check in SHORT])
def test_client(stage: Stage, check: Check) -> None:
    """A real client gets what it would get from a server built on k8s.io/apiserver."""
    _run(check, stage)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [pytest.param(check, id=check.name) for check in service.CHECKS if check.is_short])
def test_service(by_service: Stage, check: Check) -> None:
    """The same where kube-apiserver chooses the replica for each request."""
    _run(check, by_service)


def _run(check: Check, stage: Stage) -> None:
    try:
        check.run(stage)
    except UnavailableError as reason:
        missing(reason)
    except SkippedError as reason:
        pytest.skip(str(reason))
