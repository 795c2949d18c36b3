"""The short form of `make conformance`: some real clients against two replicas, with addresses of their own."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.binaries import Binaries, UnavailableError
from tests.conformance import dashboard, informers, kubectl, replicas, websockets
from tests.conformance.checks import Check, SkippedError
from tests.conformance.stage import Stage, opened

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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [pytest.param(check, id=check.name) for check in SHORT])
def test_client(stage: Stage, check: Check) -> None:
    """A real client gets what it would get from a server built on k8s.io/apiserver."""
    try:
        check.run(stage)
    except (SkippedError, UnavailableError) as reason:
        pytest.skip(str(reason))
