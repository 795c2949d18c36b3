"""Answers to what was asked before in the same words: the same as to words that were never heard."""

import asyncio
import random
import re
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from apiserver.catalog.gpuoffers import Offering
from apiserver.cluster.namespaces import Quota
from apiserver.cluster.tenancy import Tenancy
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Pod
from apiserver.gpu.quota import budget_key, read_limits
from apiserver.gpu.tenants import Namespace, TenantRules
from apiserver.serving.answers import Answer
from apiserver.serving.authentication import AuthenticationConfig
from apiserver.serving.filters import Handler
from apiserver.serving.handlers import Handlers
from apiserver.serving.repeats import Make, Repeats
from apiserver.serving.requests import Request, Response
from apiserver.serving.store import Listing, ResourceStore
from tests.http.conftest import RESOURCE, Cluster
from tests.http.running import LIST
from tests.http.secure import CLIENT_CA, CONFIGMAP, FRONT_PROXY, FRONT_PROXY_CA, JANE, SecureServer, secure_server
from tests.unit.test_certificates import Issued, client

BASE = LIST.rpartition("/")[0]
OFFERS = f"{BASE}/gpuoffers"
ONE = f"{LIST}/l40s"
PAGE = f"{ONE}/catalog"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CHANGES = 40
ASKS = 4
"""The first waits for a verdict, the second is answered at once, the third prepares for the fourth, a repeat."""


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each chunk that came between two requests, whether it was answered as before."""
    found: list[bool] = []
    real = Repeats.answer

    def answer(self: Repeats, shown: object, head: bytes) -> tuple[Answer, str] | None:
        answer = real(self, shown, head)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(Repeats, "answer", answer)
    return found


@dataclass(frozen=True)
class Said:
    """An answer, without its Date.

    Attributes:
        code: HTTP status.
        headers: all but Audit-Id and Date.
        audit_id: that header.
        body: as it came.
    """

    code: int
    headers: tuple[bytes, ...]
    audit_id: str
    body: bytes


@dataclass(frozen=True)
class Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, path: str, *headers: str, audit_id: str | None = None) -> Said:
        """Ask as kube-aggregator would, with an Audit-Id of its own each time."""
        self.send(words(path, *headers, audit_id=audit_id or str(uuid.uuid4())))
        return await self.hear()

    async def ask_anew(self, path: str, *headers: str) -> Said:
        """Ask in words that were never heard."""
        return await self.ask(path, *headers, f"X-Nonce: {uuid.uuid4()}")

    def send(self, data: bytes) -> None:
        """Send it in one piece."""
        self.writer.write(data)

    async def hear(self) -> Said:
        """The next answer."""
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, *lines = head[:-4].split(b"\r\n")
            named = dict(line.split(b": ", 1) for line in lines)
            body = await self.reader.readexactly(int(named[b"Content-Length"]))
        kept = tuple(line for line in lines if not line.startswith((b"Audit-Id", b"Date")))
        assert b"Date" in named
        return Said(int(status.split()[1]), (status, *kept), named[b"Audit-Id"].decode(), body)


def words(path: str, *headers: str, audit_id: str = "") -> bytes:
    """A request; the Audit-Id stands amid the headers."""
    audit = [f"Audit-Id: {audit_id}"] if audit_id else []
    lines = [f"GET {path} HTTP/1.1", "Host: catalog", "User-Agent: dashboard", *audit, *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def line(server: SecureServer, shown: Issued | None = JANE) -> AsyncIterator[Line]:
    """A connection of somebody who shows a certificate."""
    context = ssl.create_default_context(cadata=server.certificate)
    if shown:
        file = server.directory / f"{uuid.uuid4()}.pem"
        file.write_text(shown.pem + shown.key_pem)
        context.load_cert_chain(file)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)
    await asyncio.sleep(0.05)  # until the server waits for a request
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def server(cluster: Cluster, tmp_path: Path) -> AsyncIterator[SecureServer]:
    """A server whose clients show certificates."""
    async with secure_server(cluster, tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "headers", "is_repeated"),
    [
        (LIST, (), True),
        (LIST, ("Accept: application/json", "Accept-Encoding: gzip"), True),
        (ONE, (), True),
        (PAGE, (), True),
        (LIST, (f"Accept: {TABLE}",), False),
        (LIST, ("Accept: application/yaml",), False),
        (LIST, ("Accept: text/html",), False),
        (f"{LIST}?limit=1", (), True),
        (f"{LIST}?labelSelector=tier%3Dgold&fieldSelector=metadata.name%3Dl40s", (), True),
        (f"{LIST}?labelSelector=tier%3Dlead", (), True),
        (f"{LIST}?labelSelector=,,", (), False),
        (f"{LIST}?resourceVersion=0", (), False),
        (f"{ONE}?pretty=1", (), False),
        (f"{LIST}/none", (), False),
        (f"{LIST}/none/catalog", (), False),
        (f"{ONE}/fit", (), False),
        ("/apis", (), False),
        ("/readyz", (), False),
        (LIST, ("Authorization: Bearer good",), False),
        (LIST, ("Impersonate-User: root",), False),
    ],
)
async def test_same_answer(
    server: SecureServer, repeated: list[bool], path: str, headers: tuple[str, ...], *, is_repeated: bool
) -> None:
    """Whoever asks again is answered as whoever asks in other words, by the Audit-Id that was given."""
    async with line(server) as jane:
        expected = await jane.ask_anew(path, *headers)
        for _ in range(ASKS):
            given = str(uuid.uuid4())
            said = await jane.ask(path, *headers, audit_id=given)
            assert said.audit_id == given
            assert replace(said, audit_id="") == replace(expected, audit_id="")
        assert repeated == [False, False, False, is_repeated, is_repeated]


async def test_without_audit_id(server: SecureServer, repeated: list[bool]) -> None:
    """Who gives none gets another each time."""
    async with line(server) as jane:
        given = set()
        for _ in range(ASKS):
            jane.send(words(LIST))
            given.add((await jane.hear()).audit_id)
    assert all(re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", each) for each in given)
    assert (len(given), repeated) == (ASKS, [False, False, False, True])


@pytest.mark.parametrize(
    "given", ["mine", "A" * 300, "not\tprintable", "9BADF2E0-0BBC-4976-9EEE-2A6D9DB332C3", "x" * 36]
)
async def test_other_audit_ids(server: SecureServer, repeated: list[bool], given: str) -> None:
    """One that is not written as Kubernetes does is treated as it always was."""
    async with line(server) as jane:
        said = [await jane.ask(LIST, audit_id=given) for _ in range(ASKS)]
    usable = len(given) < 256 and given.isprintable()
    assert {each.audit_id == given for each in said} == {usable}
    assert len({each.body for each in said}) == 1
    assert repeated == [False] * ASKS


@pytest.mark.parametrize(
    "lines",
    [
        ("audit-id: mine", "Audit-Id: 11111111-1111-4111-8111-111111111111"),
        ("Audit-Id: 11111111-1111-4111-8111-111111111111", "Audit-Id: other"),
        ("Audit-Id: 11111111-1111-4111-8111-111111111111", "audit-id: other"),
    ],
)
async def test_two_audit_ids(server: SecureServer, lines: tuple[str, ...]) -> None:
    """The first one counts, however often it is asked."""
    async with line(server) as jane:
        for number in range(ASKS):
            at, *others = (each.replace("1111", f"111{number}") for each in lines)
            jane.send(words(LIST, at, *others))
            assert (await jane.hear()).audit_id == at.partition(": ")[2]


async def test_counts(server: SecureServer, cluster: Cluster, repeated: list[bool]) -> None:
    """Every answer is counted once, repeated or not, also where repeating it fails half-way."""
    async with line(server) as jane:
        bodies = [(await jane.ask(LIST)).body for _ in range(6)]
        cluster.unsynced = "not now"
        assert (await jane.ask(LIST)).code == 503
        cluster.unsynced = None
        assert (await jane.ask(LIST)).code == 200
    assert repeated == [False, False, False, True, True, True, False, True]
    (figures,) = server.handlers.traffic.figures.values()
    assert figures.codes == {("", 200): 7, ("", 503): 1}
    assert sum(figures.durations[""].counts) == 8
    assert sum(figures.sizes.counts) == 8
    assert figures.sizes.sum > 7 * len(bodies[0])
    assert server.authenticator.attempts == {"success": 8}
    assert server.authorizer.attempts == {"allowed": 8}
    assert (server.inflight.reading, server.inflight.highest(reads=True)) == (0, 1)


# What changes its mind.


def _forbid(server: SecureServer, _: Cluster) -> None:
    server.may = lambda _: False
    server.later = 11  # for so long a verdict is taken as known


def _distrust(server: SecureServer, _: Cluster) -> None:
    other = {**CONFIGMAP, "client-ca-file": FRONT_PROXY_CA.pem}
    server.authenticator.update(AuthenticationConfig.from_configmap(other))


def _expire(server: SecureServer, _: Cluster) -> None:
    server.later = timedelta(days=2).total_seconds()


def _turn_back(server: SecureServer, _: Cluster) -> None:
    server.later = -timedelta(days=2).total_seconds()


def _crowd(server: SecureServer, _: Cluster) -> None:
    while server.inflight.enter(reads=True):
        pass


def _end(server: SecureServer, _: Cluster) -> None:
    server.shutdown.draining = True


def _lose(_: SecureServer, cluster: Cluster) -> None:
    cluster.unsynced = "out of date: pods"


def _delete(_: SecureServer, cluster: Cluster) -> None:
    cluster.view.delete_class("l40s")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_forbid, 403),
        (_distrust, 401),
        (_expire, 401),
        (_turn_back, 401),
        (_crowd, 429),
        (_end, 503),
        (_lose, 503),
        (_delete, 404),
    ],
)
@pytest.mark.parametrize("path", [ONE, PAGE])
async def test_refusal(
    server: SecureServer,
    cluster: Cluster,
    repeated: list[bool],
    change: Callable[[SecureServer, Cluster], None],
    code: int,
    path: str,
) -> None:
    """What was let pass before is refused as soon as it would be for the first time."""
    async with line(server) as jane:
        for _ in range(ASKS):
            assert (await jane.ask(path)).code == 200
        assert repeated.pop()
        change(server, cluster)
        assert (await jane.ask(path)).code == code
        assert not repeated.pop()


async def test_verdict_is_renewed(server: SecureServer, repeated: list[bool]) -> None:
    """After ten seconds who asks, and whether they may, is found out again, and then taken as known again."""
    async with line(server) as jane:
        for seconds, asked, is_repeated in (
            (0, 1, False),  # the verdict has to be waited for
            (0, 1, False),
            (0, 1, False),
            (9, 1, True),
            (11, 2, False),
            (12, 2, False),
            (20, 2, True),
            (22, 3, False),
        ):
            server.later = seconds
            assert (await jane.ask(LIST)).code == 200
            assert (len(server.asked), repeated[-1]) == (asked, is_repeated)


async def test_everybody_for_themselves(server: SecureServer) -> None:
    """The same words from somebody else are theirs: by certificate, and by what the front proxy says of its callers."""
    server.may = lambda spec: spec["user"] in ("jane", "alice")
    john = client(CLIENT_CA, "john")
    async with line(server) as jane, line(server, john) as other, line(server, None) as nobody:
        for _ in range(ASKS):
            codes = [(await each.ask(LIST)).code for each in (jane, other, nobody)]
            assert codes == [200, 403, 403]
    async with line(server, FRONT_PROXY) as proxy, line(server) as jane:
        for _ in range(ASKS):
            codes = [(await proxy.ask(LIST, f"X-Remote-User: {name}")).code for name in ("alice", "mallory")]
            assert codes == [200, 403]
            assert (await jane.ask(LIST, "X-Remote-User: mallory")).code == 200, "it is no front proxy's word"
        assert (await proxy.ask(LIST)).code == 401


async def test_other_connection(server: SecureServer, repeated: list[bool]) -> None:
    """Who comes back with the same certificate is known."""
    async with line(server) as jane:
        first, *_ = [await jane.ask(LIST) for _ in range(3)]
    async with line(server) as again:
        assert (await again.ask(LIST)).body == first.body
    assert repeated == [False, False, False, True]


async def test_prepares_for_who_asks_again(server: SecureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is prepared for words that come once, however many."""
    prepared: list[str] = []
    real = Handlers.make_again

    def make_again(self: Handlers, request: Request) -> Make | None:
        prepared.append(request.path)
        return real(self, request)

    monkeypatch.setattr(Handlers, "make_again", make_again)
    async with line(server) as jane:
        for _ in range(20):
            await jane.ask_anew(LIST)
        assert prepared == []
        for _ in range(ASKS):
            await jane.ask(ONE)
    assert prepared == [ONE]


async def test_bug(
    server: SecureServer,
    repeated: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug met in repeating is told like any other, and the connection goes on."""

    def fail(_: object) -> Listing:
        raise RuntimeError("a bug")

    async with line(server) as jane:
        for _ in range(ASKS):
            await jane.ask(LIST)
        assert repeated[-1]
        with monkeypatch.context() as broken:
            broken.setattr(ResourceStore, "list", fail)
            said = await jane.ask(LIST)
        assert (said.code, repeated[-1]) == (500, False)
        assert said.body.startswith(b"This request caused apiserver to panic.")
        assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RuntimeError]
        assert ((await jane.ask(LIST)).code, repeated[-1]) == (200, True)


async def test_filter_that_has_to_be_passed(cluster: Cluster, tmp_path: Path, repeated: list[bool]) -> None:
    """One filter that says nothing of repeats is enough for there to be none."""

    async def say(handler: Handler, request: Request) -> Response:
        response = await handler(request)
        assert isinstance(response, Answer)
        response.headers["X-Passed"] = request.audit_id
        return response

    async with secure_server(cluster, tmp_path, further=[say]) as server, line(server) as jane:
        for _ in range(ASKS):
            said = await jane.ask(LIST)
            assert f"X-Passed: {said.audit_id}".encode() in said.headers
    assert repeated == [False] * ASKS


# What comes otherwise than whole.


async def test_pieces(server: SecureServer, repeated: list[bool]) -> None:
    """However the bytes of requests are cut, each is answered once and in its turn."""
    async with line(server) as jane:
        expected = (await jane.ask(LIST)).body
        one = (await jane.ask(ONE)).body
        assert (await jane.ask(LIST)).body == expected
        bodies = {LIST: expected, ONE: one}
        dice = random.Random(7)  # noqa: S311 # which cuts is of no matter
        for _ in range(60):
            asked = [dice.choice([LIST, ONE]) for _ in range(dice.randint(1, 3))]
            ids = [str(uuid.uuid4()) for _ in asked]
            stream = b"".join(words(path, audit_id=given) for path, given in zip(asked, ids, strict=True))
            for piece in _cut(stream, sorted(dice.sample(range(1, len(stream)), dice.randint(0, 2)))):
                jane.send(piece)
                await jane.writer.drain()
                await asyncio.sleep(dice.choice([0, 0, 0.002]))
            for path, given in zip(asked, ids, strict=True):
                said = await jane.hear()
                assert (said.code, said.audit_id, said.body) == (200, given, bodies[path])
        repeated.clear()
        assert (await jane.ask(LIST)).body == expected
        assert repeated == [True], "it goes on as soon as requests come whole again"


def _cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *places, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


async def test_request_in_a_header(server: SecureServer) -> None:
    """What goes on a head that has begun is no request, though it look like one that was answered before."""
    async with line(server) as jane:
        for _ in range(ASKS):
            assert (await jane.ask(LIST)).code == 200
        jane.send(f"GET {ONE} HTTP/1.1\r\nHost: catalog\r\nX-Goes-On: ".encode())
        await jane.writer.drain()
        await asyncio.sleep(0.05)
        jane.send(words(LIST).replace(b"Host: catalog\r\n", b""))
        said = await jane.hear()
        assert orjson.loads(said.body)["kind"] == "GPUClass"


async def test_rest_of_a_request(server: SecureServer) -> None:
    """The rest of a head, after which a request was answered, is none by itself."""
    whole = words(LIST)
    async with line(server) as jane:
        for _ in range(ASKS):
            for piece in _cut(whole, [4]):
                jane.send(piece)
                await jane.writer.drain()
                await asyncio.sleep(0.05)
            assert (await jane.hear()).code == 200
        jane.send(whole[4:])
        async with asyncio.timeout(20):
            assert (await jane.reader.readline()).split()[1] == b"400"


@pytest.mark.parametrize(
    "between",
    [
        b"POST %b HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n%b",
        b"GET %b HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n%b",
    ],
)
async def test_request_in_a_body(server: SecureServer, between: bytes) -> None:
    """What stands in a body is no request, though it be one that was answered before."""
    async with line(server) as jane:
        inner = words(LIST, audit_id=str(uuid.uuid4()))
        for _ in range(ASKS):
            assert (await jane.ask(LIST)).code == 200
        outer = between % (LIST.encode(), len(inner), inner)
        jane.send(outer[: -len(inner)])
        await jane.writer.drain()
        await asyncio.sleep(0.05)
        jane.send(inner)
        said = await jane.hear()
        assert said.code == (405 if between.startswith(b"POST") else 200)
        assert said.audit_id not in inner.decode()
        last = await jane.ask(ONE)
        assert (last.code, orjson.loads(last.body)["metadata"]["name"]) == (200, "l40s")


@pytest.mark.parametrize(
    "other", [b"HEAD %b HTTP/1.1\r\nHost: c\r\n\r\n", b"GET %b HTTP/1.0\r\nHost: c\r\nConnection: keep-alive\r\n\r\n"]
)
async def test_other_methods_and_versions(server: SecureServer, repeated: list[bool], other: bytes) -> None:
    """HEAD and HTTP/1.0 are read each time."""
    async with line(server) as jane:
        for _ in range(ASKS):
            jane.send(other % LIST.encode())
            async with asyncio.timeout(20):
                head = await jane.reader.readuntil(b"\r\n\r\n")
                if other.startswith(b"GET"):
                    (length,) = re.findall(rb"Content-Length: (\d+)", head)
                    assert b"Connection: keep-alive" in head
                    await jane.reader.readexactly(int(length))
    assert repeated == [False] * ASKS


# What is answered.


async def test_nothing_older_than_the_view(server: SecureServer, cluster: Cluster, repeated: list[bool]) -> None:
    """After each change of the view the next answer is that of whoever asks in words that were never heard."""
    dice = random.Random(11)  # noqa: S311 # which changes is of no matter
    async with line(server) as jane, line(server, FRONT_PROXY) as proxy:
        seen = set()
        for number in range(CHANGES):
            _change(cluster, dice, number)
            for path in (LIST, ONE, PAGE):
                answers = [await jane.ask(path), await proxy.ask(path, "X-Remote-User: alice")]
                expected = _content(await jane.ask_anew(path))
                assert [_content(each) for each in answers] == [expected, expected]
                seen.add(orjson.dumps(expected))
        assert len(seen) > CHANGES
        assert repeated.count(True) >= 2 * 3 * (CHANGES - 3)


async def test_no_offer_older_than_what_is_known(cluster: Cluster, tmp_path: Path, repeated: list[bool]) -> None:
    """The same of what is told to tenants, whose budgets and namespaces change as well."""
    tenancy = Tenancy()
    for name in ("red", "blue"):
        tenancy.apply_namespace(Namespace(name, str(uuid.uuid4()), "2026-01-01T00:00:00Z"))
    unsynced: list[str] = []
    offering = Offering(tenancy, TenantRules(), lambda: unsynced[0] if unsynced else None)
    paths = (OFFERS, f"{BASE}/namespaces/red/gpuoffers", f"{BASE}/namespaces/red/gpuoffers/l40s")
    seen = set()
    async with secure_server(cluster, tmp_path, offering=offering) as server, line(server) as jane:
        for number in range(CHANGES):
            key = budget_key("l40s")
            tenancy.apply_quota(Quota("red", "q", read_limits("q", {key: str(number)}, {key: str(number // 2)})))
            _change(cluster, random.Random(number), number)  # noqa: S311 # which changes is of no matter
            for path in paths:
                said, expected = _content(await jane.ask(path)), _content(await jane.ask_anew(path))
                assert said == expected
                seen.add(orjson.dumps(expected))
        assert repeated.count(True) >= len(paths) * (CHANGES - 3)
        assert len(seen) > CHANGES
        unsynced.append("namespaces: not now")
        assert {(await jane.ask(path)).code for path in paths} == {503}
        unsynced.clear()
        tenancy.delete_namespace("red")
        assert [(await jane.ask(path)).code for path in paths] == [200, 200, 404]
        assert _content(await jane.ask(paths[1])) == _content(await jane.ask_anew(paths[1]))


def _change(cluster: Cluster, dice: random.Random, number: int) -> None:
    """Bind a pod, free it, or give a node other devices."""
    match number % 3:
        case 0:
            cluster.view.apply_pod(Pod("ns", "other", "n1", {RESOURCE: dice.randint(1, 3)}))
        case 1:
            cluster.view.delete_pod(("ns", "other"))
        case _:
            devices = {RESOURCE: 4 + number}
            cluster.view.apply_node(Node("n1", capacity=devices, allocatable=devices))


def _content(said: Said) -> Mapping[str, object]:
    """What is said of the classes, at whatever version."""
    assert said.code == 200
    content: dict[str, object] = orjson.loads(said.body)
    if "items" in content:
        content.pop("metadata")
    return content
