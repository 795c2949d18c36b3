"""The reflector against a kube-apiserver that fails on demand."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from apiserver.cluster.client import (
    Access,
    ClusterClient,
    ClusterError,
    ClusterUnreachableError,
    ConnectionLostError,
    Response,
)
from apiserver.cluster.collection import Collection
from apiserver.cluster.objects import ObjectMeta
from apiserver.cluster.reflector import (
    Backoff,
    Decoder,
    Pace,
    Reflector,
    StaleError,
    UnreadableError,
    WatchEndedAtOnceError,
    is_absence,
)
from tests.fake_apiserver import End, FakeApiserver, Fault, HangUp, Refusal, Script, Stall, event, failure

PATH = "/apis/example.io/v1/things"
QUICK = Pace(silence=60, first_pause=0.01, longest_pause=0.04)
IMPATIENT = replace(QUICK, silence=2)


class Thing(msgspec.Struct):
    """What the tests watch."""

    metadata: ObjectMeta
    size: int = 0
    text: str = ""


class Shelf:
    """A handler that keeps what it is told."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.rejected: dict[str, str] = {}
        self.history: list[tuple[str, str]] = []

    def replace(self, objects: list[Thing]) -> None:
        """Keep exactly these."""
        self.things = {each.metadata.name: each for each in objects}
        self.rejected.clear()
        self.history.append(("LIST", " ".join(sorted(self.things))))

    def apply(self, event_type: str, obj: Thing) -> None:
        """Keep or drop one."""
        name = obj.metadata.name
        self.history.append((event_type, name))
        self.rejected.pop(name, None)
        self.things.pop(name, None)
        if event_type != "DELETED":
            self.things[name] = obj

    def reject(self, name: str, reason: str) -> None:
        """Drop one and remember why."""
        self.things.pop(name, None)
        self.rejected[name] = reason


@pytest.fixture
async def fake() -> AsyncIterator[FakeApiserver]:
    """A server with one thing, a."""
    async with FakeApiserver() as server:
        server.put(PATH, "a")
        yield server


@pytest.fixture
async def client(fake: FakeApiserver) -> AsyncIterator[ClusterClient]:
    """The connection to it."""
    async with ClusterClient(Access(fake.url), user_agent="tests") as connection:
        yield connection


@pytest.fixture
def shelf() -> Shelf:
    """An empty handler."""
    return Shelf()


def reflect(client: ClusterClient, shelf: Shelf, *, pace: Pace = QUICK, **collection: Any) -> Reflector[Thing]:  # noqa: ANN401 - fields of Collection
    """A reflector of the things."""
    return Reflector(client, Collection("things", PATH, Thing, **collection), shelf, pace=pace)


@asynccontextmanager
async def started(reflector: Reflector[Thing]) -> AsyncIterator[None]:
    """Let it run for the length of the block."""
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def synced(reflector: Reflector[Thing]) -> AsyncIterator[None]:
    """The same, once it has listed."""
    async with started(reflector):
        async with asyncio.timeout(60):
            await reflector.wait_synced()
        yield


async def until(condition: Callable[[], object]) -> None:
    """Wait for what must soon be so."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - any condition, not one event
            await asyncio.sleep(0.002)


def versions(fake: FakeApiserver) -> list[str]:
    """The versions that the watches started from."""
    return [watch.query["resourceVersion"] for watch in fake.watches]


async def test_list_then_watch(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """The handler gets the list, then every change, each once and in order."""
    reflector = reflect(client, shelf)
    async with synced(reflector):
        fake.put(PATH, "b", size=2)
        fake.put(PATH, "b", size=3)
        fake.remove(PATH, "a")
        await until(lambda: len(shelf.history) == 4)
    assert shelf.history == [("LIST", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    assert {name: each.size for name, each in shelf.things.items()} == {"b": 3}
    assert reflector.last_resource_version == fake.version
    assert (reflector.counters.lists, reflector.counters.watches, reflector.counters.failures) == (1, 1, 0)


async def test_what_is_asked(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """The list is consistent and paged; the watch follows it, wants bookmarks and ends in five to ten minutes."""
    async with synced(reflect(client, shelf, field_selector="metadata.name=a")):
        await until(lambda: fake.watches)
    assert fake.lists[0].query == {"limit": "500", "fieldSelector": "metadata.name=a"}
    watch = fake.watches[0].query
    assert 300 <= int(watch.pop("timeoutSeconds")) <= 600
    selector = {"fieldSelector": "metadata.name=a"}
    assert watch == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": fake.version} | selector


@pytest.mark.parametrize("sorts_keys", [False, True])
async def test_pages(fake: FakeApiserver, client: ClusterClient, shelf: Shelf, sorts_keys: bool) -> None:
    """Pages become one list, watched from the version of the first, wherever a page tells how it goes on."""
    fake.sorts_keys = sorts_keys
    for number in range(5):
        fake.put(PATH, f"b{number}")
    first = fake.version
    reflector = reflect(client, shelf, page_size=2)
    async with synced(reflector):
        await until(lambda: fake.watches)
    assert reflector.counters.listed == 6
    assert [(each.query["limit"], "continue" in each.query) for each in fake.lists] == [
        ("2", False),
        ("2", True),
        ("2", True),
    ]
    assert shelf.history == [("LIST", "a b0 b1 b2 b3 b4")]
    assert versions(fake) == [first]


async def test_a_page_is_on_its_way_while_another_is_read(client: ClusterClient, fake: FakeApiserver) -> None:
    """The next page has been asked for when one is read, and never one more."""
    for number in range(3):
        fake.put(PATH, f"b{number}")
    asked, seen = list[str](), list[int]()
    get = client.get

    async def noting(path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Response:
        asked.append((params or {}).get("continue", ""))
        return await get(path, params, accept=accept)

    def read(thing: Thing) -> Thing:
        seen.append(len(asked))
        return thing

    client.get = noting  # type: ignore[method-assign]
    async with synced(reflect(client, Shelf(), page_size=1, read=read)):
        assert seen == [2, 3, 4, 4]


@pytest.mark.parametrize("cut", [b'{"metadata":{"continue":"x"', b'{"metadata":{"continue":"x"},"items":"[', b"{", b""])
def test_no_token_ahead(cut: bytes) -> None:
    """A head that is not what Kubernetes writes tells nothing, and is no failure."""
    assert Decoder(Thing).token_ahead(cut) == ""


async def test_list_that_expires(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """A list that expires between its pages is read again at once, whole."""
    fake.put(PATH, "b")
    fake.list_faults.extend([None, Refusal(HTTPStatus.GONE, "Expired")])
    reflector = reflect(client, shelf, page_size=1)
    async with synced(reflector):
        assert shelf.history == [("LIST", "a b")]
    assert fake.lists[2].query == {}
    assert reflector.counters.failures == 0


FAULTS = [
    pytest.param(Refusal(410, "Expired"), True, id="410 by HTTP"),
    pytest.param(Script((event("ERROR", failure(410, "Expired")),)), True, id="410 by event"),
    pytest.param(Script((event("ERROR", failure(0, "Gone")),)), True, id="Gone by event"),
    pytest.param(Refusal(401, "Unauthorized"), True, id="401"),
    pytest.param(Refusal(403, "Forbidden"), True, id="403"),
    pytest.param(Refusal(404, text="404 page not found"), True, id="404"),
    pytest.param(Script((b"{]\n",)), True, id="garbage"),
    pytest.param(Script((b'{"type":"ADDED"}\n',)), True, id="an event without object"),
    pytest.param(Script((b'{"type":"ERROR","object":[]}\n',)), True, id="an ERROR that is no Status"),
    pytest.param(Script((b'{"a":' * 5000 + b"\n",)), True, id="nested beyond reading"),
    pytest.param(Refusal(500, "InternalError"), False, id="500 by HTTP"),
    pytest.param(Script((event("ERROR", failure(500, "InternalError")),)), False, id="500 by event"),
    pytest.param(Refusal(503, text="service unavailable"), False, id="503"),
    pytest.param(Refusal(429, text="Too many requests"), False, id="429"),
    pytest.param(Script((), End.TORN), False, id="torn"),
    pytest.param(Script((b'{"type":"ADDED","obj',), End.TORN), False, id="torn within an event"),
    pytest.param(Script((b'{"type":"ADDED","obj',)), False, id="ended within an event"),
    pytest.param(Script(), False, id="ended at once"),
]


@pytest.mark.parametrize(("fault", "relists"), FAULTS)
async def test_a_failed_watch_loses_nothing(
    fake: FakeApiserver, client: ClusterClient, shelf: Shelf, fault: Fault, *, relists: bool
) -> None:
    """Whatever ends a watch, the next change arrives; the list is read again only where the version is of no use."""
    fake.watch_faults.append(fault)
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: len(fake.watches) == 2)
        fake.put(PATH, "b")
        await until(lambda: "b" in shelf.things)
        assert reflector.last_error is None
        assert reflector.last_status is None
    assert reflector.counters.relists == relists
    assert reflector.counters.failures == 1
    assert shelf.things.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        pytest.param([Refusal(403, "Forbidden", "no")] * 2, 403, id="403"),
        pytest.param([Refusal(404, "NotFound", "none")] * 2, 404, id="404"),
        pytest.param([Refusal(500, text="oops")] * 2, 500, id="500"),
        pytest.param([HangUp()] * 4, 0, id="hung up"),  # aiohttp itself asks twice
        pytest.param([Script((b"<html>",))] * 2, 0, id="not JSON"),
        pytest.param([Script((b'{"metadata":{},"items":[]}',))] * 2, 0, id="without resourceVersion"),
    ],
)
async def test_a_failed_list_is_said_and_tried_again(
    fake: FakeApiserver, client: ClusterClient, shelf: Shelf, faults: list[Fault], status: int
) -> None:
    """Until a list succeeds the handler hears nothing and the health tells why."""
    fake.list_faults.extend(faults)
    reflector = reflect(client, shelf, pace=Pace(first_pause=0.1))
    async with started(reflector):
        await until(lambda: reflector.counters.failures == 1)
        assert (reflector.last_status, reflector.synced) == (status, False)
        assert reflector.last_error
        assert shelf.history == []
        await until(lambda: reflector.synced)
        assert reflector.last_error is None
    assert reflector.counters.failures == 2
    assert shelf.history == [("LIST", "a")]


async def test_objects_that_vanish_while_nothing_is_watched(
    fake: FakeApiserver, client: ClusterClient, shelf: Shelf
) -> None:
    """After a version that is no longer kept, the new list says what is gone."""
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: fake.watches)
        fake.watch_faults.extend([Refusal(503)] * 2)
        fake.end_watches()
        await until(lambda: not fake.watch_faults)
        fake.remove(PATH, "a")
        fake.put(PATH, "c")
        fake.compact()
        fake.end_watches()
        await until(lambda: shelf.things.keys() == {"c"})
    assert reflector.last_resource_version == fake.version


def line(name: str, size: object = 1, kind: str = "ADDED", text: str = "") -> bytes:
    """An event about a thing, in a version later than any list."""
    return event(kind, {"metadata": {"name": name, "resourceVersion": "2000"}, "size": size, "text": text})


CHUNKS = [
    pytest.param((line("b")[:9], line("b")[9:30], line("b")[30:]), id="cut within events"),
    pytest.param((line("b")[:-1], line("b")[-1:]), id="cut before the newline"),
    pytest.param((line("x") + line("y") + line("b"),), id="three in one"),
    pytest.param((line("x") + line("b")[:5], line("b")[5:]), id="one and a half"),
    pytest.param((b"\n", line("b")), id="an empty line"),
    pytest.param((line("b", text="x" * 5 * 2**20),), id="5 MiB"),
    pytest.param((event("PRAISE", {}), line("b")), id="a type nobody knows"),
]


@pytest.mark.parametrize("chunks", CHUNKS)
async def test_however_lines_arrive(
    fake: FakeApiserver, client: ClusterClient, shelf: Shelf, chunks: tuple[bytes, ...]
) -> None:
    """Events are told the same, however the network cuts them and however long they are."""
    fake.watch_faults.append(Script(chunks, End.NEVER))
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: "b" in shelf.things)
    assert reflector.counters.failures == 0
    assert reflector.last_resource_version == "2000"


async def test_bookmarks_move_the_version(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """A bookmark tells the handler nothing and is where the next watch starts."""
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: fake.watches)
        fake.bookmark(PATH)
        await until(lambda: reflector.counters.bookmarks == 1)
        fake.end_watches()
        await until(lambda: len(fake.watches) == 2)
    assert versions(fake)[1] == fake.version
    assert shelf.history == [("LIST", "a")]
    assert reflector.counters.failures == 0


async def test_a_watch_that_ends_is_taken_up(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """A stream that brought something may end; the next one starts where it ended, without a list or a failure."""
    reflector = reflect(client, shelf)
    async with synced(reflector):
        for number in range(3):
            fake.put(PATH, f"b{number}")
            await until(partial(shelf.things.get, f"b{number}"))
            fake.end_watches()
            await until(partial(fake.is_watched, number + 2))
    assert versions(fake) == ["1001", "1002", "1003", "1004"]
    assert (reflector.counters.lists, reflector.counters.failures) == (1, 0)


async def test_long_quiet_watches_are_healthy(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """A stream that lasted may end with nothing said; an earlier failure is then no longer news."""
    fake.watch_faults.append(Refusal(503))
    reflector = reflect(client, shelf, pace=Pace(first_pause=0.01, short_watch=0.05))
    async with synced(reflector):
        await until(lambda: len(fake.watches) == 2)
        assert reflector.last_error
        await asyncio.sleep(0.1)
        fake.end_watches()
        await until(lambda: len(fake.watches) == 3)
        assert reflector.last_error is None
    assert reflector.counters.failures == 1


@pytest.mark.parametrize("chunks", [(), (b'{"type":"ADDED","obj',)], ids=["at once", "within an event"])
async def test_silence(fake: FakeApiserver, client: ClusterClient, shelf: Shelf, chunks: tuple[bytes, ...]) -> None:
    """A stream on which nothing comes is opened anew where it was, and that alone is no failure."""
    fake.watch_faults.append(Script(chunks, End.NEVER))
    reflector = reflect(client, shelf, pace=IMPATIENT)
    async with synced(reflector):
        await until(lambda: len(fake.watches) == 2)
        assert reflector.last_error is None
        fake.put(PATH, "b")
        await until(lambda: "b" in shelf.things)
    counters = reflector.counters
    assert (counters.silences, counters.failures, counters.relists) == (1, 0, 0)


async def test_a_server_that_does_not_answer(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """A watch that is not even answered is a failure, unlike one on which nothing happens."""
    fake.watch_faults.append(Stall())
    reflector = reflect(client, shelf, pace=IMPATIENT)
    async with synced(reflector):
        await until(lambda: len(fake.watches) == 2)
    assert (reflector.counters.silences, reflector.counters.failures) == (0, 1)


async def test_no_hot_loop(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """Streams that always end at once are opened ever more slowly."""
    fake.watch_faults.extend([Script()] * 1000)
    async with synced(reflect(client, shelf, pace=Pace(first_pause=0.05))):
        await until(lambda: len(fake.watches) >= 5)
    opened = [watch.at for watch in fake.watches[:5]]
    pauses = [after - before for before, after in pairwise(opened)]
    assert all(pause >= least for pause, least in zip(pauses, (0.025, 0.05, 0.1, 0.2), strict=True)), pauses


async def test_a_server_error_that_stays(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """An internal error that one version always meets is left behind by a new list."""
    fake.watch_faults.extend([Script((event("ERROR", failure(500, "InternalError")),))] * 5)
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: len(fake.watches) == 6)
    assert reflector.counters.relists == 1


async def test_retry_after(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """The server may ask for a longer pause than ours."""
    busy = {"code": 429, "reason": "TooManyRequests", "message": "", "details": {"retryAfterSeconds": 0.3}}
    fake.watch_faults.append(Script((event("ERROR", busy),)))
    async with synced(reflect(client, shelf)):
        await until(lambda: len(fake.watches) == 2)
    first, second = fake.watches
    assert second.at - first.at >= 0.3


async def test_malformed_objects_in_a_list(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """What can't be read is left out by name; all else is listed, over all pages."""
    fake.put(PATH, "bad", size="large")
    fake.put(PATH, "b")
    reflector = reflect(client, shelf, page_size=2)
    async with synced(reflector):
        assert shelf.history == [("LIST", "a b")]
        assert shelf.rejected.keys() == {"bad"}
        fake.put(PATH, "bad", size=1)
        await until(lambda: "bad" in shelf.things)
    assert shelf.rejected == {}
    assert (reflector.counters.rejected, reflector.counters.failures) == (1, 0)


async def test_malformed_without_a_name(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """An item that is no object at all is rejected under an empty name."""
    items: list[object] = [17, {"metadata": {"name": "b"}}]
    body = json.dumps({"metadata": {"resourceVersion": "1500"}, "items": items}).encode()
    fake.list_faults.append(Script((body,)))
    async with synced(reflect(client, shelf)):
        assert shelf.things.keys() == {"b"}
        assert shelf.rejected.keys() == {""}


async def test_empty_list_as_null(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """Items may be null, as some aggregated servers write an empty list."""
    fake.list_faults.append(Script((b'{"metadata":{"resourceVersion":"1500"},"items":null}',)))
    async with synced(reflect(client, shelf)):
        assert shelf.history == [("LIST", "")]


async def test_malformed_change(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """An object that becomes unreadable is forgotten, the stream goes on, and its version counts as seen."""
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: fake.watches)
        fake.put(PATH, "a", size="large", metadata={"name": "a", "namespace": "ns"})
        fake.put(PATH, "b")
        await until(lambda: "b" in shelf.things)
        fake.end_watches()
        await until(lambda: len(fake.watches) == 2)
    assert shelf.rejected.keys() == {"ns/a"}
    assert versions(fake)[1] == fake.version
    assert reflector.counters.failures == 0


async def test_malformed_deletion(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """When the last state of a deleted object can't be read, a list tells that it is gone."""
    fake.put(PATH, "bad", size="large")
    reflector = reflect(client, shelf)
    async with synced(reflector):
        await until(lambda: fake.watches)
        assert shelf.rejected.keys() == {"bad"}
        fake.remove(PATH, "bad")
        await until(lambda: reflector.counters.relists == 1)
        await until(lambda: not shelf.rejected)
    assert shelf.things.keys() == {"a"}


async def test_cancelling_ends_it(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """Cancelled in the middle of a stream, it ends with its connection closed: an unclosed one would be a warning."""
    reflector = reflect(client, shelf)
    task = asyncio.create_task(reflector.run())
    await until(lambda: fake.watches)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reflector.counters.failures == 0


async def test_a_faulty_handler_is_not_hidden(fake: FakeApiserver, client: ClusterClient, shelf: Shelf) -> None:
    """An exception of the handler is a bug, and ends the reflector with it."""
    task = asyncio.create_task(reflect(client, shelf).run())
    await until(lambda: fake.watches)
    del shelf.things
    fake.put(PATH, "b")
    with pytest.raises(AttributeError):
        await task


class Highest(random.Random):
    """Always the longest pause."""

    def random(self) -> float:
        """As high as it gets."""
        return 1.0


def test_pauses_double_up_to_a_limit() -> None:
    """The pauses are client-go's: 0.8 s, doubled, at most 30 s."""
    backoff = Backoff(Pace(), Highest())
    assert [backoff.next(ran_for=0) for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]


def test_pauses_are_short_while_nobody_answers() -> None:
    """A server that comes back is asked within two seconds, however long it was away; its first refusals are few."""
    backoff = Backoff(Pace(), Highest())
    assert [backoff.next(ran_for=0, absent=True) for _ in range(5)] == pytest.approx([0.8, 1.6, 2, 2, 2])
    assert [backoff.next(ran_for=0) for _ in range(7)] == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30])
    assert backoff.next(ran_for=0, absent=True) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (ClusterUnreachableError("x"), True),
        (ConnectionLostError("x"), True),
        (WatchEndedAtOnceError("x"), False),
        (StaleError("x"), False),
        (UnreadableError("x"), False),
        (ClusterError(403, "Forbidden", "x"), False),
        (ClusterError(500, "InternalError", "x"), False),
    ],
)
def test_absence(error: ClusterError, absent: bool) -> None:
    """Only who does not answer is absent; an answer of no use is none to hurry after."""
    assert is_absence(error) == absent


def test_pauses_start_anew_after_health() -> None:
    """Two minutes without a failure forgive the earlier ones; less does not."""
    backoff = Backoff(Pace(), Highest())
    pauses = [backoff.next(ran_for=seconds) for seconds in (0, 119, 120, 0)]
    assert pauses == [0.8, 1.6, 0.8, 1.6]


def test_pauses_are_spread_and_heed_the_server() -> None:
    """A pause lies between half and all of its length, unless the server asks for more."""
    backoff = Backoff(Pace(first_pause=8, longest_pause=8), random.SystemRandom())
    pauses = [backoff.next(ran_for=0) for _ in range(100)]
    assert 4 <= min(pauses) < 5
    assert 7 < max(pauses) <= 8
    assert backoff.next(ran_for=0, at_least=60) == 60
