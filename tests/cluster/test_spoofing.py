"""1,000 attempts to be taken for somebody else, at the real server beside the real kube-apiserver."""

import contextlib
import http.client
import random
import re
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.catalog import API, CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.spoofing import (
    ACCOUNT,
    ACCOUNTS,
    MASTERS,
    READERS,
    Attempt,
    Certificate,
    Forger,
    Outcome,
    credentials,
    expected,
    is_foreign_page,
    make_attempt,
    tokens,
)
from tests.cluster.test_catalog import BINDINGS, READER
from tests.cluster.waiting import wait_for

ATTEMPTS = 1000
SEED = 20261202
PATH = f"{API}/gpuclasses"
ALERT = Outcome(0)
NAMED = re.compile(r'User "([^"]*)" cannot')


class Door:
    """One server, with a connection for each certificate."""

    def __init__(self, port: int, authority: Path) -> None:
        self._port, self._authority = port, authority
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._connections: dict[str, http.client.HTTPSConnection] = {}

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()

    def knock(self, attempt: Attempt) -> Outcome:
        """Try it and say what came of it; ALERT if the handshake was refused."""
        connection = self._connection(attempt.certificate)
        try:
            connection.putrequest("GET", PATH, skip_accept_encoding=True)
            for name, value in (*attempt.credential.headers, *attempt.headers):
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read().decode()
        except ssl.SSLError:
            connection.close()
            return ALERT
        except OSError:
            connection.close()
            if attempt.certificate.passes:
                raise
            return ALERT  # the alert was lost because the connection was reset right after it
        if any(name == "Upgrade" for name, _ in attempt.credential.headers):
            connection.close()
        if response.status == 503 and any(name == "Upgrade" for name, _ in attempt.credential.headers):
            return Outcome(200)  # kube-apiserver let it pass, but cannot forward an upgrade that is then not made
        named = NAMED.search(body.replace('\\"', '"'))
        return Outcome(response.status, named[1] if named and response.status == 403 else "")

    def _connection(self, certificate: Certificate) -> http.client.HTTPSConnection:
        if certificate.label not in self._connections:
            context = ssl.create_default_context(cafile=self._authority)
            if certificate.file is not None:
                context.load_cert_chain(certificate.file)
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=context, timeout=30)
            self._connections[certificate.label] = connection
        return self._connections[certificate.label]


def describe(attempt: Attempt) -> str:
    """The attempt in one line."""
    return f"{attempt.certificate.label} / {attempt.credential.label} / {attempt.headers}"


@pytest.fixture
def attempts(api: Client, control_plane: ControlPlane, tmp_path: Path) -> Iterator[list[Attempt]]:
    """The attempts, while an account has a token and a group may read."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": READERS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": READERS}],
    }
    api.post(ACCOUNTS, account)
    api.post(BINDINGS, binding)
    try:
        rng = random.Random(SEED)  # noqa: S311 # reproducible, not secret
        certificates = Forger(tmp_path, control_plane).certificates()
        offered = credentials(tokens(control_plane, api))
        yield [make_attempt(rng, certificates, offered) for _ in range(ATTEMPTS)]
    finally:
        api.delete(f"{BINDINGS}/{READERS}")
        api.delete(f"{ACCOUNTS}/{ACCOUNT}")


def test_spoofing(control_plane: ControlPlane, catalog: CatalogServer, attempts: list[Attempt]) -> None:
    """Each caller is who the rules say, and nobody more; kube-apiserver, asked the same, takes him for the same."""
    with (
        contextlib.closing(Door(catalog.port, catalog.authority)) as ours,
        contextlib.closing(Door(control_plane.port, control_plane.authority.certificate)) as judge,
    ):
        allowed = next(each for each in attempts if expected(each) == Outcome(200))
        wait_for(lambda: ours.knock(allowed) == judge.knock(allowed) == Outcome(200), "the group's right to be known")
        wrong, seen = list[str](), Counter[str]()
        for attempt in attempts:
            want, found = expected(attempt), ours.knock(attempt)
            seen[str(found.code)] += 1
            if found != want and not (found == ALERT and not attempt.certificate.passes):
                wrong.append(f"{describe(attempt)}: {found}, not {want}")
            is_ours_alone = attempt.impersonates or is_foreign_page(attempt)
            if not is_ours_alone and (ruled := judge.knock(attempt)) != want:
                wrong.append(f"{describe(attempt)}: kube-apiserver said {ruled}, not {want}")
    assert "\n".join(wrong) == ""
    assert seen.keys() >= {"0", "200", "401", "403"}
    assert sum(seen.values()) == ATTEMPTS


def test_attempts_cover_the_table(attempts: list[Attempt]) -> None:
    """Every certificate and every token comes up, and so does every way to claim the masters' rights in vain."""
    assert {each.certificate.label for each in attempts} >= {"none", "the front proxy", "a client", "self-signed"}
    assert len({each.certificate.label for each in attempts}) == 20
    assert len({each.credential.label for each in attempts}) == 29
    in_vain = [
        each
        for each in attempts
        if expected(each).code != 200
        and (MASTERS in each.certificate.groups or MASTERS in dict(each.headers).values() or each.impersonates)
    ]
    assert len(in_vain) > 300
