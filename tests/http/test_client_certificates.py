"""Client certificates over real TLS: who passes the handshake, and who is then taken for whom."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from apiserver.serving.authentication import AuthenticationConfig, Authenticator, Unauthenticated
from apiserver.serving.certificates import (
    CertificateVerifier,
    ServingContext,
    pair_from_files,
    peer_of,
    self_signed,
)
from tests.http.secure import CLIENT_CA, CONFIGMAP, FRONT_PROXY, FRONT_PROXY_CA, JANE
from tests.unit.test_certificates import SERVER_AUTH, Issued, authority, client

MIDDLE_CA = authority("middle", issuer=CLIENT_CA)
AS_ALICE = {"X-Remote-User": "alice"}

Answer = tuple[int, str]


class Listener:
    """A server on loopback that answers everybody with their name, or 401."""

    def __init__(self, directory: Path) -> None:
        self.files = (directory / "tls.crt", directory / "tls.key")
        self.certificate = self.renew()
        self.context = ServingContext(pair_from_files(*self.files))
        self.authenticator = Authenticator()
        self.port = 0

    def renew(self) -> str:
        """Write a new pair and return its certificate."""
        certificate, key = self_signed(["localhost"], ["127.0.0.1"])
        for file, content in zip(self.files, (certificate, key), strict=True):
            file.write_bytes(content)
        return certificate.decode()

    def configure(self, configmap: Mapping[str, str]) -> None:
        """Trust what the ConfigMap says, in the handshake and after it."""
        config = AuthenticationConfig.from_configmap(configmap)
        self.context.trust(config.verifiers)
        self.authenticator.update(config)

    async def answer(self, request: web.Request) -> web.Response:
        """Say who is asking, and over which protocol, and whether they could have shown a certificate."""
        assert request.transport is not None
        connection = request.transport.get_extra_info("ssl_object")
        peer = peer_of(connection)
        headers = {
            "Asked": str(peer.was_asked),
            "Protocol": f"{connection.version()} {connection.selected_alpn_protocol()}",
        }
        try:
            user = await self.authenticator.authenticate(
                peer_certificate=peer.certificate, intermediates=peer.intermediates, headers=request.headers
            )
        except Unauthenticated:
            return web.Response(status=401, headers=headers)
        return web.Response(text=user.name, headers=headers)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Listener"]:
        """Listen for as long as the context lasts."""
        app = web.Application()
        app.router.add_get("/", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.context.ssl_context)
            await site.start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def connect(
        self, shown: Issued | None = None, *, chain: str = "", version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> AsyncIterator["Caller"]:
        """Return a client that shows a certificate and keeps its connection."""
        context = ssl.create_default_context(cadata=self.certificate)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        if shown:
            with pair_file(shown, chain, self.files[0].parent) as file:
                context.load_cert_chain(file)
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}", connector=aiohttp.TCPConnector(ssl=context)
        ) as session:
            yield Caller(session)


class Caller:
    """A client with one connection."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.headers: Mapping[str, str] = {}

    async def ask(self, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the status and who the server takes the client for."""
        async with self.session.get("/", headers=headers) as response:
            self.headers = response.headers.copy()
            return response.status, await response.text()


@contextmanager
def pair_file(pair: Issued, chain: str, directory: Path) -> Iterator[Path]:
    """Write a certificate, what it was signed with, and its key for as long as the context lasts."""
    file = directory / "client.pem"
    file.write_text(pair.pem + chain + pair.key_pem)
    try:
        yield file
    finally:
        file.unlink()


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    """A server that trusts both authorities of a cluster."""
    async with Listener(tmp_path).listening() as listening:
        listening.configure(CONFIGMAP)
        yield listening


@pytest.mark.parametrize("preferred", [("AES128", "AES256"), ("AES256", "AES128")])
async def test_cipher_is_the_clients_choice(listener: Listener, preferred: tuple[str, str]) -> None:
    """Go's clients prefer AES-128, as its servers do; OpenSSL by itself would take AES-256 whenever it is offered."""
    context = ssl.create_default_context(cadata=listener.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # of the ciphers of 1.3 Python cannot say which it prefers
    context.set_ciphers(":".join(f"ECDHE+{each}:@SECLEVEL=2" for each in preferred))
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    try:
        name, _, bits = writer.get_extra_info("cipher")
        assert (preferred[0] in name, bits) == (True, int(preferred[0].removeprefix("AES")))
    finally:
        writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("shown", "headers", "answer"),
    [
        pytest.param(FRONT_PROXY, AS_ALICE, (200, "alice"), id="the front proxy is believed"),
        pytest.param(JANE, AS_ALICE, (200, "jane"), id="a client is who its certificate says"),
        pytest.param(None, AS_ALICE, (200, "system:anonymous"), id="without a certificate the headers mean nothing"),
        pytest.param(client(FRONT_PROXY_CA, "somebody"), AS_ALICE, (401, ""), id="a name that is not allowed"),
        pytest.param(client(CLIENT_CA, "jane", age=timedelta(days=2)), {}, (401, ""), id="expired"),
    ],
)
async def test_handshake_passes(
    listener: Listener, shown: Issued | None, headers: Mapping[str, str], answer: Answer, version: ssl.TLSVersion
) -> None:
    """Certificates of a trusted authority pass the handshake, and only then it is decided what they are worth."""
    async with listener.connect(shown, version=version) as caller:
        assert await caller.ask(headers) == answer
        assert caller.headers["Asked"] == "True"
        assert caller.headers["Protocol"] == f"{version.name.replace('_', '.')} http/1.1"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(client(authority("elsewhere"), "jane"), id="of another authority"),
        pytest.param(client(authority("kubernetes"), "jane"), id="of another authority of the same name"),
        pytest.param(client(CLIENT_CA, "jane", usages=SERVER_AUTH), id="for servers only"),
        pytest.param(Issued("jane"), id="signed by itself"),
    ],
)
async def test_handshake_fails(listener: Listener, shown: Issued, version: ssl.TLSVersion) -> None:
    """Where Go answers 401, OpenSSL breaks off: the difference that remains."""
    async with listener.connect(shown, version=version) as caller:
        with pytest.raises(aiohttp.ClientError):
            await caller.ask()


async def test_intermediates(listener: Listener) -> None:
    """A client may send the path to its authority, where Python lets the server see it."""
    async with listener.connect(client(MIDDLE_CA, "jane"), chain=MIDDLE_CA.pem) as caller:
        assert await caller.ask() == ((200, "jane") if sys.version_info >= (3, 13) else (401, ""))


async def test_before_any_authority(tmp_path: Path) -> None:
    """Until it is known whom to trust nobody is asked, which the server can tell, and new connections are."""
    async with Listener(tmp_path).listening() as listener, listener.connect(FRONT_PROXY) as early:
        assert await early.ask(AS_ALICE) == (200, "system:anonymous")
        assert early.headers["Asked"] == "False"
        listener.configure(CONFIGMAP)
        assert await early.ask(AS_ALICE) == (200, "system:anonymous")
        assert early.headers["Asked"] == "False"
        async with listener.connect(FRONT_PROXY) as late:
            assert await late.ask(AS_ALICE) == (200, "alice")
            assert late.headers["Asked"] == "True"


async def test_authority_is_replaced(listener: Listener) -> None:
    """A new authority is trusted and the old one no more, on open connections too."""
    successor = authority("front-proxy-ca")
    async with listener.connect(FRONT_PROXY) as old:
        assert await old.ask(AS_ALICE) == (200, "alice")
        listener.configure(CONFIGMAP | {"requestheader-client-ca-file": successor.pem})
        assert await old.ask(AS_ALICE) == (401, "")
    async with listener.connect(client(successor, "front-proxy-client")) as new:
        assert await new.ask(AS_ALICE) == (200, "alice")
    async with listener.connect(FRONT_PROXY) as late:
        with pytest.raises(aiohttp.ClientError):
            await late.ask(AS_ALICE)


async def test_authority_signed_by_another(listener: Listener) -> None:
    """A trusted authority needs no root above it."""
    listener.context.trust([CertificateVerifier(MIDDLE_CA.pem)])
    listener.authenticator.update(AuthenticationConfig.from_configmap({"client-ca-file": MIDDLE_CA.pem}))
    async with listener.connect(client(MIDDLE_CA, "jane")) as caller:
        assert await caller.ask() == (200, "jane")


async def test_serving_pair_is_renewed(listener: Listener) -> None:
    """New connections get the new certificate, and are asked for theirs as before; open ones stay."""
    async with listener.connect(JANE) as old:
        assert await old.ask() == (200, "jane")
        outdated, listener.certificate = listener.certificate, listener.renew()
        assert listener.context.reload() is None
        assert await old.ask() == (200, "jane")
    async with listener.connect(JANE) as new:
        assert await new.ask() == (200, "jane")
    listener.certificate = outdated
    async with listener.connect(JANE) as distrustful:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await distrustful.ask()


@pytest.mark.parametrize("first", [pytest.param(0, id="the certificate first"), pytest.param(1, id="the key first")])
async def test_half_a_pair_is_not_served(listener: Listener, first: int) -> None:
    """While one file is renewed and the other is not, that is reported and the old pair stays."""
    old = [file.read_bytes() for file in listener.files]
    renewed = listener.renew()
    second = listener.files[1 - first]
    missing = second.read_bytes()
    second.write_bytes(old[1 - first])
    assert listener.context.reload() is not None
    async with listener.connect(JANE) as caller:
        assert await caller.ask() == (200, "jane")
    second.write_bytes(missing)
    assert listener.context.reload() is None
    listener.certificate = renewed
    async with listener.connect(JANE) as caller:
        assert await caller.ask() == (200, "jane")


async def test_missing_files_are_reported(listener: Listener) -> None:
    """Files that vanish are reported and the old pair stays."""
    listener.files[0].unlink()
    assert listener.context.reload() is not None
    async with listener.connect(JANE) as caller:
        assert await caller.ask() == (200, "jane")


async def test_trust_outlives_a_broken_pair(listener: Listener) -> None:
    """New authorities are trusted while the files of the serving pair are broken."""
    listener.files[1].write_text("broken")
    assert listener.context.reload() is not None
    successor = authority("kubernetes")
    listener.configure(CONFIGMAP | {"client-ca-file": successor.pem})
    async with listener.connect(client(successor, "jane")) as caller:
        assert await caller.ask() == (200, "jane")


def test_uvloop(tmp_path: Path) -> None:
    """The faster event loop makes its TLS connections in the same way."""

    async def scenario() -> list[Answer]:
        async with Listener(tmp_path).listening() as listener, listener.connect(FRONT_PROXY) as early:
            answers = [await early.ask(AS_ALICE)]
            listener.configure(CONFIGMAP)
            async with listener.connect(FRONT_PROXY) as late:
                return [*answers, await late.ask(AS_ALICE)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == [(200, "system:anonymous"), (200, "alice")]
