"""Pages in a browser on the secure port: whose WebSockets are refused, and that no answer is for them to read."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.http.conftest import Cluster
from tests.http.running import LIST
from tests.http.secure import CLIENT_CA, CONFIGMAP, FRONT_PROXY, JANE, SecureServer, secure_server
from tests.unit.test_certificates import Issued, client

SLOW = f"{LIST}?resourceVersion=9007199254740991&resourceVersionMatch=NotOlderThan"
WATCH = f"{LIST}?watch=1"
EVIL = "https://evil.example"
AS_ALICE = {"X-Remote-User": "alice"}
GOOD_TOKEN = {"Authorization": "Bearer good"}
TOKEN_PROTOCOLS = ("base64.binary.k8s.io", "base64url.bearer.authorization.k8s.io.Z29vZA")
SHARED = CONFIGMAP | {"requestheader-client-ca-file": CLIENT_CA.pem}


@pytest.fixture
async def server(cluster: Cluster, tmp_path: Path) -> AsyncIterator[SecureServer]:
    """It trusts both authorities of a cluster."""
    async with secure_server(cluster, tmp_path) as server:
        yield server


async def opened(
    server: SecureServer, shown: Issued | None, origin: str | None, headers: Mapping[str, str] | None = None
) -> int:
    """The status of a WebSocket's handshake; 101 if a first event came."""
    async with server.connected(shown) as session:
        try:
            async with session.ws_connect(WATCH, origin=origin, headers=headers) as socket:
                assert (await socket.receive_json(timeout=20))["type"] == "ADDED"
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status


@pytest.mark.parametrize(
    ("shown", "headers", "origin", "status"),
    [
        pytest.param(JANE, {}, None, 101, id="a program with a certificate"),
        pytest.param(JANE, {}, EVIL, 403, id="a certificate used by a foreign page"),
        pytest.param(JANE, {}, "null", 403, id="a certificate used by a page without an origin"),
        pytest.param(JANE, {}, "", 403, id="a certificate and an empty origin"),
        pytest.param(JANE, {}, "https://127.0.0.1", 403, id="a certificate used by a page of another port"),
        pytest.param(JANE, AS_ALICE, EVIL, 403, id="identity headers that count for nothing change nothing"),
        pytest.param(JANE, GOOD_TOKEN, EVIL, 403, id="a token beside the certificate is not what counts"),
        pytest.param(FRONT_PROXY, AS_ALICE, EVIL, 101, id="kube-apiserver sends on what the browser sent"),
        pytest.param(FRONT_PROXY, GOOD_TOKEN, EVIL, 101, id="a token beside a front proxy that names nobody"),
        pytest.param(None, GOOD_TOKEN, EVIL, 101, id="a token is sent by no browser by itself"),
        pytest.param(None, {}, EVIL, 101, id="nobody in particular, who may"),
    ],
)
async def test_websocket(
    server: SecureServer, shown: Issued | None, headers: Mapping[str, str], origin: str | None, status: int
) -> None:
    """A browser shows a certificate for any page that asks; so only a page of ours may use it."""
    assert await opened(server, shown, origin, headers) == status
    assert len(server.asked) == (status == 101), "it is refused before anybody is asked"


async def test_websocket_of_our_own_page(server: SecureServer) -> None:
    """Our own origin is that of scheme, host and port, in whatever case."""
    assert await opened(server, JANE, server.url) == 101
    assert await opened(server, JANE, server.url.upper()) == 101
    assert await opened(server, JANE, server.url.replace("https", "http")) == 403


async def test_websocket_with_a_token_among_the_protocols(server: SecureServer) -> None:
    """The means that browsers have to show a token."""
    async with (
        server.connected() as session,
        session.ws_connect(WATCH, origin=EVIL, protocols=TOKEN_PROTOCOLS) as socket,
    ):
        assert (await socket.receive_json(timeout=20))["type"] == "ADDED"
    assert [spec["user"] for spec in server.asked] == ["robot"]


async def test_front_proxy_as_an_ordinary_client(cluster: Cluster, tmp_path: Path) -> None:
    """It is not the certificate that is exempt, but the user that the front proxy names."""
    front_proxy = client(CLIENT_CA, "front-proxy-client")
    async with secure_server(cluster, tmp_path, SHARED) as server:
        assert await opened(server, front_proxy, EVIL, AS_ALICE) == 101
        assert await opened(server, front_proxy, EVIL) == 403


async def test_only_websockets(server: SecureServer) -> None:
    """Any other request that a page makes is answered, and not for the page to read."""
    async with server.connected(JANE) as session, session.get(LIST, headers={"Origin": EVIL}) as response:
        assert response.status == 200


# --- No answer is for a page to read ----------------------------------------------------------------------------------


def _refuse(_: Mapping[str, object]) -> bool:
    return False


def _fail(_: Mapping[str, object]) -> bool:
    raise ConnectionResetError


def _exhaust(server: SecureServer, _: Cluster) -> None:
    assert all(server.inflight.enter(reads=True) for _ in range(400))


def _unsync(_: SecureServer, cluster: Cluster) -> None:
    cluster.unsynced = "no list of Nodes yet"


def _break(server: SecureServer, _: Cluster) -> None:
    server.authenticator.config = 7  # type: ignore[assignment] # what only a bug would do


Setting = Callable[[SecureServer, Cluster], None]


@pytest.mark.parametrize(
    ("asked", "setting", "status"),
    [
        pytest.param(("GET", LIST, {}), None, 200, id="list"),
        pytest.param(("GET", f"{LIST}/l40s", {}), None, 200, id="get"),
        pytest.param(("HEAD", LIST, {}), None, 405, id="HEAD"),
        pytest.param(("GET", f"{WATCH}&timeoutSeconds=1", {}), None, 200, id="watch"),
        pytest.param(("GET", "/apis", {}), None, 200, id="discovery"),
        pytest.param(("GET", "/readyz", {}), None, 200, id="health"),
        pytest.param(("GET", LIST, {"Authorization": "Bearer bad"}), None, 401, id="a bad token"),
        pytest.param(("GET", LIST, {}), lambda server, _: setattr(server, "may", _refuse), 403, id="not allowed"),
        pytest.param(("GET", LIST, {"Impersonate-User": "x"}), None, 403, id="impersonation"),
        pytest.param(("GET", WATCH, {"Upgrade": "websocket"}), None, 403, id="a WebSocket of the page"),
        pytest.param(("GET", f"{LIST}/none", {}), None, 404, id="no such object"),
        pytest.param(("GET", "/nowhere", {}), None, 404, id="no such path"),
        pytest.param(("POST", LIST, {}), None, 405, id="writing"),
        pytest.param(("GET", LIST, {"Accept": "image/png"}), None, 406, id="nothing acceptable"),
        pytest.param(("GET", f"{LIST}?limit=x", {}), None, 400, id="a bad query"),
        pytest.param(("GET", LIST, {}), _exhaust, 429, id="too many"),
        pytest.param(("GET", LIST, {}), lambda server, _: setattr(server, "may", _fail), 500, id="no review"),
        pytest.param(("GET", LIST, {}), _break, 500, id="a bug"),
        pytest.param(("GET", f"{SLOW}&timeout=50ms", {}), None, 504, id="too slow"),
        pytest.param(("GET", LIST, {}), _unsync, 503, id="no data yet"),
        pytest.param(("OPTIONS", LIST, {"Access-Control-Request-Method": "GET"}), None, 405, id="preflight"),
    ],
)
async def test_no_cors(
    server: SecureServer,
    cluster: Cluster,
    asked: tuple[str, str, Mapping[str, str]],
    setting: Setting | None,
    status: int,
) -> None:
    """No kind of answer carries a header that would let a page read it, or says what the server is made of."""
    method, target, headers = asked
    if setting:
        setting(server, cluster)
    async with (
        server.connected(None if "Authorization" in headers else JANE) as session,
        session.request(method, target, headers={"Origin": EVIL, **headers}) as response,
    ):
        await response.read()
        assert response.status == status
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]
        assert "Server" not in response.headers
        assert "Origin" not in response.headers.get("Vary", "")
