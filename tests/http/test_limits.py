"""What a request may take: time, a share, headers, and the patience of a connection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.catalog.install import install
from apiserver.serving import limits, server
from apiserver.serving.answers import Answer
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.filters import Handler, authenticating, authorizing, only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.limits import Inflight, ending_in_time, limiting
from apiserver.serving.requests import Request, Response
from apiserver.serving.server import App, listening, make_app
from apiserver.serving.users import User
from apiserver.serving.versions import VersionSource
from tests.http.apps import AppServer, Client
from tests.http.conftest import Cluster
from tests.http.running import LIST

SLOW = f"{LIST}?resourceVersion=9007199254740991&resourceVersionMatch=NotOlderThan"
"""Waits three seconds for a version that does not come."""
GIB = 2**30


async def review(token: str) -> User | None:
    """Everybody is who the token says, but nobody is `bad`."""
    return None if token == "bad" else User(token, groups=("system:masters",) if token == "root" else ())


async def allow(spec: Mapping[str, object]) -> Mapping[str, object]:
    """`mallory` may do nothing, everybody else anything."""
    return {"status": {"allowed": "mallory" not in str(spec)}}


@pytest.fixture
def inflight() -> Inflight:
    """Room for one."""
    return Inflight(1, 1)


@pytest.fixture
def app(cluster: Cluster, inflight: Inflight) -> App:
    """A server that knows its callers by their tokens."""
    served = install(cluster.view, VersionSource(lambda: 1.8e9), lambda: cluster.unsynced)
    authenticator = Authenticator(AuthenticationConfig(), token_reviewer=review)
    authorizer = Authorizer(allow)
    filters = [ending_in_time, authenticating(authenticator, ()), limiting(inflight), authorizing(authorizer)]
    return make_app(Handlers(served, cluster.health, "0.1.0"), filters)


@pytest.fixture
async def client(app: App, aiohttp_client: AiohttpClient) -> Client:
    """A client of it."""
    return await aiohttp_client(AppServer(app))


@asynccontextmanager
async def connected(port: int, **options: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of one's own making, for at most a minute."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 # no event tells it
            await asyncio.sleep(0.01)


def as_(name: str) -> dict[str, str]:
    """Who asks."""
    return {"Authorization": f"Bearer {name}"}


async def test_inflight(client: Client, inflight: Inflight) -> None:
    """One too many is 429, after 401 and before 403; watches, the privileged and health are let in."""
    slow = asyncio.create_task(client.get(SLOW, headers=as_("alice")))
    await until(lambda: inflight.reading == 1)
    for name, path, status in (
        ("bad", LIST, 401),
        ("mallory", LIST, 429),
        ("alice", LIST, 429),
        ("alice", "/apis/catalog.cozystack.io/v1alpha1", 429),
        ("root", LIST, 200),
        ("alice", "/livez", 200),
        ("alice", "/readyz/ping", 200),
    ):
        async with client.get(path, headers=as_(name)) as response:
            assert response.status == status, (name, path)
            if status == 429:
                assert await response.text() == "Too many requests, please try again later.\n"
                assert response.headers["Retry-After"] == "1"
                assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    async with client.get(f"{LIST}?watch=1", headers=as_("alice")) as watch:
        assert watch.status == 200
        assert b"ADDED" in await watch.content.readline()
    async with client.post(LIST, headers=as_("alice")) as response:
        assert response.status == 405, "what writes has a share of its own"
    assert (await slow).status == 504
    assert (inflight.reading, inflight.writing) == (0, 0)
    async with client.get(LIST, headers=as_("mallory")) as response:
        assert response.status == 403


async def test_a_client_that_leaves_gives_its_share_back(client: Client, inflight: Inflight) -> None:
    """A request whose client is gone does not count any more."""
    slow = asyncio.create_task(client.get(SLOW, headers=as_("alice")))
    await until(lambda: inflight.reading == 1)
    slow.cancel()
    await until(lambda: inflight.reading == 0)


@pytest.mark.parametrize(
    ("timeout", "problem"),
    [
        ("x", 'time: invalid duration "x"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5d", 'time: unknown unit "d" in duration "5d"'),
        ("-", 'time: invalid duration "-"'),
    ],
)
async def test_unreadable_timeout(client: Client, timeout: str, problem: str) -> None:  # noqa: ASYNC109 # the parameter
    """A timeout that cannot be read is 400, whoever asks, and in the words of Go."""
    for name in ("alice", "bad", "mallory"):
        async with client.get(LIST, params={"timeout": timeout}, headers=as_(name)) as response:
            assert response.status == 400
            status = await response.json()
            assert status["message"] == f"invalid timeout specified in the request URL - {problem}"
    async with client.get(LIST, params={"watch": "1", "timeout": timeout}, headers=as_("alice")) as response:
        assert response.status == 200, "a watch has no such timeout"


@pytest.mark.parametrize("timeout", ["300ms", "+0.3s"])
async def test_deadline(client: Client, timeout: str) -> None:  # noqa: ASYNC109 # the parameter
    """What takes longer than asked for is 504, written as upstream writes it."""
    async with client.get(f"{SLOW}&timeout={timeout.replace('+', '%2B')}", headers=as_("alice")) as response:
        assert response.status == 504
        assert await response.text() == (
            '{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted '
            'timeout","reason":"Timeout","details":{},"code":504}\n'
        )
        assert response.headers["Cache-Control"] == "no-cache, private"


@pytest.mark.parametrize("timeout", ["0s", "-1s", "2h", "50s"])
async def test_no_shorter_deadline(client: Client, timeout: str) -> None:  # noqa: ASYNC109 # the parameter
    """Nothing, less than nothing, and more than there is: the usual time."""
    async with client.get(LIST, params={"timeout": timeout}, headers=as_("alice")) as response:
        assert response.status == 200


async def test_who_does_not_take_the_answer(
    cluster: Cluster, aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that its client does not take in time is broken off, not kept for ever."""
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.5)
    served = install(cluster.view, VersionSource(lambda: 1.8e9), lambda: None)
    handlers = Handlers(served, Health(), "0.1.0")
    app = make_app(handlers, [ending_in_time, large_answers])
    client = await aiohttp_client(AppServer(app))
    assert client.port is not None
    taken = 0
    async with connected(client.port, limit=1024) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(1.5)
        with suppress(ConnectionError):
            while data := await reader.read(2**20):
                taken += len(data)
    assert 0 < taken < LARGE
    ((_, figures),) = handlers.traffic.figures.items()
    assert figures.terminations == {504: 1}


LARGE = 64 * 2**20


async def large_answers(handler: Handler, request: Request) -> Response:  # noqa: ARG001 # a filter
    """Answer with more than the buffers of a connection hold."""
    return Answer(body=bytes(LARGE))


# Connections.


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[int]:
    """The listener itself; the port it listens on."""
    gpus = install(cluster.view, VersionSource(lambda: 1.8e9), lambda: None)
    app = make_app(Handlers(gpus, Health(), "0.1.0"), [only_loopback])
    async with listening(app, address="127.0.0.1", port=0) as url:
        yield int(url.rpartition(":")[2])


@pytest.mark.parametrize("beginning", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "])
async def test_slow_head(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, beginning: bytes) -> None:
    """Who does not finish the head of a request is let go, however busily; one that comes in pieces is answered."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    async with served(cluster) as port:
        async with connected(port) as (reader, writer):
            writer.write(beginning)
            closed = asyncio.create_task(_end(reader))
            while not closed.done():
                if beginning:
                    writer.write(b"x")
                await asyncio.sleep(0.05)
            assert await closed == b""
        monkeypatch.setattr(server, "HEAD_SECONDS", 3.0)
        async with connected(port) as (reader, writer):
            for pause in (3.2, 0):  # idle between two requests is no slow head
                for piece in (b"GET /livez HTTP/1.1\r\n", b"Host: local", b"host\r\n\r", b"\n"):
                    writer.write(piece)
                    await asyncio.sleep(0.05)
                assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
                await asyncio.sleep(pause)


async def _end(reader: asyncio.StreamReader) -> bytes:
    """What still comes before the connection ends; a reset is an end."""
    with suppress(ConnectionError):
        return await reader.read()
    return b""


async def test_head_that_is_begun_on_a_used_connection(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second head of a connection has no more time than the first."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    async with served(cluster) as port, connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\nok")
        writer.write(b"GET /liv")
        assert await _end(reader) == b""


async def test_a_watch_outlives_the_time_for_heads(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain or as a WebSocket whose client talks: no head is expected while a request is answered."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 2.0)
    async with (
        served(cluster) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.ws_connect(f"{LIST}?watch=1") as socket,
        session.get(f"{LIST}?watch=1") as watch,
        asyncio.timeout(30),
    ):
        await socket.receive_str()
        for _ in range(8):
            await socket.send_str("x")
            await asyncio.sleep(0.3)
        cluster.view.delete_class("l40s")
        assert b"ADDED" in await watch.content.readline()
        assert b"DELETED" in await watch.content.readline()
        assert "DELETED" in await socket.receive_str()


async def test_a_body_is_not_kept(cluster: Cluster) -> None:
    """A GET with a body of a gibibyte is answered, and the connection closed without taking the body."""
    async with served(cluster) as port, connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % GIB)
        assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
        before = peak_mib()
        with suppress(ConnectionError):
            for _ in range(GIB // 2**20):
                writer.write(bytes(2**20))
                await writer.drain()
    assert peak_mib() < before + 100


def peak_mib() -> float:
    """The most memory this process has had."""
    import resource  # noqa: PLC0415 # not everywhere

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def test_many_groups(cluster: Cluster) -> None:
    """300 header lines, as of a user of 300 groups, and a long query are taken."""
    async with served(cluster) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        headers = [("X-Remote-Group", f"oidc:{number:060}") for number in range(300)]
        async with session.get("/livez", headers=headers) as response:
            assert response.status == 200
        async with session.get("/livez", params={"labelSelector": "x" * 32_000}) as response:
            assert response.status == 200
        async with session.get("/livez", headers=[("X", "y")] * 5000) as response:
            assert response.status == 400


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        pytest.param(b"nonsense\r\n\r\n", "400 Bad Request", id="no request line"),
        pytest.param(b"\x16\x03\x01\x02\x00\r\n\r\n", "400 Bad Request", id="the beginning of TLS"),
        pytest.param(b"GET / HTTP/1.1\r\nAuthorization; Bearer secret\r\n\r\n", "400 Bad Request", id="no header"),
        pytest.param(
            b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
            "431 Request Header Fields Too Large",
            id="a header that does not end",
        ),
        pytest.param(
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
            "431 Request Header Fields Too Large",
            id="a target that does not end",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: secret\r\n\r\n", "400 Bad Request", id="a length that is no number"
        ),
    ],
)
async def test_no_http(cluster: Cluster, caplog: pytest.LogCaptureFixture, sent: bytes, refusal: str) -> None:
    """What is no HTTP is refused as Go does, says nothing of us, and costs whoever debugs one line of the log."""
    caplog.set_level(logging.DEBUG)
    async with served(cluster) as port:
        caplog.clear()
        async with connected(port) as (reader, writer):
            writer.write(sent)
            answer = (await reader.read()).decode()
        lines = [record for record in caplog.records if record.name != "asyncio"]
    head, _, body = answer.partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    assert status == f"HTTP/1.0 {refusal}"
    assert body == refusal
    assert {header.partition(":")[0] for header in headers} == {
        "Cache-Control",
        "Content-Type",
        "Content-Length",
        "Date",
    }
    assert [(record.levelno, record.exc_info) for record in lines] == [(logging.DEBUG, None)]
    assert "secret" not in lines[0].getMessage()


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        (b"0b2e-4", True),
        (b"a" * 256, True),
        (b"a" * 257, False),
        (b"", False),
        (b"\xff\xfe", False),
        ("ä".encode(), False),
        (b"a\tb", False),
    ],
)
async def test_audit_id(cluster: Cluster, sent: bytes, echoed: bool) -> None:
    """An Audit-Id comes back as it was sent; one that is no fit for a header or a log is replaced."""
    async with served(cluster) as port, connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nAudit-Id: " + sent + b"\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
    found = [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.startswith(b"Audit-Id: ")]
    assert len(found) == 1
    assert (found[0] == sent) == echoed
    assert echoed or len(found[0]) == 36
