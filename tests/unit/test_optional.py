"""Optional kinds: KubeVirt's table and DRA's mappings, there or not, readable or not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from apiserver.cluster import optional
from apiserver.cluster.client import Access, ClusterClient
from apiserver.cluster.dra import DeviceClassObject, mapped_names
from apiserver.cluster.kubevirt import KUBEVIRTS, KubeVirtObject, permitted_names
from apiserver.cluster.optional import Known, OptionalKind
from apiserver.cluster.reflector import Pace
from tests.fake_apiserver import FakeApiserver, Refusal

QUICK = Pace(silence=5, first_pause=0.01, longest_pause=0.02)
TABLE = {"configuration": {"permittedHostDevices": {"pciHostDevices": [{"resourceName": "nvidia.com/A"}]}}}


def kubevirt(table: Any) -> KubeVirtObject:  # noqa: ANN401 # JSON
    """A KubeVirt with a table, or without one."""
    configuration = {} if table is None else {"permittedHostDevices": table}
    return msgspec.convert({"metadata": {"name": "k"}, "spec": {"configuration": configuration}}, KubeVirtObject)


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        pytest.param([], None, id="no KubeVirt checks nothing"),
        pytest.param([None], None, id="no table checks nothing"),
        pytest.param([{}], set(), id="an empty table permits nothing"),
        pytest.param([{"pciHostDevices": None, "usb": []}], set(), id="empty lists permit nothing"),
        pytest.param(
            [
                {
                    "pciHostDevices": [{"resourceName": "a/1", "externalResourceProvider": True}],
                    "mediatedDevices": [{"resourceName": "b/2", "mdevNameSelector": "x"}],
                    "usb": [{"resourceName": "c/3"}],
                }
            ],
            {"a/1", "b/2", "c/3"},
            id="a name may stand in any of the three tables",
        ),
        pytest.param(
            [{"usb": [{"resourceName": "a/1"}]}, {"usb": [{"resourceName": "b/2"}]}], {"a/1", "b/2"}, id="two"
        ),
        pytest.param([{}, None], None, id="two, of which one checks nothing"),
    ],
)
def test_permitted_names(tables: list[Any], names: set[str] | None) -> None:
    """Without a table nothing is checked, which is not the same as an empty one."""
    assert permitted_names(map(kubevirt, tables)) == names


def test_mapped_names() -> None:
    """DeviceClasses are told by the extended resource name they map."""
    raw = [("b", "nvidia.com/gpu"), ("a", "nvidia.com/gpu"), ("c", "amd.com/gpu"), ("d", "")]
    classes = [
        msgspec.convert({"metadata": {"name": name}, "spec": {"extendedResourceName": mapped}}, DeviceClassObject)
        for name, mapped in raw
    ]
    assert mapped_names(classes) == {"nvidia.com/gpu": ("a", "b"), "amd.com/gpu": ("c",)}


class Told:
    """What an optional kind has told so far: the names permitted, and whether there was a problem."""

    def __init__(self) -> None:
        self.news: list[tuple[frozenset[str] | None, bool]] = []

    def __call__(self, known: Known[KubeVirtObject]) -> None:
        """Take what is known."""
        names = None if known.objects is None else permitted_names(known.objects)
        self.news.append((names, known.problem is not None))


@pytest.fixture
async def fake() -> AsyncIterator[FakeApiserver]:
    """A server that has KubeVirts."""
    async with FakeApiserver() as server:
        yield server


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """A listener, and quick looks."""
    monkeypatch.setattr(optional, "POLL_SECONDS", 0.005)
    return Told()


@pytest.fixture
async def kind(fake: FakeApiserver, told: Told) -> AsyncIterator[Callable[[], OptionalKind[KubeVirtObject]]]:
    """Starts following KubeVirts when called."""
    started: list[asyncio.Task[None]] = []
    async with ClusterClient(Access(fake.url), user_agent="tests") as client:

        def start() -> OptionalKind[KubeVirtObject]:
            followed = OptionalKind(KUBEVIRTS, told, pace=QUICK)
            started.append(asyncio.create_task(followed.run(client)))
            return followed

        yield start
        for task in started:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


Start = Callable[[], OptionalKind[KubeVirtObject]]


async def until(condition: Callable[[], object]) -> None:
    """Wait for what must soon be so."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 # any condition, not one event
            await asyncio.sleep(0.002)


async def test_follows(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """The table is followed as it changes, and its deletion ends the check."""
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    followed = kind()
    await until(lambda: told.news == [(frozenset({"nvidia.com/A"}), False)])
    assert followed.settled()
    fake.put(KUBEVIRTS.path, "k", spec={"configuration": {"permittedHostDevices": {}}})
    await until(lambda: told.news[-1] == (frozenset(), False))
    fake.remove(KUBEVIRTS.path, "k")
    await until(lambda: told.news[-1] == (None, False))


async def test_missing_kind(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """A cluster without the kind is not checked and has no problem; when the kind comes it is followed."""
    fake.list_faults.extend([Refusal(404, "NotFound")] * 3)
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    followed = kind()
    await until(followed.settled)
    assert told.news == []
    await until(lambda: told.news == [(frozenset({"nvidia.com/A"}), False)])


async def test_kind_removed(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """When the kind is removed from the cluster, so is the check."""
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    kind()
    await until(lambda: told.news)
    await until(lambda: fake.is_watched(1))
    gone = [Refusal(404, "NotFound")] * 100
    fake.list_faults.extend(gone)
    fake.watch_faults.extend(gone)
    fake.end_watches()
    await until(lambda: told.news[-1] == (None, False))


async def test_forbidden(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """When reading is forbidden the last known table stays, and that is said; it ends when reading works again."""
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    kind()
    await until(lambda: fake.is_watched(1))
    refusals = [Refusal(403, "Forbidden")] * 3
    fake.list_faults.extend(refusals)
    fake.watch_faults.append(Refusal(403, "Forbidden"))
    fake.end_watches()
    known = frozenset({"nvidia.com/A"})
    await until(lambda: told.news == [(known, False), (known, True), (known, False)])


async def test_forbidden_from_the_start(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """What could never be read is not checked, and that is said."""
    fake.list_faults.extend([Refusal(403, "Forbidden")] * 1000)
    followed = kind()
    await until(lambda: told.news == [(None, True)])
    assert followed.settled()
    assert "403" in (followed.known.problem or "")


async def test_short_failures_are_no_news(
    fake: FakeApiserver, told: Told, kind: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that fails and is taken up again changes nothing; one that goes on failing does."""
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    kind()
    await until(lambda: fake.is_watched(1))
    fake.watch_faults.extend([Refusal(500)] * 2)
    fake.end_watches()
    await until(lambda: fake.is_watched(4))
    assert len(told.news) == 1
    monkeypatch.setattr(optional, "FAILING_SECONDS", 0.01)
    fake.watch_faults.extend([Refusal(500)] * 1000)
    fake.list_faults.extend([Refusal(500)] * 1000)
    fake.end_watches()
    await until(lambda: told.news[-1] == (frozenset({"nvidia.com/A"}), True))


async def test_unreadable(fake: FakeApiserver, told: Told, kind: Start) -> None:
    """A table that can no longer be read stays as it was last known: forgetting it would permit everything."""
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    kind()
    await until(lambda: fake.is_watched(1))
    fake.put(KUBEVIRTS.path, "k", spec={"configuration": 7})
    known = frozenset({"nvidia.com/A"})
    await until(lambda: told.news[-1] == (known, True))
    fake.watch_faults.append(Refusal(410, "Expired"))
    fake.end_watches()
    await until(lambda: len(fake.lists) > 1)
    await until(lambda: fake.is_watched(3))
    assert told.news[-1] == (known, True)
    fake.put(KUBEVIRTS.path, "k", spec=TABLE)
    await until(lambda: told.news[-1] == (known, False))
