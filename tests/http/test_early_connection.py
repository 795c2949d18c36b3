"""Connections that began before it was known whom to trust."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from apiserver.serving.answers import Answer
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.authorization import OpenPaths
from apiserver.serving.certificates import ServingContext, self_signed
from apiserver.serving.filters import answering, authenticating
from apiserver.serving.requests import Request
from apiserver.serving.server import App, through
from apiserver.serving.shutdown import Shutdown
from tests.http.conftest import Cluster
from tests.http.running import LIST
from tests.http.secure import secure_server
from tests.unit.test_certificates import authority, client

CLIENT_CA = authority("kubernetes")


@pytest.mark.parametrize(
    ("configmap", "first", "second"),
    [
        pytest.param({"client-ca-file": CLIENT_CA.pem}, (503, True), (200, "jane"), id="certificates are trusted"),
        pytest.param({}, (200, True), (200, "system:anonymous"), id="no certificate is trusted"),
    ],
)
async def test_early_connection(
    tmp_path: Path, configmap: Mapping[str, str], first: tuple[int, bool], second: tuple[int, str]
) -> None:
    """Who could not show a certificate is told to come again and let go, not taken for nobody."""
    serving = self_signed(["localhost"], ["127.0.0.1"])
    context, authenticator = ServingContext(lambda: serving), Authenticator()
    app = App(through([answering(Shutdown()), authenticating(authenticator, ())], _name), close=lambda: None)
    runner = web.ServerRunner(app.make_server())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context.ssl_context).start()
        shown = ssl.create_default_context(cadata=serving[0].decode())
        jane = client(CLIENT_CA, "jane")
        (tmp_path / "jane.pem").write_text(jane.pem + jane.key_pem)
        shown.load_cert_chain(tmp_path / "jane.pem")
        port = runner.addresses[0][1]
        early = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
        config = AuthenticationConfig.from_configmap(configmap)
        context.trust(config.verifiers)
        authenticator.update(config)
        code, _, is_closed = await _ask(*early)
        assert (code, is_closed) == first
        code, name, _ = await _ask(*await asyncio.open_connection("127.0.0.1", port, ssl=shown))
        assert (code, name) == second
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/livez", 200, id="an open path"),
        pytest.param("/readyz/ping", 200, id="one that begins as an open path may"),
        pytest.param("/version", 503, id="no open path"),
        pytest.param(LIST, 503, id="open paths open no resources"),
    ],
)
async def test_open_paths(tmp_path: Path, cluster: Cluster, path: str, status: int) -> None:
    """What is open to all is so before it is known whom to trust, by the same rules as after it."""
    open_paths = OpenPaths(["/livez", "/readyz*", "/apis/*"])
    async with (
        secure_server(cluster, tmp_path, None, open_paths=open_paths) as server,
        server.connected() as session,
        session.get(path) as response,
    ):
        assert response.status == status
        assert server.asked == []


async def _name(request: Request) -> Answer:
    assert request.user is not None
    return Answer(body=request.user.name.encode())


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, str, bool]:
    """Code, body, and whether the connection is closed after it."""
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].split()[0])
    body = (await reader.readexactly(length)).decode()
    writer.close()
    return int(head.split()[1]), body, "connection: close" in head
