"""The age of what was told: how it grows, and what makes it small again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from apiserver.cluster import live, reflector
from apiserver.cluster.client import Access, ClusterClient
from apiserver.cluster.freshness import Freshness
from apiserver.cluster.live import CLASSES, NODES, PODS, Live
from apiserver.cluster.reflector import Pace
from apiserver.cluster.view import View
from tests.fake_apiserver import End, FakeApiserver, Refusal, Script, event


def test_nothing_known() -> None:
    """Before the first list there is no age."""
    fresh = Freshness()
    fresh.probed(1, "10")
    fresh.reached("20")
    assert fresh.age(5) is None


def test_a_list_is_as_new_as_its_request() -> None:
    """A list holds what there was when it was asked for."""
    fresh = Freshness()
    fresh.listed(10, "100")
    assert fresh.age(13) == 3


def test_probes() -> None:
    """A probe counts from when it was sent, once the stream has reached what it found; in whatever order."""
    fresh = Freshness()
    fresh.listed(0, "100")
    fresh.probed(30, "100")
    assert fresh.age(31) == 1
    fresh.probed(60, "150")
    fresh.probed(90, "180")
    assert fresh.age(91) == 61
    fresh.reached("160")
    assert fresh.age(91) == 31
    fresh.reached("180")
    assert fresh.age(91) == 1
    fresh.reached("x")
    assert fresh.age(91) == 1


def test_a_new_list_never_makes_older() -> None:
    """A list that was asked for before the latest probe does not take back what that has shown."""
    fresh = Freshness()
    fresh.listed(0, "100")
    fresh.probed(30, "100")
    fresh.listed(20, "100")
    assert fresh.age(40) == 10


NODE: dict[str, Any] = {"status": {"allocatable": {"a.b/c": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeApiserver]:
    """A cluster with one node."""
    async with FakeApiserver() as server:
        server.put(NODES.path, "n", **NODE)
        yield server


class Clock:
    """The reflectors' clock, which only a test moves on: nothing gets old by a machine that is slow."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """At zero."""
    clock = Clock()
    monkeypatch.setattr(reflector, "_now", clock)
    return clock


@pytest.fixture
async def followed(fake: FakeApiserver, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """The cluster followed with probes every 20 ms; old after 180 s of the clock."""
    assert clock.seconds == 0
    quick = Pace(silence=60, first_pause=0.01, longest_pause=0.02, probe=0.02)
    monkeypatch.setattr(live, "DEFAULT_PACE", quick)
    following = Live(View())
    async with ClusterClient(Access(fake.url), user_agent="tests") as client:
        task = asyncio.create_task(following.run(client))
        await until(lambda: following.untold() is None)
        yield following
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what must come to be so, however long it takes."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 # any condition, not one event
            await asyncio.sleep(0.002)


async def test_a_quiet_cluster_is_not_old(fake: FakeApiserver, followed: Live, clock: Clock) -> None:
    """Where nothing happens, probes alone keep what is known new."""

    def probes() -> int:
        return min(sum(each.path == path for each in fake.lists) for path in (NODES.path, PODS.path, CLASSES.path))

    def probed(times: int) -> bool:
        return probes() >= times

    for _ in range(5):
        clock.seconds += 100
        await until(partial(probed, probes() + 3))  # the second began after the clock moved, and is answered
        assert followed.stale() is None


async def test_a_cut_is_told(fake: FakeApiserver, followed: Live, clock: Clock) -> None:
    """When the cluster is not heard of for too long, nothing is told; as soon as it is, all is told again."""
    refusals = [Refusal(503)] * 100_000
    fake.list_faults.extend(refusals)
    fake.watch_faults.extend(refusals)
    fake.end_watches()
    await until(lambda: len(fake.list_faults) < len(refusals) - 20)
    assert followed.untold() is None, "an answer may be this old"
    clock.seconds += 181
    await until(lambda: "503" in (followed.untold() or ""))
    assert followed.stale() is not None
    assert followed.unsynced() is None
    fake.list_faults.clear()
    fake.watch_faults.clear()
    await until(lambda: followed.untold() is None)


async def test_a_stream_that_stays_behind(fake: FakeApiserver, followed: Live, clock: Clock) -> None:
    """A stream that goes on but brings nothing new is opened anew, and what was missed is told."""
    frozen = Script(chunks=(event("BOOKMARK", {"metadata": {"resourceVersion": "1"}}),), end=End.NEVER)
    fake.watch_faults.extend([frozen] * 3)
    before = len(fake.watches)
    fake.end_watches()
    await until(lambda: len(fake.watches) >= before + 3)
    for path in (NODES.path, PODS.path, CLASSES.path):
        fake.put(path, "late", **(NODE if path == NODES.path else {}))
    clock.seconds += 181
    assert followed.stale() is not None
    await until(lambda: followed.untold() is None)
