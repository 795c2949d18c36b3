"""Stores made when they are needed: nothing is kept for nobody, and no watch has a gap."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.serving import namespaced
from apiserver.serving.history import KEEP_SECONDS
from apiserver.serving.namespaced import ALL, NamespacedStores, Turn
from apiserver.serving.options import read_options
from apiserver.serving.selectors import METADATA_FIELDS, make_selection
from apiserver.serving.status import ServiceUnavailable
from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import VersionSource
from apiserver.serving.watching import Event, Watch, fold


class Time:
    """A clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        """Seconds."""
        return self.now


class Side:
    """Names with a value each, told as a feed tells them."""

    def __init__(self, **now: int) -> None:
        self.now = now
        self._changed = set(now)
        self._gone: dict[str, int] = {}

    def put(self, name: str, value: int) -> None:
        """Make it so."""
        self.now[name] = value
        self._changed.add(name)

    def drop(self, name: str) -> None:
        """Let it go."""
        if name in self.now:
            self._gone[name] = self.now.pop(name)
            self._changed.add(name)

    def take(self) -> Iterable[Turn[tuple[str, int]]]:
        """What became of which since the last call."""
        changed, gone, self._changed, self._gone = self._changed, self._gone, set(), {}
        for name in changed:
            now, last = self.now.get(name), gone.get(name)
            yield Turn(name, None if now is None else (name, now), None if last is None else (name, last))


class World:
    """Two sides and the stores of their crossings; a value of 9 on either side makes the object look the same."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.namespaces, self.names = Side(n1=1, n2=2), Side(a=1, b=2)
        self.made = 0
        self.problem: str | None = None
        self.stores = NamespacedStores(
            VersionSource(time, tag=1),
            namespaces=self.namespaces.take,
            names=self.names.take,
            make=self.make,
            require=self.require,
            clock=time,
        )

    def make(self, namespace: tuple[str, int], name: tuple[str, int]) -> dict[str, Any]:
        """The object of a crossing."""
        self.made += 1
        size = 0 if 9 in (namespace[1], name[1]) else namespace[1] * name[1]
        return {"metadata": {"name": name[0], "namespace": namespace[0], "uid": "u"}, "size": size}

    def require(self) -> None:
        """Refuse while there is a problem."""
        if self.problem:
            raise ServiceUnavailable(self.problem)

    def truth(self, scope: str) -> dict[tuple[str, str], int]:
        """What there is, worked out in the simplest way."""
        return {
            (namespace, name): self.make((namespace, left), (name, right))["size"]
            for namespace, left in self.namespaces.now.items()
            if scope in (ALL, namespace)
            for name, right in self.names.now.items()
        }


@pytest.fixture
def time() -> Time:
    """The server's time."""
    return Time()


@pytest.fixture
def world(time: Time) -> World:
    """Two namespaces and two names."""
    return World(time)


def watch(store: ResourceStore, namespace: str, **query: Any) -> Watch:  # noqa: ANN401 # options
    """A watch with these options."""
    lasts = query.pop("lasts", 5)
    return Watch(
        store=store,
        namespace=namespace,
        selection=make_selection("", "", METADATA_FIELDS),
        options=read_options(query, watch=True),
        lasts=lasts,
        closing=asyncio.Event(),
        type_meta={"kind": "Thing", "apiVersion": "v1"},
    )


def told(batch: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Type, namespace and name of each event, in order of the last two."""
    events = [(event.type, event.object["metadata"]["namespace"], event.object["metadata"]["name"]) for event in batch]
    return sorted(events, key=lambda event: event[1:])


async def following(batches: AsyncIterator[Sequence[Event]]) -> Sequence[Event]:
    """The next batch."""
    async with asyncio.timeout(60):
        return await anext(batches)


def sizes(store: ResourceStore) -> dict[tuple[str, str], int]:
    """What a store lists."""
    return {
        (item.object["metadata"]["namespace"], item.object["metadata"]["name"]): item.object["size"]
        for item in store.list().items
    }


async def test_only_what_is_read_is_made(world: World) -> None:
    """A namespace costs its own objects, made once, and again only where something changed."""
    async with world.stores.open("n1") as store:
        assert sizes(store) == {("n1", "a"): 1, ("n1", "b"): 2}
    assert world.made == 2
    world.names.put("a", 5)
    world.namespaces.put("n2", 7)
    async with world.stores.open("n1") as store:
        assert sizes(store) == {("n1", "a"): 5, ("n1", "b"): 2}
    assert world.made == 3
    async with world.stores.open("nowhere") as store:
        assert sizes(store) == {}
        assert int(store.list().version) > 0
    assert world.made == 3


async def test_all_together(world: World) -> None:
    """Across namespaces there is one store of everything, in order."""
    async with world.stores.open(ALL) as store:
        assert sizes(store) == world.truth(ALL)
        assert [item.object["metadata"]["name"] for item in store.list().items] == ["a", "b", "a", "b"]


async def test_idle_stores_are_dropped(world: World, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody has read for a while is dropped, and of too many the longest left; what is watched is not."""
    monkeypatch.setattr(namespaced, "IDLE_STORES", 2)
    async with world.stores.open("n1"):
        for name in ("n2", "x", "y"):
            time.now += 1
            async with world.stores.open(name):
                pass
        assert world.stores.kept == 3
        time.now += namespaced.IDLE_SECONDS
        async with world.stores.open("z"):
            pass
        assert world.stores.kept == 2
    assert world.stores.kept == 2


async def test_list_then_watch(world: World) -> None:
    """From the version of a list on, every change is told once, though nobody had the store open in between."""
    async with world.stores.open("n1") as store:
        version = store.list().version
    world.names.put("a", 3)
    async with (
        world.stores.open("n1") as store,
        aclosing(watch(store, "n1", resourceVersion=version).batches()) as batches,
    ):
        assert told(await following(batches)) == []
        assert told(await following(batches)) == [("MODIFIED", "n1", "a")]


async def test_after_the_store_was_dropped(world: World, time: Time) -> None:
    """A version that the store does not know any more: every object, every deletion of the last minutes, no gap."""
    async with world.stores.open("n1"):
        time.now += 10  # by which no replica's clock is ahead of the first complete state
    async with world.stores.open("n1") as store:
        version = store.list().version
    time.now += 2 * namespaced.IDLE_SECONDS
    async with world.stores.open("n2"):
        pass
    assert world.stores.kept == 1
    world.names.drop("a")
    world.names.put("passing", 1)
    world.names.drop("passing")
    async with world.stores.open("n1") as store:
        events = await following(watch(store, "n1", resourceVersion=version).batches())
        assert told(events) == [("DELETED", "n1", "a"), ("ADDED", "n1", "b"), ("DELETED", "n1", "passing")]


async def test_a_namespace_that_went(world: World, time: Time) -> None:
    """Its objects are deletions, for who watches it and for who watches across, here and from another replica."""
    async with world.stores.open("n1") as store:
        version = store.list().version
    world.namespaces.drop("n1")
    gone = [("DELETED", "n1", "a"), ("DELETED", "n1", "b")]
    async with world.stores.open("n1") as store:
        batches = watch(store, "n1", resourceVersion=version).batches()
        assert told(await following(batches)) == []
        assert told(await following(batches)) == gone
        await batches.aclose()
    time.now += 10
    foreign = str(VersionSource(time, tag=2).next())
    for scope, rest in (("n1", []), (ALL, [("ADDED", "n2", "a"), ("ADDED", "n2", "b")])):
        async with world.stores.open(scope) as store:
            assert told(await following(watch(store, scope, resourceVersion=foreign).batches())) == gone + rest


async def test_too_old(world: World, time: Time) -> None:
    """Before the first complete state, and beyond what is remembered of deletions, a version is 410."""
    before = str(VersionSource(time, tag=2).next())
    time.now += 1
    async with world.stores.open("n1") as store:
        (event,) = await following(watch(store, "n1", resourceVersion=before).batches())
        assert (event.type, event.object["code"]) == ("ERROR", 410)
        version = store.list().version
    world.names.drop("a")
    time.now += 2 * namespaced.IDLE_SECONDS
    async with world.stores.open("n2"):
        pass
    time.now += KEEP_SECONDS + 1
    async with world.stores.open("n1") as store:
        (event,) = await following(watch(store, "n1", resourceVersion=version).batches())
        assert (event.type, event.object["code"]) == ("ERROR", 410)


async def test_begins_with_the_first_complete_state(world: World, time: Time) -> None:
    """What can be taken up begins when all is known, not when somebody first asks; until then it is refused."""
    world.problem = "not yet"
    world.stores.touch()
    with pytest.raises(ServiceUnavailable):
        async with world.stores.open("n1"):
            pass
    await asyncio.sleep(0.05)
    assert world.stores.horizon == 0
    world.problem = None
    async with asyncio.timeout(60):
        while not world.stores.horizon:  # noqa: ASYNC110 # a number, not an event
            await asyncio.sleep(0.01)
    time.now += 10
    foreign = str(VersionSource(time, tag=2).next())
    async with world.stores.open("n1") as store:
        events = await following(watch(store, "n1", resourceVersion=foreign).batches())
        assert told(events) == [("ADDED", "n1", "a"), ("ADDED", "n1", "b")]


async def test_watched_namespaces_follow(world: World) -> None:
    """A change is made anew for watched namespaces only, and told soon; the invisible never."""
    async with (
        world.stores.open("n2"),
        world.stores.open("n1") as store,
        aclosing(watch(store, "n1").batches()) as batches,
    ):
        await following(batches)
        made = world.made
        world.names.put("a", 4)
        world.stores.touch()
        assert told(await following(batches)) == [("MODIFIED", "n1", "a")]
        assert world.made == made + 1
        world.namespaces.put("n1", 9)
        world.stores.touch()
        assert told(await following(batches)) == [("MODIFIED", "n1", "a"), ("MODIFIED", "n1", "b")]
        world.names.put("a", 5)
        world.stores.touch()
        world.names.put("c", 1)
        assert told(await following(batches)) == [("ADDED", "n1", "c")]


async def test_across_at_most_once_a_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch across namespaces tells several changes of an object as one, however often somebody else reads."""
    monkeypatch.setattr(namespaced, "ACROSS_SECONDS", 0.3)
    loop = asyncio.get_running_loop()
    async with world.stores.open(ALL) as store, aclosing(watch(store, ALL).batches()) as batches:
        assert len(await following(batches)) == 4
        began, moments = loop.time(), []
        for number in range(12, 22):
            world.names.put("a", number)
            world.stores.touch()
            async with world.stores.open(ALL) as reading:
                assert sizes(reading)["n1", "a"] == number
            await asyncio.sleep(0.02)
        while True:
            batch = await following(batches)
            moments.append(loop.time() - began)
            assert told(batch) == [("MODIFIED", "n1", "a"), ("MODIFIED", "n2", "a")]
            if batch[0].object["size"] in (21, 42):
                break
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert len(moments) <= 3
    assert all(gap > 0.25 for gap in gaps)


async def test_fold(world: World) -> None:
    """Folded changes lead to the same state, in at most one change of each object."""
    async with world.stores.open("n1") as store:
        position = store.history.end
        for name, number in (("a", 5), ("a", 6), ("c", 1)):
            world.names.put(name, number)
            store.list()
        world.names.drop("c")
        world.names.drop("b")
        changes = store.history.since(position)
        assert [(each.type, each.key[1]) for each in changes if each.now][:2] == [("MODIFIED", "a"), ("MODIFIED", "a")]
        folded = fold(changes)
        assert sorted((each.type, each.key[1]) for each in folded if each.now) == [("DELETED", "b"), ("MODIFIED", "a")]
        assert [(each.type, each.key[1]) for each in folded if not each.now] == [("DELETED", "c")]
        assert [each.before.object["size"] for each in folded if each.before and each.key[1] == "a"] == [1]


async def test_many_objects_are_made_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a large store is filled others have their turn."""
    monkeypatch.setattr(namespaced, "SLICE_SECONDS", 0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    world.time.now = 0
    monkeypatch.setattr(world.stores, "_clock", lambda: asyncio.get_running_loop().time())
    async with world.stores.open(ALL) as store:
        assert sizes(store) == world.truth(ALL)
    task.cancel()
    assert turns >= 3


NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["n1", "n2", "n3"])
VALUES = st.sampled_from([1, 2, 9])
OPERATIONS = st.lists(
    st.tuples(st.just("names.put"), st.tuples(NAMES, VALUES))
    | st.tuples(st.just("names.drop"), st.tuples(NAMES))
    | st.tuples(st.just("namespaces.put"), st.tuples(SPACES, VALUES))
    | st.tuples(st.just("namespaces.drop"), st.tuples(SPACES))
    | st.tuples(st.sampled_from(["list", "foreign"]), st.tuples(SPACES | st.just(ALL)))
    | st.tuples(st.just("idle"), st.just(())),
    max_size=25,
)


@given(OPERATIONS)
@settings(deadline=None)
def test_list_and_watch_add_up(operations: list[tuple[str, tuple[Any, ...]]]) -> None:
    """From whatever version a list gave, of a store alive, dropped or of another replica, a watch leads to now."""
    asyncio.run(_add_up(operations))


async def _add_up(operations: list[tuple[str, tuple[Any, ...]]]) -> None:
    world = World(Time())
    other = VersionSource(world.time, tag=2)
    async with world.stores.open("n1"):
        pass  # the first complete state
    world.time.now += 10  # by which no replica's clock is ahead
    begun: list[tuple[str, str, dict[tuple[str, str], int]]] = []
    for verb, arguments in operations:
        world.time.now += 0.01
        if verb == "list":
            async with world.stores.open(*arguments) as store:
                assert sizes(store) == world.truth(*arguments)
                begun.append((*arguments, store.list().version, sizes(store)))
        elif verb == "foreign":
            begun.append((*arguments, str(other.next()), world.truth(*arguments)))
        elif verb == "idle":
            world.time.now += 2 * namespaced.IDLE_SECONDS
        else:
            side, _, action = verb.partition(".")
            getattr(getattr(world, side), action)(*arguments)
    for scope, version, known in begun:
        async with world.stores.open(scope) as store:
            async for batch in watch(store, scope, resourceVersion=version, lasts=0.001).batches():
                for event in batch:
                    if event.type == "ERROR":
                        assert world.time.now - 1.8e9 > KEEP_SECONDS
                        known = world.truth(scope)  # noqa: PLW2901 # listed anew
                        continue
                    metadata = event.object["metadata"]
                    known.pop((metadata["namespace"], metadata["name"]), None)
                    if event.type != "DELETED":
                        known[metadata["namespace"], metadata["name"]] = event.object["size"]
        assert known == world.truth(scope)
