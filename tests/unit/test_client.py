"""The connection to kube-apiserver: what is sent, what answers become, and where the configuration comes from."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from apiserver.cluster import client as client_module
from apiserver.cluster.client import (
    Access,
    ClusterClient,
    ClusterError,
    ClusterUnreachableError,
    ConfigurationError,
    ConnectionLostError,
    LineSplitter,
    SilenceError,
    connect,
    environment_proxy,
    parse_date,
)
from apiserver.cluster.sockets import open_socket
from tests.cluster.pki import CertificateAuthority, KeyPair
from tests.fake_apiserver import End, FakeApiserver, Fault, HangUp, Refusal, Script, begin_stream

PATH = "/api/v1/pods"
REVIEW = {"kind": "SubjectAccessReview", "spec": {"user": "jane"}}


@pytest.fixture
async def fake() -> AsyncIterator[FakeApiserver]:
    """A server that speaks plain HTTP."""
    async with FakeApiserver() as server:
        yield server


@pytest.fixture
async def client(fake: FakeApiserver) -> AsyncIterator[ClusterClient]:
    """The connection to it, in a hurry."""
    async with ClusterClient(Access(fake.url), user_agent="tests/1", post_pauses=(0.01,) * 4) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own may be found."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(client_module, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")
    names = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# Requests.


async def test_get(fake: FakeApiserver, client: ClusterClient) -> None:
    """A get brings the bytes, sends its parameters, and says who asks and for what."""
    fake.put(PATH, "a")
    response = await client.get(PATH, {"limit": "1", "fieldSelector": "spec.nodeName!=,x=a b"})
    assert response.status == 200
    assert json.loads(response.body)["items"][0]["metadata"]["name"] == "a"
    assert response.date is not None
    assert abs(response.date - datetime.now(UTC)) < timedelta(minutes=1)
    seen = fake.seen[0]
    assert seen.query == {"limit": "1", "fieldSelector": "spec.nodeName!=,x=a b"}
    assert (seen.headers["User-Agent"], seen.headers["Accept"]) == ("tests/1", "application/json")
    assert "Authorization" not in seen.headers


async def test_path_prefix(fake: FakeApiserver) -> None:
    """A server behind a path prefix is asked below it."""
    async with ClusterClient(Access(f"{fake.url}/clusters/one"), user_agent="tests") as prefixed:
        await prefixed.get(PATH)
    assert fake.seen[0].path == "/clusters/one/api/v1/pods"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(Refusal(403, "Forbidden", "no"), (403, "Forbidden", "no", None), id="Status"),
        pytest.param(Refusal(409, "", "no"), (409, "Conflict", "no", None), id="Status without reason"),
        pytest.param(
            Refusal(404, text="404 page not found"), (404, "Not Found", "404 page not found", None), id="text"
        ),
        pytest.param(Refusal(500, text="é" * 999), (500, "Internal Server Error", "é" * 256, None), id="long text"),
        pytest.param(Refusal(500, text='{"a": 1}'), (500, "Internal Server Error", '{"a": 1}', None), id="other JSON"),
        pytest.param(Refusal(302, text="", headers={"Location": "/"}), (302, "Found", "", None), id="a redirect"),
        pytest.param(
            Refusal(503, "X", "", headers={"Retry-After": "7"}), (503, "X", "", 7), id="Retry-After in seconds"
        ),
        pytest.param(
            Refusal(503, "X", "", headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
            (503, "X", "", None),
            id="Retry-After as a date",
        ),
        pytest.param(
            Refusal(503, "X", "", headers={"Retry-After": "86400"}), (503, "X", "", 120), id="Retry-After of a day"
        ),
    ],
)
async def test_refusals(fake: FakeApiserver, client: ClusterClient, fault: Fault, expected: tuple[object, ...]) -> None:
    """Whatever is not 2xx raises, with the Status's words or the beginning of the body."""
    fake.list_faults.append(fault)
    with pytest.raises(ClusterError) as caught:
        await client.get(PATH)
    error = caught.value
    assert (error.status, error.reason, error.message, error.retry_after) == expected
    assert not isinstance(error, ClusterUnreachableError)


async def test_no_connection(unused_tcp_port: int) -> None:
    """Where nobody listens the error is ours, not the transport's."""
    async with ClusterClient(Access(f"http://127.0.0.1:{unused_tcp_port}"), user_agent="tests") as nowhere:
        with pytest.raises(ClusterUnreachableError) as caught:
            await nowhere.get(PATH)
    assert caught.value.status == 0


async def test_body_that_breaks_off(fake: FakeApiserver, client: ClusterClient) -> None:
    """Half an answer is no answer."""
    fake.list_faults.append(Script((b'{"items":',), End.TORN))
    with pytest.raises(ClusterUnreachableError):
        await client.get(PATH)


async def test_only_inside_its_block() -> None:
    """Without its block there is no session to leak."""
    with pytest.raises(RuntimeError):
        await ClusterClient(Access("http://localhost"), user_agent="tests").get(PATH)


async def test_dates_are_observed(fake: FakeApiserver) -> None:
    """Every answer's Date is offered, refusals too, with the interval in which it was written."""
    observed = []
    fake.list_faults.extend([None, Refusal(500)])

    def observe(date: datetime, sent: float, received: float) -> None:
        observed.append((date, sent, received))

    async with ClusterClient(Access(fake.url), user_agent="tests", on_date=observe) as client:
        await client.get(PATH)
        with pytest.raises(ClusterError):
            await client.get(PATH)
    assert len(observed) == 2
    date, sent, received = observed[0]
    assert abs(date - datetime.now(UTC)) < timedelta(minutes=1)
    assert 0 < received - sent < 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("Wed, 21 Oct 2015 07:28:00 GMT", datetime(2015, 10, 21, 7, 28, tzinfo=UTC), id="GMT"),
        pytest.param("yesterday", None, id="nonsense"),
        pytest.param("", None, id="missing"),
    ],
)
def test_parse_date(value: str, expected: datetime | None) -> None:
    """A Date header is read into UTC or not at all."""
    assert parse_date(value) == expected


# Reviews.


async def test_post(fake: FakeApiserver, client: ClusterClient) -> None:
    """A review is sent as JSON and comes back answered."""
    assert await client.post("/apis/a/v1/reviews", REVIEW) == REVIEW | {"status": {"allowed": True}}
    assert fake.seen[0].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refusal(429, "TooManyRequests"), id="429"),
        pytest.param(Refusal(500, "InternalError"), id="500"),
        pytest.param(Refusal(504, text="slow"), id="504"),
        pytest.param(Refusal(503, text="", headers={"Retry-After": "0"}), id="Retry-After"),
        pytest.param(HangUp(), id="hung up"),
    ],
)
async def test_post_again(fake: FakeApiserver, client: ClusterClient, fault: Fault) -> None:
    """A review is tried again after what passes, four times."""
    fake.post_faults.extend([fault] * 4)
    assert (await client.post(PATH, REVIEW))["status"] == {"allowed": True}
    fake.post_faults.extend([fault] * 5)
    with pytest.raises(ClusterError):
        await client.post(PATH, REVIEW)
    assert not fake.post_faults
    failed = fault.status if isinstance(fault, Refusal) else 0
    assert client.posts == {(PATH, failed): 9, (PATH, 201): 1}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refusal(403, "Forbidden"), id="403"),
        pytest.param(Refusal(503, text="down"), id="503 without Retry-After"),
        pytest.param(Script((b"[]",)), id="an answer that is no object"),
    ],
)
async def test_post_not_again(fake: FakeApiserver, client: ClusterClient, fault: Fault) -> None:
    """Whatever else is wrong stays wrong."""
    fake.post_faults.append(fault)
    with pytest.raises(ClusterError):
        await client.post(PATH, REVIEW)
    assert len(fake.seen) == 1


async def test_hung_up_post(fake: FakeApiserver, client: ClusterClient) -> None:
    """A server that hangs up is told apart from one that isn't there."""
    fake.post_faults.extend([HangUp()] * 5)
    with pytest.raises(ConnectionLostError):
        await client.post(PATH, REVIEW)


# Streams.


async def test_stream(fake: FakeApiserver, client: ClusterClient) -> None:
    """Lines come whole; what the end cuts off does not come; a watch is not compressed."""
    fake.watch_faults.append(Script((b"on", b"e\ntwo\n\nth", b"ree\nfo")))
    async with client.stream(PATH, {"watch": "true"}, silence_seconds=5) as lines:
        assert [line async for line in lines] == [b"one", b"two", b"three"]
    assert fake.seen[0].headers["Accept-Encoding"] == "identity"


async def test_silent_stream(fake: FakeApiserver, client: ClusterClient) -> None:
    """A stream on which nothing comes is given up, after what did come."""
    fake.watch_faults.append(Script((b"one\n",), End.NEVER))
    async with client.stream(PATH, {"watch": "true"}, silence_seconds=2) as lines:
        assert await anext(lines) == b"one"
        with pytest.raises(SilenceError):
            await anext(lines)


class Trickle:
    """A stream that says a byte now and then, on a clock that goes on as soon as the byte is heard.

    Args:
        seconds: between two bytes.
        times: how many before the newline.
    """

    def __init__(self, *, seconds: float, times: int) -> None:
        self._seconds, self._times = seconds, times
        self._heard = asyncio.Queue[bytes]()
        self._skew = 0.0
        self._feed = LineSplitter.feed

    def time(self) -> float:
        """What the loop takes for the time."""
        return time.monotonic() + self._skew

    def feed(self, splitter: LineSplitter, chunk: bytes) -> list[bytes]:
        """In the client: split, and note what was heard."""
        self._heard.put_nowait(chunk)
        return self._feed(splitter, chunk)

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:  # noqa: ARG002 - a Fault
        """Say it."""
        response = await begin_stream(request)
        for _ in range(self._times):
            await response.write(b"x")
            await self._heard.get()
            self._skew += self._seconds
        await response.write(b"\n")
        return response


async def test_trickling_stream(fake: FakeApiserver, client: ClusterClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte counts as a sign of life, not only whole lines."""
    trickle = Trickle(seconds=8, times=20)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", trickle.time)
    monkeypatch.setattr(LineSplitter, "feed", lambda *fed: trickle.feed(*fed))  # noqa: PLW0108 # else without self
    fake.watch_faults.append(trickle)
    async with client.stream(PATH, {"watch": "true"}, silence_seconds=20) as lines:
        assert [line async for line in lines] == [b"x" * 20]


async def test_refused_stream(fake: FakeApiserver, client: ClusterClient) -> None:
    """A watch that is refused raises before its first line."""
    fake.watch_faults.append(Refusal(410, "Expired"))
    with pytest.raises(ClusterError) as caught:
        async with client.stream(PATH, {"watch": "true"}, silence_seconds=1):
            pass
    assert caught.value.reason == "Expired"


@given(lines=st.lists(st.binary(min_size=1).map(lambda line: line.replace(b"\n", b" "))), data=st.data())
def test_lines_do_not_depend_on_chunks(lines: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut, the same lines come out."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    splitter = LineSplitter()
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == lines


def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without newlines is given up before it takes all memory."""
    monkeypatch.setattr(client_module, "MAX_LINE_BYTES", 100)
    splitter = LineSplitter()
    splitter.feed(b"x" * 100)
    with pytest.raises(ClusterError):
        splitter.feed(b"x")


# Credentials that change.


def bearer(fake: FakeApiserver, token: str) -> Access:
    """Access with a fixed token."""

    async def authorization() -> str:
        return f"Bearer {token}"

    return Access(fake.url, authorization=authorization)


def tokens(fake: FakeApiserver) -> list[str]:
    """The tokens that were sent."""
    return [each.headers["Authorization"].removeprefix("Bearer ") for each in fake.seen]


class Loader:
    """Gives out the tokens new1, new2, … as if they had been read from a file."""

    def __init__(self, fake: FakeApiserver) -> None:
        self.calls = 0
        self._fake = fake

    async def __call__(self) -> Access:
        """Read the next."""
        self.calls += 1
        return bearer(self._fake, f"new{self.calls}")


async def test_refused_credentials_are_read_anew(fake: FakeApiserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 401 the credentials are read again and the request repeated, once."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)
    fake.list_faults.extend([Refusal(401, "Unauthorized"), None, Refusal(401), Refusal(401)])
    async with ClusterClient(bearer(fake, "old"), user_agent="tests", load=Loader(fake)) as client:
        await client.get(PATH)
        with pytest.raises(ClusterError):
            await client.get(PATH)
    assert tokens(fake) == ["old", "new1", "new1", "new2"]


async def test_refused_credentials_are_read_once_for_all(fake: FakeApiserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests refused together share one reading."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)
    fake.list_faults.extend([Refusal(401)] * 5)
    loader = Loader(fake)
    async with ClusterClient(bearer(fake, "old"), user_agent="tests", load=loader) as client:
        await asyncio.gather(*(client.get(PATH) for _ in range(5)))
    assert loader.calls == 1


async def test_credentials_are_not_read_all_the_time(fake: FakeApiserver) -> None:
    """Credentials just read are not read again, however often they are refused."""
    fake.list_faults.append(Refusal(401))
    loader = Loader(fake)
    async with ClusterClient(bearer(fake, "old"), user_agent="tests", load=loader) as client:
        with pytest.raises(ClusterError):
            await client.get(PATH)
    assert loader.calls == 0


async def test_expiring_credentials_are_read_ahead(fake: FakeApiserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that say when they end are replaced before that."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)
    old = replace(bearer(fake, "old"), expires_at=datetime.now(UTC) + timedelta(seconds=30))
    async with ClusterClient(old, user_agent="tests", load=Loader(fake)) as client:
        await client.get(PATH)
    assert tokens(fake) == ["new1"]


async def test_credentials_that_can_no_longer_be_read(fake: FakeApiserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that broke meanwhile leaves the refusal standing."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)

    async def load() -> Access:
        raise ConfigurationError("gone")

    fake.list_faults.append(Refusal(401, "Unauthorized"))
    async with ClusterClient(bearer(fake, "old"), user_agent="tests", load=load) as client:
        with pytest.raises(ClusterError) as caught:
            await client.get(PATH)
    assert caught.value.status == HTTPStatus.UNAUTHORIZED


# Configuration.


def kubeconfig(path: Path, *, server: str = "http://127.0.0.1:1", user: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with the contexts one (current) and two."""
    clusters = [{"name": "c", "cluster": {"server": server}}]
    users = [{"name": "u", "user": user or {"token": "secret"}}, {"name": "v", "user": {"token": "other"}}]
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u"}},
        {"name": "two", "context": {"cluster": "c", "user": "v"}},
    ]
    config = {"clusters": clusters, "users": users, "contexts": contexts, "current-context": "one"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(("context", "token"), [(None, "secret"), ("two", "other")])
async def test_kubeconfig(fake: FakeApiserver, tmp_path: Path, context: str | None, token: str) -> None:
    """A named kubeconfig gives server and credentials, of the current context or the one asked for."""
    path = kubeconfig(tmp_path / "config", server=f"{fake.url}/")
    async with await connect(path, context=context, user_agent="tests") as client:
        assert client.url == fake.url
        await client.get(PATH)
    assert tokens(fake) == [token]


@pytest.mark.parametrize("variable", [True, False], ids=["KUBECONFIG", "~/.kube/config"])
async def test_own_kubeconfig(
    fake: FakeApiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, variable: bool
) -> None:
    """A local run takes the person's own kubeconfig, even inside a pod; the first of $KUBECONFIG that exists."""
    path = kubeconfig(tmp_path / "home" / (".kube/config" if not variable else "other"), server=fake.url)
    if variable:
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/does/not/exist", str(path)]))
    service_account(tmp_path, monkeypatch, fake.port)
    async with await connect(None, user_agent="tests", local=True) as client:
        await client.get(PATH)
    assert tokens(fake) == ["secret"]


BROKEN = [
    pytest.param("", id="empty"),
    pytest.param("a: [", id="not YAML"),
    pytest.param("[]", id="a list"),
    pytest.param("text", id="a text"),
    pytest.param("current-context: x", id="no contexts"),
    pytest.param("current-context: x\ncontexts: [{name: x}]", id="an empty context"),
    pytest.param("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", id="no cluster"),
]


@pytest.mark.parametrize("text", BROKEN)
async def test_broken_kubeconfig(tmp_path: Path, text: str) -> None:
    """A kubeconfig that cannot be used is named in the error."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        await connect(path, user_agent="tests")


async def test_unusable_kubeconfigs(tmp_path: Path) -> None:
    """So are one that is missing, a context that is, a certificate that is, and a plugin that fails."""
    path = kubeconfig(tmp_path / "config", server="https://localhost")
    missing = tmp_path / "missing"
    with pytest.raises(ConfigurationError, match=str(missing)):
        await connect(missing, user_agent="tests")
    with pytest.raises(ConfigurationError, match="three"):
        await connect(path, context="three", user_agent="tests")
    kubeconfig(path, server="https://localhost", user={"client-certificate": str(missing)})
    with pytest.raises(ConfigurationError, match=str(missing)):
        await connect(path, user_agent="tests")
    kubeconfig(path, user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}})
    with pytest.raises(ConfigurationError, match=str(path)):
        await connect(path, user_agent="tests")


@pytest.mark.parametrize("local", [True, False])
async def test_no_configuration(*, local: bool) -> None:
    """Nothing to be found is an error that says what to do."""
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        await connect(None, user_agent="tests", local=local)


PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {"token": f"run{number}"}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


async def test_credential_plugin(fake: FakeApiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin is run once, and again when its credentials are refused."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)
    arguments = ["-c", PLUGIN, str(tmp_path / "count")]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": arguments}
    path = kubeconfig(tmp_path / "config", server=fake.url, user={"exec": plugin})
    fake.list_faults.extend([None, None, Refusal(401)])
    async with await connect(path, user_agent="tests") as client:
        for _ in range(3):
            await client.get(PATH)
    assert tokens(fake) == ["run1", "run1", "run1", "run2"]


# In a pod.


def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> Path:
    """The files and variables that a pod has, without the CA."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("first\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    return directory


def server_tls(pair: KeyPair) -> ssl.SSLContext:
    """TLS for the server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service account's token and CA are used, and what replaced them once they no longer do."""
    monkeypatch.setattr(client_module, "RENEWAL_SECONDS", 0)
    authority = CertificateAuthority(tmp_path, "now")
    other = CertificateAuthority(tmp_path, "before")
    async with FakeApiserver(server_tls(authority.serving("serving", ["127.0.0.1"]))) as fake:
        directory = service_account(tmp_path, monkeypatch, fake.port)
        (directory / "ca.crt").write_bytes(other.certificate.read_bytes())
        async with await connect(None, user_agent="tests") as client:
            with pytest.raises(ClusterUnreachableError):
                await client.get(PATH)
            (directory / "ca.crt").write_bytes(authority.certificate.read_bytes())
            await client.get(PATH)
            (directory / "token").write_text("second")
            fake.list_faults.append(Refusal(401))
            await client.get(PATH)
    assert tokens(fake) == ["first", "first", "second"]


async def test_client_certificate(tmp_path: Path) -> None:
    """A kubeconfig's client certificate is presented, and the server's checked against its CA."""
    authority = CertificateAuthority(tmp_path, "ca")
    tls = server_tls(authority.serving("serving", ["127.0.0.1"]))
    tls.load_verify_locations(authority.certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    pair = authority.client("jane")
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    async with FakeApiserver(tls) as fake:
        path = kubeconfig(tmp_path / "config", server=fake.url, user=user)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["certificate-authority"] = str(authority.certificate)
        path.write_text(json.dumps(config))
        async with await connect(path, user_agent="tests") as client:
            await client.get(PATH)
    assert "Authorization" not in fake.seen[0].headers


async def test_insecure_kubeconfig(tmp_path: Path) -> None:
    """insecure-skip-tls-verify is heeded, as kubectl heeds it."""
    authority = CertificateAuthority(tmp_path, "ca")
    async with FakeApiserver(server_tls(authority.serving("serving", ["elsewhere"]))) as fake:
        path = kubeconfig(tmp_path / "config", server=fake.url)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        path.write_text(json.dumps(config))
        async with await connect(path, user_agent="tests") as client:
            await client.get(PATH)
    assert tokens(fake) == ["secret"]


async def test_broken_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose CA is missing, or that is asked for a context, says so."""
    directory = service_account(tmp_path, monkeypatch, 443)
    with pytest.raises(ConfigurationError, match=str(directory)):
        await connect(None, user_agent="tests")
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        await connect(None, context="one", user_agent="tests")


@pytest.mark.parametrize(
    ("url", "excepted", "expected"),
    [
        pytest.param("https://api.example.com:6443", "", "http://proxy:3128", id="any"),
        pytest.param("http://api.example.com", "", None, id="no proxy for the scheme"),
        pytest.param("https://api.example.com", "example.com", None, id="excepted by name"),
        pytest.param("https://10.96.0.1:443", "10.0.0.0/8", None, id="excepted by network"),
        pytest.param("https://11.0.0.1:443", "x, 10.0.0.0/8", "http://proxy:3128", id="outside the network"),
        pytest.param("https://[fd00::1]:443", "fd00::/8", None, id="excepted by IPv6 network"),
        pytest.param("https://127.0.0.1:6443", "", None, id="loopback"),
        pytest.param("https://localhost:6443", "", None, id="localhost"),
    ],
)
def test_environment_proxy(monkeypatch: pytest.MonkeyPatch, url: str, excepted: str, expected: str | None) -> None:
    """A proxy of the environment is used as Go does."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    assert environment_proxy(url) == expected


def test_nothing_slow_is_imported() -> None:
    """kubernetes_asyncio waits until somebody connects."""
    code = "import sys, apiserver.cluster.reflector; sys.exit('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are fewer options")
def test_sockets_notice_silence() -> None:
    """The kernel asks a quiet connection whether it is there, and gives up what is not acknowledged for 6 s."""
    with open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6000
