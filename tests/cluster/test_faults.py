"""The short form of `make faults`: some of every sort, on a control plane of its own, which is killed and frozen."""

import logging
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries, UnavailableError
from tests.faults import clients, cuts, trust
from tests.faults.__main__ import run
from tests.faults.following import find_follower
from tests.faults.kills import kills
from tests.faults.rows import Fault, is_failed, table
from tests.needs import missing

SEED = 2
SHORT = (
    kills(6, SEED),
    cuts.CUT,
    Fault("410 (etcd compacted)", cuts.expire),
    trust.CLIENT_CA,
    trust.FRONT_PROXY_CA,
    trust.CONFIG_MAP,
    clients.OVERSIZED,
)
"""Of those that wait for the age limit, two minutes or more, none is here."""


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_faults(binaries: Binaries, tmp_path: Path) -> None:
    """No figure is wrong or stale, whatever happens, and what every fault must bring about is seen."""
    try:
        follower = find_follower(logging.getLogger(__name__).info)
    except UnavailableError as error:
        missing(error)
    rows = run(binaries, follower, tmp_path, SHORT, seed=SEED)
    assert not is_failed(rows), table(rows)
