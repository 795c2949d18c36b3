"""resourceVersions and the clock behind them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.serving.versions import EPOCH, ServerClock, VersionSource, is_surely_later

START = datetime(2026, 6, 1, tzinfo=UTC)


@given(st.lists(st.floats(0, 10**7), max_size=50))
def test_rising(times: list[float]) -> None:
    """Versions rise whatever the clock does."""
    clock = iter(times)
    source = VersionSource(lambda: EPOCH + next(clock), tag=1023)
    versions = [source.next() for _ in times]
    assert versions == sorted(set(versions))


def test_exact_in_javascript_until_2043() -> None:
    """A version of 2043 is below 2^53, and one of today is positive."""
    late = datetime(2043, 1, 1, tzinfo=UTC).timestamp()
    assert 0 < VersionSource(START.timestamp, tag=0).next() < VersionSource(lambda: late, 1023).next() < 2**53


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 0.9)), min_size=1, max_size=60))
def test_clock(answers: list[tuple[float, float]]) -> None:
    """The clock is never ahead of the server, and at most a second and a round trip behind."""
    monotonic = 0.0
    clock = ServerClock(monotonic=lambda: monotonic)
    for pause, flight in answers:
        sent = START + timedelta(seconds=monotonic + pause)
        monotonic += pause + flight
        clock.observe(sent.replace(microsecond=0), monotonic)
        true = START.timestamp() + monotonic
        slack = 1 + max(flight for _, flight in answers)
        assert true - slack - 1e-3 <= clock() <= true + 1e-3


class Answering:
    """A clock that is told the server's time every few seconds."""

    def __init__(self) -> None:
        self.monotonic = 0.0
        self.clock = ServerClock(monotonic=lambda: self.monotonic)
        self.source = VersionSource(self.clock, tag=1)

    def answer(self, times: int = 1, *, ahead_seconds: float = 0, apart_seconds: float = 10) -> None:
        """Be answered some times by a server that is ahead of the truth."""
        for _ in range(times):
            self.monotonic += apart_seconds
            self.clock.observe(START + timedelta(seconds=self.monotonic + ahead_seconds), self.monotonic)

    @property
    def error_seconds(self) -> float:
        """How far the clock is ahead of the truth."""
        return self.clock() - START.timestamp() - self.monotonic


@pytest.mark.parametrize("ahead_seconds", [3.0, 60.0, 1e7])
def test_a_date_far_ahead(ahead_seconds: float) -> None:
    """One answer, or a burst of them, that is far ahead of all others moves nothing."""
    told = Answering()
    told.answer(3)
    told.answer(ahead_seconds=ahead_seconds)
    told.answer(200, ahead_seconds=ahead_seconds, apart_seconds=0.01)
    assert told.error_seconds == pytest.approx(0, abs=1e-3)
    told.answer(5)
    assert told.error_seconds == pytest.approx(0, abs=1e-3)


def test_a_first_date_far_ahead() -> None:
    """If the very first answer is wrong the clock is right after a few others, and versions rise all the same."""
    told = Answering()
    told.answer(ahead_seconds=60)
    first = told.source.next()
    told.answer(3)
    assert told.error_seconds == pytest.approx(0, abs=1e-3)
    assert told.source.next() > first
    told.answer(4)
    assert (told.source.next() >> 10) / 16_000 == pytest.approx(told.clock() - EPOCH, abs=1e-3)


@pytest.mark.parametrize("late_seconds", [3.0, 60.0])
def test_answers_that_are_read_late(late_seconds: float) -> None:
    """Answers that we were too busy to read for a while do not hide what one that was read at once tells."""
    told = Answering()
    told.answer(2, ahead_seconds=-late_seconds)
    told.answer(apart_seconds=1)
    assert told.error_seconds == pytest.approx(0, abs=1e-3)
    told.answer(2)
    told.answer(20, ahead_seconds=-late_seconds)
    assert told.error_seconds == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("stepped", [-60.0, -3.0, 3.0, 60.0])
def test_a_server_that_steps(stepped: float) -> None:
    """A step of the server's clock that lasts is followed within minutes."""
    told = Answering()
    told.answer(100)
    told.answer(31, ahead_seconds=stepped)
    assert told.error_seconds == pytest.approx(stepped, abs=1e-3)


def test_nobody_told_the_time() -> None:
    """Before the first answer of the server there is no time."""
    with pytest.raises(RuntimeError):
        ServerClock()()


def test_following_another_replica() -> None:
    """After a version of a clock that is a little ahead ours are greater; one far ahead moves nothing."""
    now = START.timestamp()
    ours = VersionSource(lambda: now, tag=1)
    ahead = VersionSource(lambda: now + 1, tag=2).next()
    ours.follow(ahead)
    assert ahead <= ours.now()
    assert ours.next() > ahead
    far = VersionSource(lambda: now + 60, tag=2).next()
    ours.follow(far)
    assert ours.now() < far


@pytest.mark.parametrize("stepped", [-60.0, -10.0, 10.0])
def test_wall_clock_is_not_asked(stepped: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the wall clock moves no version, neither in a running process nor in one that is started anew."""
    monotonic = 100.0

    def started() -> VersionSource:
        clock = ServerClock(monotonic=lambda: monotonic)
        clock.observe(START + timedelta(seconds=monotonic), monotonic)
        return VersionSource(clock, tag=1)

    made = []
    for _ in range(2):
        source = started()
        monotonic += 1
        made.append(source.next())
        monkeypatch.setattr("time.time", lambda: START.timestamp() + stepped)
        monotonic += 1
        made.append(source.next())
    ticks = [version >> 10 for version in made]
    assert [later - earlier for earlier, later in pairwise(ticks)] == [16_000] * 3


@given(st.floats(-1, 1), st.floats(0, 2), st.floats(0, 60))
def test_surely_later(skew: float, followed: float, seconds: float) -> None:
    """What is called surely later was made later, though the other's clock is ahead and it followed one ahead of it."""
    now = START.timestamp()
    ours = VersionSource(lambda: now, tag=1).next()
    other = VersionSource(lambda: now + seconds + skew, tag=2)
    other.follow(VersionSource(lambda: now + seconds + skew + followed, tag=3).next())
    theirs = other.next()
    assert not is_surely_later(theirs, than=ours) or seconds > 0
    assert is_surely_later(VersionSource(lambda: now + 4.1, tag=2).next(), than=ours)
