"""Watches of a store: what is told, from which version on, and how they end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.serving import history, store, watching
from apiserver.serving.history import (
    KEEP_CHANGES,
    KEEP_MARKS,
    KEEP_SECONDS,
    MODIFIED,
    Change,
    ForgottenError,
    History,
)
from apiserver.serving.negotiation import TABLE, Representation
from apiserver.serving.options import ListOptions, read_options
from apiserver.serving.pages import read_page
from apiserver.serving.selectors import METADATA_FIELDS, Selection, make_selection
from apiserver.serving.status import BadRequest, Expired, ServiceUnavailable, StatusError, TooLargeVersion
from apiserver.serving.store import ResourceStore
from apiserver.serving.streams import Encoder
from apiserver.serving.tables import INCLUDE_NONE, Column, Layout, name_cell
from apiserver.serving.versions import VersionSource
from apiserver.serving.watching import INITIAL_EVENTS_END, Batch, Event, Watch


class Time:
    """A clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def thing(name: str, uid: str = "u", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 # JSON
    """An object to store."""
    return {"metadata": {"name": name, "uid": uid, "labels": fields.pop("labels", {})}, **fields}


@pytest.fixture
def time() -> Time:
    """The server's time."""
    return Time()


@pytest.fixture
def things(time: Time) -> ResourceStore:
    """A store with a and b, already read once."""
    made = ResourceStore(VersionSource(time, tag=1), lambda _: None)
    made.put(("", "a"), thing("a"))
    made.put(("", "b"), thing("b"))
    made.list()
    return made


def watch(things: ResourceStore, *, selector: str = "", lasts: float = 5, **query: Any) -> Watch:  # noqa: ANN401 # options
    """A watch with these options."""
    return Watch(
        store=things,
        namespace="",
        selection=make_selection(selector, "", METADATA_FIELDS),
        options=read_options(query, watch=True),
        lasts=lasts,
        closing=asyncio.Event(),
        type_meta={"kind": "Thing", "apiVersion": "v1"},
    )


def told(batch: Sequence[Event]) -> list[tuple[str, str]]:
    """Type and name of each event."""
    return [(event.type, event.object.get("metadata", {}).get("name", "")) for event in batch]


async def following(batches: AsyncIterator[Sequence[Event]]) -> Sequence[Event]:
    """The next batch."""
    async with asyncio.timeout(60):
        return await anext(batches)


async def test_from_a_list(things: ResourceStore) -> None:
    """From the version of a list on, every change is told once, and what came before is not."""
    version = things.list().version
    things.put(("", "c"), thing("c"))
    async with aclosing(watch(things, resourceVersion=version).batches()) as batches:
        assert await following(batches) == ()
        assert told(await following(batches)) == [("ADDED", "c")]
        things.put(("", "a"), thing("a", size=1))
        things.delete(("", "b"))
        events = await following(batches)
        assert told(events) == [("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert str(versions[-1]) == things.list().version


async def test_from_nothing(things: ResourceStore) -> None:
    """Without a version the objects come first; only who asks for a mark gets one."""
    async with aclosing(watch(things).batches()) as batches:
        assert told(await following(batches)) == [("ADDED", "a"), ("ADDED", "b")]
    query: dict[str, Any] = {
        "sendInitialEvents": "1",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "1",
    }
    async with aclosing(watch(things, **query).batches()) as batches:
        events = await following(batches)
    assert [event.type for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[-1].object == {
        "kind": "Thing",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": things.list().version, "annotations": {INITIAL_EVENTS_END: "true"}},
    }


async def test_from_another_replica(things: ResourceStore, time: Time) -> None:
    """From a version this process did not make: all objects, every deletion that is kept, then live. Never a gap."""
    things.delete(("", "b"))
    time.now += 5
    foreign = str(VersionSource(time, tag=2).next())
    async with aclosing(watch(things, resourceVersion=foreign).batches()) as batches:
        assert told(await following(batches)) == [("ADDED", "a"), ("DELETED", "b")]
        things.put(("", "b"), thing("b"))
        assert told(await following(batches)) == [("ADDED", "b")]
    things.put(("", "b"), thing("b"))
    async with aclosing(watch(things, resourceVersion=foreign).batches()) as batches:
        assert told(await following(batches)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_from_a_quiet_replica(time: Time) -> None:
    """A replica in which nothing happens lists at a version that a younger one can take up."""
    clock = 0.0
    old = ResourceStore(VersionSource(time, tag=1), lambda _: None, lambda: clock)
    old.put(("", "a"), thing("a"))
    first = old.list().version
    time.now += 60
    clock += 60
    young = ResourceStore(VersionSource(time, tag=2), lambda _: None)
    young.put(("", "a"), thing("a"))
    young.list()
    time.now += 5
    clock += 5
    assert int(old.list().version) > int(first)
    assert [item.object for item in old.list().items] == [item.object for item in old.list_at(int(first)).items]
    async with aclosing(watch(young, resourceVersion=old.list().version).batches()) as batches:
        assert told(await following(batches)) == [("ADDED", "a")]


@pytest.mark.parametrize("ahead", [0, 0.9, 2, 3.9])
async def test_clock_of_another_replica_is_ahead(time: Time, ahead: float) -> None:
    """A version from before our first complete state is too old, though by the other's clock it is later.

    What was deleted in between, nobody here knows of.
    """
    their_time = Time()
    foreign = VersionSource(their_time, tag=2).next()
    time.now += 0.1 - ahead
    young = ResourceStore(VersionSource(time, tag=1), lambda _: None)
    young.list()
    time.now += 10
    (batch,) = [batch async for batch in watch(young, resourceVersion=str(foreign)).batches()]
    assert [(event.type, event.object["code"]) for event in batch] == [("ERROR", 410)]


async def test_clock_is_far_behind(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch from a version of the future is refused as a list is, so that its client lists anew; nobody hangs."""
    monkeypatch.setattr(store, "FRESH_SECONDS", 0.05)
    foreign = VersionSource(time, tag=2).next()
    time.now -= 60
    young = ResourceStore(VersionSource(time, tag=1), lambda _: None)
    young.put(("", "a"), thing("a"))
    with pytest.raises(TooLargeVersion):
        await anext(watch(young, resourceVersion=str(foreign)).batches())
    async with aclosing(watch(young, resourceVersion=young.list().version).batches()) as batches:
        assert await following(batches) == ()
        young.put(("", "b"), thing("b"))
        (event,) = await following(batches)
    assert int(event.object["metadata"]["resourceVersion"]) < foreign


async def test_too_old(things: ResourceStore, time: Time) -> None:
    """A version from before our first complete state is one ERROR event 410, and the end."""
    time.now -= 60
    foreign = str(VersionSource(time, tag=2).next())
    batches = watch(things, resourceVersion=foreign).batches()
    (event,) = await following(batches)
    assert (event.type, event.object["code"], event.object["reason"]) == ("ERROR", 410, "Expired")
    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_future(things: ResourceStore, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version from the future is waited for a while, and then 504."""
    monkeypatch.setattr(store, "FRESH_SECONDS", 0.05)
    time.now += 60
    future = VersionSource(time, tag=2).next()
    time.now -= 60
    with pytest.raises(TooLargeVersion):
        await anext(watch(things, resourceVersion=str(future)).batches())
    monkeypatch.setattr(store, "FRESH_SECONDS", 5)
    waiting = asyncio.create_task(things.wait_until_fresh(future))
    await asyncio.sleep(0.01)
    time.now += 60
    await waiting


async def test_selection(things: ResourceStore) -> None:
    """An object that enters the selection is ADDED, one that leaves it DELETED with the state that was known."""
    version = things.list().version
    async with aclosing(watch(things, selector="x=1", resourceVersion=version).batches()) as batches:
        await following(batches)
        things.put(("", "a"), thing("a", labels={"x": "1"}))
        assert told(await following(batches)) == [("ADDED", "a")]
        things.put(("", "a"), thing("a", labels={"x": "1"}, size=2))
        assert told(await following(batches)) == [("MODIFIED", "a")]
        things.put(("", "b"), thing("b", labels={"x": "2"}))
        things.put(("", "a"), thing("a", labels={"x": "2"}, size=3))
        (event,) = await following(batches)
        assert (event.type, event.object["size"]) == ("DELETED", 2)
        assert event.object["metadata"]["resourceVersion"] == things.list().version
        things.delete(("", "a"))
        things.put(("", "c"), thing("c", labels={"x": "1"}))
        assert told(await following(batches)) == [("ADDED", "c")]


async def test_came_and_went_between_two_looks(things: ResourceStore, time: Time) -> None:
    """What went before anybody here was told of it is DELETED for who may have seen it elsewhere; no list has it."""
    version = things.list().version
    time.now += 60
    elsewhere = str((int(version) >> 10) + 30 * 16_000 << 10 | 7)
    async with (
        aclosing(watch(things, resourceVersion=version).batches()) as own,
        aclosing(watch(things, resourceVersion=elsewhere).batches()) as taken_up,
    ):
        assert told(await following(own)) == []
        assert told(await following(taken_up)) == [("ADDED", "a"), ("ADDED", "b")]
        things.end(("", "passing"), thing("passing"))
        things.end(("", "never known"), None)
        assert told(await following(taken_up)) == [("DELETED", "passing")]
        things.end(("", "a"), thing("a"))
        assert told(await following(own)) == [("DELETED", "a")]
        assert told(await following(taken_up)) == [("DELETED", "a")]
    assert [item.key[1] for item in things.list_at(int(version)).items] == ["a", "b"]
    assert [item.key[1] for item in things.list().items] == ["b"]
    async with aclosing(watch(things, resourceVersion=elsewhere).batches()) as late:
        assert told(await following(late)) == [("ADDED", "b"), ("DELETED", "passing"), ("DELETED", "a")]


async def test_made_again(things: ResourceStore) -> None:
    """An object deleted and made again between two looks is DELETED, then ADDED."""
    version = things.list().version
    things.put(("", "a"), thing("a", uid="other"))
    async with aclosing(watch(things, resourceVersion=version).batches()) as batches:
        await following(batches)
        assert told(await following(batches)) == [("DELETED", "a"), ("ADDED", "a")]


async def test_bookmarks(things: ResourceStore, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet watch gets a rising version now and then, from which it can be taken up; only if it wants them."""
    monkeypatch.setattr(watching, "BOOKMARK_SECONDS", 0.02)
    monkeypatch.setattr(watching, "LAST_BOOKMARK_SECONDS", 0.01)
    monkeypatch.setattr(store, "_MARK_SECONDS", 0)
    version = things.list().version
    quiet = [batch async for batch in watch(things, lasts=0.1, resourceVersion=version).batches()]
    assert quiet == [()]
    versions = [int(version)]
    async with aclosing(watch(things, resourceVersion=version, allowWatchBookmarks="1").batches()) as batches:
        await following(batches)
        for _ in range(3):
            time.now += 1
            (event,) = await following(batches)
            assert event.type == "BOOKMARK"
            versions.append(int(event.object["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions))
    things.put(("", "c"), thing("c"))
    async with aclosing(watch(things, resourceVersion=str(versions[-1])).batches()) as batches:
        assert await following(batches) == ()
        assert told(await following(batches)) == [("ADDED", "c")]


async def test_last_bookmark(things: ResourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before its end a watch gets a bookmark."""
    monkeypatch.setattr(watching, "LAST_BOOKMARK_SECONDS", 0.05)
    batches = watch(things, lasts=0.1, allowWatchBookmarks="1", resourceVersion=things.list().version).batches()
    assert [told(batch) for batch in [batch async for batch in batches]] == [[], [("BOOKMARK", "")]]


async def test_closing(things: ResourceStore) -> None:
    """A watch ends when the server does."""
    followed = watch(things)
    batches = followed.batches()
    await following(batches)
    ending = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.01)
    followed.closing.set()
    things.wake()
    with pytest.raises(StopAsyncIteration):
        await ending


async def test_closing_bookmark(things: ResourceStore, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server ends, a watch is told what came last and a version of now: another replica goes on from there."""
    monkeypatch.setattr(store, "_MARK_SECONDS", 0)
    version = things.list().version
    followed = watch(things, resourceVersion=version, allowWatchBookmarks="1")
    batches = followed.batches()
    await following(batches)
    time.now += 60
    things.put(("", "c"), thing("c"))
    time.now += 60
    followed.closing.set()
    events = await following(batches)
    assert told(events) == [("ADDED", "c"), ("BOOKMARK", "")]
    assert int(events[-1].object["metadata"]["resourceVersion"]) > VersionSource(lambda: time.now - 1, tag=0).next()
    with pytest.raises(StopAsyncIteration):
        await following(batches)


async def test_too_slow(things: ResourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that fell out of what is remembered is ended, and the others do not notice."""
    monkeypatch.setattr(history, "KEEP_CHANGES", 3)
    slow, quick = watch(things).batches(), watch(things).batches()
    await following(slow)
    await following(quick)
    for size in range(5):
        things.put(("", "a"), thing("a", size=size))
        assert told(await following(quick)) == [("MODIFIED", "a")]
    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    await quick.aclose()


async def waiting_with(batches: AsyncGenerator[Sequence[Event], None]) -> asyncio.Future[Sequence[Event]]:
    """The next batch to come, once the watch waits for news."""
    coming = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.01)
    return coming


async def test_told_at_once(things: ResourceStore) -> None:
    """Who can take it is told where news is, without being woken, and of nothing twice; what it refuses comes to it."""
    taken: list[tuple[str, str]] = []
    has_room = True

    def sink(batch: Sequence[Event]) -> bool:
        if has_room:
            taken.extend(told(batch))
        return has_room

    followed = watch(things, selector="x=1", resourceVersion=things.list().version)
    async with aclosing(followed.batches(sink)) as batches:
        assert await following(batches) == ()
        coming = await waiting_with(batches)
        for size in range(3):
            things.put(("", "a"), thing("a", labels={"x": "1"}, size=size))
            things.put(("", "b"), thing("b", size=size))
            await asyncio.sleep(0.01)
        things.put(("", "a"), thing("a"))
        await asyncio.sleep(0.01)
        assert taken == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        assert not coming.done()
        has_room = False
        things.put(("", "c"), thing("c", labels={"x": "1"}))
        assert told(await coming) == [("ADDED", "c")]
        has_room = True
        things.put(("", "c"), thing("c", labels={"x": "1"}, size=1))
        assert told(await following(batches)) == [("MODIFIED", "c")]
        coming = await waiting_with(batches)
        followed.closing.set()
        things.put(("", "c"), thing("c", labels={"x": "1"}, size=2))
        assert told(await coming) == [("MODIFIED", "c")]
    assert len(taken) == 4


async def test_those_alike_are_told_the_same(things: ResourceStore) -> None:
    """What is made for one who watches serves the others who ask the same, and nobody else, nor who lags behind."""
    all_, some = make_selection("", "", METADATA_FIELDS), make_selection("x=1", "", METADATA_FIELDS)
    taken: list[list[Batch]] = [[] for _ in range(4)]
    busy = {3}

    def sink(index: int) -> Callable[[Batch], bool]:
        def take(batch: Batch) -> bool:
            if index not in busy:
                taken[index].append(batch)
            return index not in busy

        return take

    version = things.list().version
    async with AsyncExitStack() as stack:
        coming = []
        for index, selection in enumerate((all_, all_, some, all_)):
            followed = replace(watch(things, resourceVersion=version), selection=selection)
            batches = await stack.enter_async_context(aclosing(followed.batches(sink(index))))
            assert await following(batches) == ()
            coming.append(await waiting_with(batches))
        things.put(("", "a"), thing("a", size=1))
        await asyncio.sleep(0.01)
        assert told(await coming[3]) == [("MODIFIED", "a")]
        things.put(("", "b"), thing("b", labels={"x": "1"}))
        await asyncio.sleep(0.01)
        assert [[told(batch) for batch in each] for each in taken] == [
            [[("MODIFIED", "a")], [("MODIFIED", "b")]],
            [[("MODIFIED", "a")], [("MODIFIED", "b")]],
            [[("ADDED", "b")]],
            [],
        ]
        assert [one is other for one, other in zip(taken[0], taken[1], strict=True)] == [True, True]
        for task in coming[:3]:
            task.cancel()
        await asyncio.gather(*coming[:3], return_exceptions=True)


async def test_lines_are_written_once(things: ResourceStore) -> None:
    """Lines that are the same for everybody are kept with the batch; a Table differs from one to the next."""
    things.put(("", "a"), thing("a", size=1, uid="other"))
    events = [Event("ADDED", item) for item in things.list().items]
    layout = Layout(columns=(Column("Name", name_cell, "Name.", format="name"),))
    for representation in (Representation(), Representation(convert_to=TABLE, convert_version="v1")):
        one, other = (Encoder(representation, layout, INCLUDE_NONE) for _ in range(2))
        batch = Batch(events)
        lines = b"".join(map(other.encode, events))
        assert [one.encode_batch(batch), lines.count(b"\n")] == [lines, 2]
        assert (batch.lines == lines) is not bool(representation.convert_to)
        assert (one.encode_batch(batch) == lines) is not bool(representation.convert_to)  # the second has no columns


async def test_one_that_fails_at_once(things: ResourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that fails costs nobody else anything: its own watch goes on with the batch it could not take."""
    monkeypatch.setattr(store, "_WOKEN_AT_ONCE", 1)
    taken: list[tuple[str, str]] = []
    failures: list[dict[str, Any]] = []

    def fails(_: Sequence[Event]) -> bool:
        raise ZeroDivisionError

    def takes(batch: Sequence[Event]) -> bool:
        taken.extend(told(batch))
        return True

    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    version = things.list().version
    async with (
        aclosing(watch(things, resourceVersion=version).batches(fails)) as failing,
        aclosing(watch(things, resourceVersion=version).batches(takes)) as other,
    ):
        for batches in (failing, other):
            assert await following(batches) == ()
        coming, never = await waiting_with(failing), await waiting_with(other)
        things.put(("", "c"), thing("c"))
        assert told(await coming) == [("ADDED", "c")]
        await asyncio.sleep(0.01)
        assert taken == [("ADDED", "c")]
        assert [type(each["exception"]) for each in failures] == [ZeroDivisionError]
        never.cancel()
        with suppress(asyncio.CancelledError):
            await never


async def test_no_true_answer_at_once() -> None:
    """A watch to be told of something while no true answer can be given ends, as one that asks for the next batch."""
    problem: StatusError | None = None
    taken: list[tuple[str, str]] = []

    def refresh(_: ResourceStore) -> None:
        if problem is not None:
            raise problem

    def takes(batch: Sequence[Event]) -> bool:
        taken.extend(told(batch))
        return True

    things = ResourceStore(VersionSource(Time(), tag=1), refresh)
    version = things.list().version
    batches = watch(things, resourceVersion=version).batches(takes)
    await following(batches)
    coming = await waiting_with(batches)
    problem = ServiceUnavailable("stale")
    things.put(("", "a"), thing("a"))
    with pytest.raises(StopAsyncIteration):
        await coming
    assert taken == []


async def test_touch_coalesces(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of the source that come together are one change, and cost nothing while nobody watches."""
    monkeypatch.setattr(store, "COALESCE_SECONDS", 0.02)
    source: dict[str, Any] = {"size": 0}
    refreshes = 0

    def refresh(made: ResourceStore) -> None:
        nonlocal refreshes
        refreshes += 1
        made.put(("", "a"), thing("a", **source))

    things = ResourceStore(VersionSource(time), refresh)
    things.list()
    things.touch()
    await asyncio.sleep(0.05)
    assert refreshes == 1
    async with aclosing(watch(things).batches()) as batches:
        await following(batches)
        before = refreshes
        for size in (1, 2, 3):
            source["size"] = size
            things.touch()
        (event,) = await following(batches)
        assert event.object["size"] == 3
        assert refreshes <= before + 2


async def test_begins_with_the_first_complete_state(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be taken up begins when all is known, not when somebody first asks; until then nothing is told."""
    monkeypatch.setattr(store, "RETRY_SECONDS", 0.01)
    synced = False

    def refresh(made: ResourceStore) -> None:
        if not synced:
            raise ServiceUnavailable("not yet")
        made.put(("", "a"), thing("a"))

    young = ResourceStore(VersionSource(time, tag=2), refresh)
    young.touch()
    await asyncio.sleep(0.05)
    with pytest.raises(ServiceUnavailable):
        young.list()
    synced = True
    await asyncio.sleep(0.05)
    time.now += 5
    version = VersionSource(time, tag=1).next()
    async with aclosing(watch(young, resourceVersion=str(version)).batches()) as batches:
        assert told(await following(batches)) == [("ADDED", "a")]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "delete", "remake", "list", "other", "mark"])),
    max_size=30,
)


@given(OPERATIONS, st.booleans())
@settings(deadline=None)
def test_list_and_watch_add_up(operations: list[tuple[str, str]], selective: bool) -> None:
    """From whatever version a list gave, ours or another replica's, the watch leads to the state of now."""
    asyncio.run(_list_and_watch(operations, "x=1" if selective else ""))


async def _list_and_watch(operations: list[tuple[str, str]], selector: str) -> None:
    time = Time()
    things = ResourceStore(VersionSource(time, tag=1), lambda _: None)
    other = VersionSource(time, tag=2)
    things.list()
    time.now += 5
    selection = make_selection(selector, "", METADATA_FIELDS)
    begun: list[tuple[str, dict[str, Any]]] = []
    for number, (name, verb) in enumerate(operations):
        time.now += 0.001
        if verb == "put":
            things.put(("", name), thing(name, size=number % 3, labels={"x": str(number % 2)}))
        elif verb == "delete":
            things.delete(("", name))
        elif verb == "remake":
            things.put(("", name), thing(name, uid=str(number), labels={"x": "1"}))
        elif verb == "mark":
            things.mark()
        else:
            version = things.list().version if verb == "list" else str(other.next())
            begun.append((version, state(things, selection)))
    for version, known in begun:
        batches = watch(things, selector=selector, resourceVersion=version, lasts=0.001).batches()
        async for batch in batches:
            for event in batch:
                metadata = event.object["metadata"]
                if event.type == "DELETED":
                    known.pop(metadata["name"], None)
                else:
                    known[metadata["name"]] = event.object
        assert known == state(things, selection)


def state(things: ResourceStore, selection: Selection) -> dict[str, Any]:
    """The selected objects by name."""
    return {
        item.object["metadata"]["name"]: item.object for item in things.list().items if selection.matches(item.object)
    }


async def test_exact_lists(things: ResourceStore) -> None:
    """A list at exactly a version of our own is the list that had it; at any other it is 410."""
    lists = [things.list()]
    for step in range(6):
        if step == 3:
            things.delete(("", "b"))
        else:
            things.put(("", "ab"[step % 2]), thing("ab"[step % 2], size=step))
        lists.append(things.list())
    things.mark()
    for known in lists:
        assert list(things.list_at(int(known.version)).items) == list(known.items)
    with pytest.raises(Expired):
        things.list_at(int(lists[0].version) + 1)


async def test_pages(things: ResourceStore) -> None:
    """Pages lead through all objects, go on from the current state, and repeat the version of the first."""
    for name in "cdefg":
        things.put(("", name), thing(name))
    first = await read_page(things, "", Selection(), ListOptions(limit=3))
    assert (names(first.items), first.metadata["remainingItemCount"]) == ("abc", 4)
    things.delete(("", "e"))
    things.put(("", "aa"), thing("aa"))
    token = first.metadata["continue"]
    second = await read_page(things, "", Selection(), ListOptions(limit=3, continue_token=token))
    assert (names(second.items), "continue" in second.metadata) == ("dfg", False)
    assert second.metadata["resourceVersion"] == first.metadata["resourceVersion"] != things.list().version


async def test_pages_of_a_selection(things: ResourceStore) -> None:
    """With a selector nobody knows how many remain."""
    selection = make_selection("!x", "", {})
    page = await read_page(things, "", selection, ListOptions(limit=1))
    assert (names(page.items), "remainingItemCount" in page.metadata, "continue" in page.metadata) == ("a", False, True)


@pytest.mark.parametrize("token", ["x", "!", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6Ii9hIn0", "é"])
async def test_bad_tokens(things: ResourceStore, token: str) -> None:
    """A token that is none is 400."""
    with pytest.raises(BadRequest):
        await read_page(things, "", Selection(), ListOptions(limit=1, continue_token=token))


def names(items: Sequence[Any]) -> str:
    """The names, put together."""
    return "".join(item.object["metadata"]["name"] for item in items)


def test_history_forgets() -> None:
    """What is too old or too much is forgotten, and what depends on it is told so."""
    now = 0.0
    kept = History(1, lambda: now)
    for version in range(2, KEEP_CHANGES + 4):
        kept.record(Change(version, MODIFIED))
    assert (kept.horizon, kept.position(2), len(kept.remembered())) == (3, None, KEEP_CHANGES)
    assert kept.position(kept.horizon) == kept.end - KEEP_CHANGES
    with pytest.raises(ForgottenError):
        kept.since(0)
    now = KEEP_SECONDS + 1.0
    kept.record(Change(99_999))
    assert [change.version for change in kept.remembered()] == [99_999]
    assert kept.since(kept.end) == []


def test_marks_push_no_change_out() -> None:
    """Versions that were only handed out do not count among the changes that are kept, and are bounded themselves."""
    kept = History(1, lambda: 0.0)
    kept.keep = 2
    kept.record(Change(2, MODIFIED))
    for version in range(3, 3 + KEEP_MARKS):
        kept.record(Change(version))
    assert kept.since(0)[0].version == 2
    kept.record(Change(10_000))
    assert (kept.horizon, len(kept.remembered())) == (3, KEEP_MARKS)
    for version in (10_001, 10_002, 10_003):
        kept.record(Change(version, MODIFIED))
    assert [change.version for change in kept.remembered() if change.type] == [10_002, 10_003]
