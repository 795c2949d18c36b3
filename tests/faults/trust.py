"""Whom our servers trust changes: their own certificate, the authorities of callers, and what they may ask."""

import contextlib
import functools
import hashlib
import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Answer, Client
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, FRONT_PROXY
from tests.cluster.pki import CertificateAuthority, KeyPair
from tests.cluster.waiting import wait_for
from tests.faults.loading import CLASSES
from tests.faults.rows import Fault, Noted, require
from tests.faults.stage import BINDINGS, READER, SURVIVOR, Stage

CONFIG_MAP_PATH: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
DELEGATOR: Final = "gpuclass-catalog:system:auth-delegator"
ACCOUNTS: Final = "/api/v1/namespaces/default/serviceaccounts"
CACHED_SECONDS: Final = 30
ROTATION_SECONDS: Final = 90
REFUSED_STATUS: Final = {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.FORBIDDEN}


def rotate_serving_certificate(stage: Stage, noted: Noted) -> None:
    """The files get another certificate: it is served within a minute, and no request is lost."""
    began = time.time()
    before = _served(stage.survivor)
    pair = stage.survivor.rotate_certificate()
    wanted = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())).hexdigest()
    require(wanted != before, "the files hold the certificate of before")
    wait_for(lambda: _served(stage.survivor) == wanted, "the new certificate", timeout_seconds=ROTATION_SECONDS)
    noted.times += 1
    noted.facts.append(f"the new certificate is served after {time.time() - began:.0f} s")
    lost = [each for each in list(stage.load.refused) if each.answered >= began and each.server.startswith(SURVIVOR)]
    require(not lost, f"{len(lost)} requests were lost, such as {lost[:1]}")


def _served(server: CatalogServer) -> str:
    certificate = ssl.get_server_certificate(("127.0.0.1", server.port), timeout=10)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def rotate_client_authority(stage: Stage, noted: Noted) -> None:
    """Client certificates of another authority are taken once it is named, and refused once it is not any more."""
    _rotate(stage, noted, "client-ca-file", lambda authority: authority.client(ADMIN, ADMIN_GROUPS), {})


def rotate_front_proxy_authority(stage: Stage, noted: Noted) -> None:
    """The same for who may speak for others."""
    headers = {"X-Remote-User": ADMIN, "X-Remote-Group": ADMIN_GROUPS[0]}
    _rotate(stage, noted, "requestheader-client-ca-file", lambda authority: authority.client(FRONT_PROXY), headers)


def _rotate(
    stage: Stage, noted: Noted, key: str, issue: Callable[[CertificateAuthority], KeyPair], headers: dict[str, str]
) -> None:
    """Name one authority after the other; kube-apiserver adds its own by itself."""
    authorities = []
    for number in range(2):
        directory = stage.control_plane.directory / f"{key}-{number}"
        directory.mkdir()
        authorities.append(CertificateAuthority(directory, f"authority-{number}"))
    callers = [issue(each) for each in authorities]
    original = stage.control_plane.client.get(CONFIG_MAP_PATH)["data"][key]

    def waits_for(caller: KeyPair, *, is_allowed: bool) -> None:
        for server in stage.servers:
            wait_for(
                functools.partial(_is, server, caller, headers, is_allowed),
                f"a caller by {key} to be {'allowed' if is_allowed else 'refused'}",
            )

    for caller in callers:
        waits_for(caller, is_allowed=False)
    try:
        for authority, caller in zip(authorities, callers, strict=True):
            pem = original + authority.certificate.read_text()
            stage.control_plane.client.patch(CONFIG_MAP_PATH, {"data": {key: pem}})
            back = time.time()
            noted.times += 1
            waits_for(caller, is_allowed=True)
            noted.recoveries.append(time.time() - back)
        waits_for(callers[0], is_allowed=False)
    finally:
        stage.control_plane.client.patch(CONFIG_MAP_PATH, {"data": {key: original}})
    waits_for(callers[1], is_allowed=False)
    noted.facts.append(f"{key}: each new caller allowed, each of an authority no longer named refused")


def _is(server: CatalogServer, caller: KeyPair, headers: dict[str, str], is_allowed: bool) -> bool:
    return (_ask(server, caller, headers) == HTTPStatus.OK) is is_allowed


def _ask(server: CatalogServer, caller: KeyPair, headers: dict[str, str]) -> int:
    """The code for a caller; 0 when the handshake itself is refused."""
    with Client(server.port, authority=server.authority, certificate=caller) as client:
        try:
            return client.request("GET", CLASSES, headers=headers).code
        except (OSError, http.client.HTTPException):
            return 0


def delete_config_map(stage: Stage, noted: Noted) -> None:
    """The ConfigMap is deleted, which kube-apiserver mends by itself: callers are known all the while."""
    began = time.time()
    client = stage.control_plane.client
    before = client.get(CONFIG_MAP_PATH)["metadata"]["uid"]
    client.delete(CONFIG_MAP_PATH)
    noted.times += 1
    wait_for(
        lambda: (
            (answer := client.request("GET", CONFIG_MAP_PATH)).code == HTTPStatus.OK
            and answer.json()["metadata"]["uid"] != before
        ),
        "another ConfigMap",
        timeout_seconds=90,
    )
    noted.facts.append(f"another one came after {time.time() - began:.1f} s")
    noted.recoveries.append(stage.recover(time.time()))
    lost = [each for each in list(stage.load.refused) if each.answered >= began]
    require(not lost, f"{len(lost)} requests were lost, such as {lost[:1]}")


def refuse_reviews(stage: Stage, noted: Noted) -> None:
    """The right to ask for reviews is taken from us: nobody gets in by a token or by a rule, and after it they do."""
    token = _token(stage)
    reader = stage.control_plane.authority.client(READER)
    wait_for(lambda: _by_token(stage, token).code == HTTPStatus.OK, "a token to be taken")
    require(_ask(stage.survivor, reader, {}) == HTTPStatus.OK, "the reader may not read")
    with _without_reviews(stage):
        noted.times += 1
        deadline = time.monotonic() + CACHED_SECONDS
        wait_for(lambda: _by_token(stage, token).code == HTTPStatus.UNAUTHORIZED, "401 for a token")
        wait_for(lambda: _ask(stage.survivor, reader, {}) in REFUSED_STATUS, "the reader to be refused")
        codes = set()
        while time.monotonic() < deadline:
            codes |= {_by_token(stage, token).code, _ask(stage.survivor, reader, {})}
            time.sleep(0.5)
        allowed = {HTTPStatus.UNAUTHORIZED, *REFUSED_STATUS}
        require(codes <= allowed, f"without reviews the codes are {sorted(codes)}")
    back = time.time()
    wait_for(lambda: _by_token(stage, token).code == HTTPStatus.OK, "the token to be taken again")
    wait_for(lambda: _ask(stage.survivor, reader, {}) == HTTPStatus.OK, "the reader to be let in again")
    noted.recoveries.append(time.time() - back)
    noted.facts.append(f"without reviews: {', '.join(str(int(code)) for code in sorted(codes))}")


@contextlib.contextmanager
def _without_reviews(stage: Stage) -> Iterator[None]:
    client = stage.control_plane.client
    binding = client.get(f"{BINDINGS}/{DELEGATOR}")
    client.delete(f"{BINDINGS}/{DELEGATOR}")
    try:
        yield
    finally:
        metadata = {"name": DELEGATOR}
        client.post(BINDINGS, {**binding, "metadata": metadata})


def _token(stage: Stage) -> str:
    client = stage.control_plane.client
    if client.request("GET", f"{ACCOUNTS}/{READER}").code == HTTPStatus.NOT_FOUND:
        client.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token: str = client.post(f"{ACCOUNTS}/{READER}/token", request)["status"]["token"]
    return token


def _by_token(stage: Stage, token: str) -> Answer:
    with Client(stage.survivor.port, authority=stage.survivor.authority) as client:
        return client.request("GET", CLASSES, headers={"Authorization": f"Bearer {token}"})


SERVING: Final = Fault("serving certificate rotated", rotate_serving_certificate)
CLIENT_CA: Final = Fault("client CA rotated", rotate_client_authority)
FRONT_PROXY_CA: Final = Fault("front-proxy CA rotated", rotate_front_proxy_authority)
CONFIG_MAP: Final = Fault("ConfigMap deleted", delete_config_map)
REVIEWS: Final = Fault("TokenReview and SAR refused", refuse_reviews)
