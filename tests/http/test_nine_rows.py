"""Whom a certificate, a list of allowed names and headers come to: each row of the table, decided and then answered.

Source: the verifier and the header authenticator of k8s.io/apiserver/pkg/authentication/request (1.37), as a union with
client certificates, tokens and nobody in particular.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from multidict import CIMultiDict

from apiserver.serving.authentication import AuthenticationConfig, Authenticator, Unauthenticated
from tests.http.conftest import Cluster
from tests.http.running import LIST
from tests.http.secure import (
    CLIENT_CA,
    CONFIGMAP,
    FRONT_PROXY,
    FRONT_PROXY_CA,
    JANE,
    SecureServer,
    secure_server,
    whose,
)
from tests.unit.test_certificates import SERVER_AUTH, Issued, authority, client

ANONYMOUS = "system:anonymous"
AS_ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "system:masters"}
TOKEN = {"Authorization": "Bearer good"}
BAD_TOKEN = {"Authorization": "Bearer not-good-but-secret"}
SHARED = CONFIGMAP | {"requestheader-client-ca-file": CLIENT_CA.pem}
WITHOUT_CLIENT_CA = {key: value for key, value in CONFIGMAP.items() if key != "client-ca-file"}
OTHER_NAME = client(FRONT_PROXY_CA, "somebody")
STRANGER = client(authority("elsewhere"), "front-proxy-client")
EXPIRED = client(FRONT_PROXY_CA, "front-proxy-client", age=timedelta(days=2))
FOR_SERVERS = client(FRONT_PROXY_CA, "front-proxy-client", usages=SERVER_AUTH)

REFUSED = None


@dataclass(frozen=True)
class Row:
    """One case.

    Attributes:
        shown: the certificate of the client.
        headers: of the request.
        user: who is asking then, None for 401.
        configmap: what is trusted.
        breaks_off: OpenSSL ends the handshake where Go goes on to the outcome: nobody gains anything by it.
    """

    shown: Issued | None
    headers: Mapping[str, str]
    user: str | None
    configmap: Mapping[str, str] = field(default_factory=lambda: CONFIGMAP)
    breaks_off: bool = False


ROWS = [
    pytest.param(Row(None, AS_ALICE, ANONYMOUS), id="1 no certificate: headers ignored, anonymous"),
    pytest.param(Row(None, AS_ALICE | TOKEN, "robot"), id="1 no certificate: headers ignored, the token counts"),
    pytest.param(Row(None, AS_ALICE | BAD_TOKEN, REFUSED), id="1 no certificate: headers ignored, a bad token is 401"),
    pytest.param(Row(FRONT_PROXY, AS_ALICE, "alice"), id="2 front proxy: the user it names"),
    pytest.param(Row(FRONT_PROXY, AS_ALICE | BAD_TOKEN, "alice"), id="2 front proxy: before any token"),
    pytest.param(
        Row(client(CLIENT_CA, "front-proxy-client"), {}, "front-proxy-client", SHARED),
        id="3 front proxy that names nobody: client CA",
    ),
    pytest.param(Row(FRONT_PROXY, TOKEN, "robot"), id="3 front proxy that names nobody: token"),
    pytest.param(Row(FRONT_PROXY, {}, ANONYMOUS, WITHOUT_CLIENT_CA), id="3 front proxy that names nobody: anonymous"),
    pytest.param(Row(FRONT_PROXY, {}, REFUSED), id="3 front proxy that names nobody: 401 where the client CA objects"),
    pytest.param(Row(JANE, AS_ALICE, "jane", SHARED), id="4 name not allowed: client CA, headers ignored"),
    pytest.param(Row(OTHER_NAME, AS_ALICE | TOKEN, "robot"), id="4 name not allowed: token"),
    pytest.param(Row(OTHER_NAME, AS_ALICE, REFUSED), id="4 name not allowed: 401"),
    pytest.param(Row(JANE, AS_ALICE, "jane"), id="5 client CA only: headers ignored"),
    pytest.param(Row(STRANGER, AS_ALICE, REFUSED, breaks_off=True), id="6 neither CA, no token: 401"),
    pytest.param(Row(STRANGER, AS_ALICE | TOKEN, "robot", breaks_off=True), id="7 neither CA, good token: its user"),
    pytest.param(Row(EXPIRED, AS_ALICE, REFUSED), id="8 expired: 401"),
    pytest.param(Row(FOR_SERVERS, AS_ALICE, REFUSED, breaks_off=True), id="9 wrong key usage: 401"),
]


@pytest.mark.parametrize("row", ROWS)
async def test_decided(row: Row) -> None:
    """What the authenticator says, whatever a handshake thinks of the certificate."""
    authenticator = Authenticator(AuthenticationConfig.from_configmap(row.configmap), token_reviewer=whose)
    shown = row.shown.der if row.shown else None
    try:
        user = await authenticator.authenticate(peer_certificate=shown, headers=CIMultiDict(row.headers))
    except Unauthenticated:
        assert row.user is REFUSED
    else:
        assert user.name == row.user
        assert ("system:masters" in user.groups) == (user.name == "alice"), "nobody else's word is taken for a group"


@pytest.mark.parametrize("row", ROWS)
async def test_answered(row: Row, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same over TLS: the user who is let in is the one that was decided on, and no log has heard a token."""
    caplog.set_level(logging.DEBUG)
    async with secure_server(cluster, tmp_path, row.configmap) as server, server.connected(row.shown) as session:
        if row.breaks_off:
            with pytest.raises(aiohttp.ClientError):
                await session.get(LIST, headers=row.headers)
            assert server.asked == []
        else:
            await _compare(server, session, row)
    assert "good" not in caplog.text


async def _compare(server: SecureServer, session: aiohttp.ClientSession, row: Row) -> None:
    async with session.get(LIST, headers=row.headers) as response:
        assert response.status == (401 if row.user is REFUSED else 200)
        if row.user is REFUSED:
            assert (await response.json())["reason"] == "Unauthorized"
    # Of alice, in system:masters, nobody is asked whether she may.
    assert [spec["user"] for spec in server.asked] == ([] if row.user in {REFUSED, "alice"} else [row.user])


async def test_many_groups(cluster: Cluster, tmp_path: Path) -> None:
    """A user of 300 groups, which the front proxy sends one a line, is let in with each of them."""
    groups = [f"oidc:team-{number:050}" for number in range(300)]
    headers = CIMultiDict([("X-Remote-User", "bob"), *(("X-Remote-Group", group) for group in groups)])
    async with secure_server(cluster, tmp_path) as server, server.connected(FRONT_PROXY) as session:
        for _ in range(2):
            async with session.get(LIST, headers=headers) as response:
                assert response.status == 200
    assert [(spec["user"], spec["groups"]) for spec in server.asked] == [("bob", [*groups, "system:authenticated"])]
