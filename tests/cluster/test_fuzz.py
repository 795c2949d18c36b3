"""Fuzzing of the server as it is on a cluster: TLS, authentication, authorization, and the real kube-apiserver."""

import itertools
import ssl
from collections.abc import Iterator

import pytest

from tests.cluster.catalog import API, CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.pki import KeyPair
from tests.cluster.test_catalog import BINDINGS
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, gpu_class
from tests.fuzz import Target, run
from tests.fuzz.requests import HEADERS, TRICKS, request
from tests.fuzz.running import exchange

SECONDS = 12
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
RBAC = "rbac.authorization.k8s.io"
MAY = f"{API}/gpuclasses/may"
SECRET = "NotForEverybody"  # a vendor, in every answer that the user may not have
MARKS = (SECRET.encode(), b"nodesWithoutResource", b'"GPUClassList"', b'"ADDED"')


def target(catalog: CatalogServer, certificate: KeyPair | None) -> Target:
    """The server, as the holder of a certificate reaches it."""
    tls = ssl.create_default_context(cafile=catalog.authority)
    if certificate is not None:
        tls.load_cert_chain(certificate.certificate, certificate.key)
    return Target(catalog.port, catalog.pid, tls)


@pytest.fixture
def narrow(api: Client, control_plane: ControlPlane, catalog: CatalogServer) -> Iterator[Target]:
    """The server as a user reaches it who may get one class of two, and nothing else of ours."""
    catalog.require_running()
    rule = {
        "apiGroups": ["catalog.cozystack.io"],
        "resources": ["gpuclasses"],
        "resourceNames": ["may"],
        "verbs": ["get"],
    }
    metadata = {"name": "test-narrow"}
    api.post(ROLES, {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]})
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "test-narrow"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "narrow"}],
    }
    api.post(BINDINGS, binding)
    api.post(STORED, gpu_class("may"))
    api.post(STORED, gpu_class("other", "example.com/other", vendor=SECRET))
    try:
        yield target(catalog, control_plane.authority.client("narrow"))
    finally:
        api.delete(f"{BINDINGS}/test-narrow")
        api.delete(f"{ROLES}/test-narrow")


def test_authorized_is_answered(narrow: Target) -> None:
    """The path that is authorized is the path that is answered, however it is written."""
    wait_for(lambda: b'"name":"may"' in exchange(narrow, request(MAY)), "the right to be known")
    pages = 0
    goals = (f"{API}/gpuclasses/other", f"{API}/gpuclasses", f"{MAY}/catalog", f"{API}/gpuclasses?watch=1", MAY)
    tricks = [(trick,) for trick in TRICKS] + list(itertools.combinations(TRICKS[:24], 2))[::9]
    for goal, chosen in itertools.product(goals, tricks):
        written = goal
        for trick in chosen:
            written = trick(written)
        answer = exchange(narrow, request(written))
        pages += answer.startswith(b"HTTP/1.1 200")
        assert not any(mark in answer for mark in MARKS), written
    for smuggled in (f"/livez/../..{goals[0]}", f"{MAY}/../other", f"{MAY}/..%2fother", f"{MAY}%2f..%2fother"):
        assert not any(mark in exchange(narrow, request(smuggled)) for mark in MARKS), smuggled
    for header in HEADERS:
        assert not any(mark in exchange(narrow, request(goals[0], header)) for mark in MARKS), header
    assert pages > 5


def test_hosters_view(api: Client, control_plane: ControlPlane, catalog: CatalogServer) -> None:
    """An administrator's requests, however odd, make the server neither fail nor end."""
    api.post(STORED, gpu_class("l40s-24c"))
    certificate = control_plane.authority.client(ADMIN, ADMIN_GROUPS)
    attacked = target(catalog, certificate)
    wait_for(lambda: b"l40s-24c" in exchange(attacked, request(f"{API}/gpuclasses")), "the class to be listed")
    result = run(SECONDS, 3, attacked)
    assert result.faults == []
    assert {200, 400, 404, 406} <= result.codes.keys()
    catalog.require_running()
