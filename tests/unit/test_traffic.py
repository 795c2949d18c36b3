"""The counts of requests, as far as no request is needed for them."""

import pytest

from apiserver.serving.limits import Inflight
from apiserver.serving.traffic import Histogram


def test_histogram() -> None:
    """A bound counts what does not exceed it; what exceeds all is in the last, and in the sum."""
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        histogram.observe(value)
    assert histogram.buckets() == [(1.0, 2), (10.0, 4), (float("inf"), 5)]
    assert histogram.sum == 24


@pytest.mark.parametrize("reads", [True, False])
def test_most_at_once_of_late(reads: bool) -> None:
    """A peak is told for a second after it, what goes on for as long as it does; the other kind is not touched."""
    now = 100.0
    inflight = Inflight(clock=lambda: now)
    assert all(inflight.enter(reads=reads) for _ in range(3))
    for _ in range(2):
        inflight.leave(reads=reads)
    assert inflight.highest(reads=reads) == 3
    assert inflight.highest(reads=not reads) == 0
    now = 101.0
    assert inflight.highest(reads=reads) == 3
    now = 102.0
    assert inflight.highest(reads=reads) == 1
    now = 200.0
    assert inflight.enter(reads=reads)
    for _ in range(2):
        inflight.leave(reads=reads)
    assert inflight.highest(reads=reads) == 2
    now = 300.0
    assert inflight.highest(reads=reads) == 0
