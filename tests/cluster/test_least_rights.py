"""The rights of the shipped manifests: enough to serve, none too many, none to read Secrets or to write."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.catalog import API, NAME, SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS, CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_catalog import BINDINGS
from tests.cluster.test_optional_kinds import CRD, CRDS, KUBEVIRTS
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, gpu_class

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
READER_BINDING = (
    f"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/{NAME}:"
    "extension-apiserver-authentication-reader"
)
DELEGATOR_BINDING = f"{BINDINGS}/{NAME}:system:auth-delegator"
RESOURCES = {
    "nodes": "",
    "pods": "",
    "gpuclasses": "cozystack.io",
    "deviceclasses": "resource.k8s.io",
    "kubevirts": "kubevirt.io",
    "namespaces": "",
    "resourcequotas": "",
}
NEEDED = ("nodes", "pods", "gpuclasses")
VERBS = ("list", "watch")
WRITING = ("create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate")


def is_allowed(api: Client, verb: str, resource: str, group: str = "", name: str = "") -> bool:
    """Whether the server's account may, as kube-apiserver itself says."""
    attributes = {"verb": verb, "resource": resource, "group": group, "name": name}
    spec = {"user": SERVICE_ACCOUNT, "groups": list(SERVICE_ACCOUNT_GROUPS), "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    allowed: bool = api.post(REVIEWS, review)["status"]["allowed"]
    return allowed


def without(rules: list[Json], resource: str, verb: str) -> list[Json]:
    """The rules with one right taken away."""
    split = [{**rule, "resources": [each]} for rule in rules for each in rule["resources"]]
    return [
        {**rule, "verbs": [each for each in rule["verbs"] if each != verb]} if rule["resources"] == [resource] else rule
        for rule in split
    ]


@contextmanager
def lacking(api: Client, resource: str, verb: str) -> Iterator[None]:
    """The role lacks one right while the block lasts."""
    role = api.get(ROLE)
    api.patch(ROLE, {"rules": without(role["rules"], resource, verb)})
    try:
        wait_for(lambda: not is_allowed(api, verb, resource, RESOURCES[resource]), f"no right to {verb} {resource}")
        yield
    finally:
        api.patch(ROLE, {"rules": role["rules"]})
        wait_for(lambda: is_allowed(api, verb, resource, RESOURCES[resource]), f"the right to {verb} {resource}")


@contextmanager
def replica(control_plane: ControlPlane) -> Iterator[CatalogServer]:
    """Another replica, just started."""
    server = CatalogServer(control_plane, arguments=["--kubevirt"])
    try:
        server.start(until="/livez")
        yield server
    finally:
        server.stop()


@pytest.mark.usefixtures("catalog")
def test_rights_are_reading_of_what_is_watched(api: Client) -> None:
    """The account may list and watch what is followed; it may neither read Secrets, nor write, nor act as others."""
    for resource, group in RESOURCES.items():
        for verb in VERBS:
            assert is_allowed(api, verb, resource, group)
        for verb in ("get", *WRITING):
            assert not is_allowed(api, verb, resource, group), f"{verb} {resource}"
    for resource, group in (
        ("secrets", ""),
        ("configmaps", ""),
        ("serviceaccounts", ""),
        ("pods/exec", ""),
        ("nodes/proxy", ""),
        ("users", ""),
        ("groups", ""),
        ("clusterroles", "rbac.authorization.k8s.io"),
        ("gpuclasses/status", "cozystack.io"),
        ("gpuclasses", "catalog.cozystack.io"),
    ):
        for verb in ("get", *VERBS, *WRITING):
            assert not is_allowed(api, verb, resource, group), f"{verb} {resource}"
    assert is_allowed(api, "create", "subjectaccessreviews", "authorization.k8s.io")
    assert is_allowed(api, "create", "tokenreviews", "authentication.k8s.io")


def test_rights_are_enough(api: Client, control_plane: ControlPlane, catalog: CatalogServer) -> None:
    """With exactly these rights a server syncs and serves, and nothing is refused to it."""
    catalog.require_running()
    api.post(STORED, gpu_class("l40s"))
    with replica(control_plane) as server, server.client() as client:
        wait_for(lambda: client.request("GET", "/readyz").code == 200, "the replica to be in sync")
        wait_for(lambda: client.request("GET", f"{API}/gpuclasses/l40s").code == 200, "the class")
        log = server.log.read_text()
    assert "forbidden" not in log
    assert " ERROR " not in log


@pytest.fixture(scope="module")
def kubevirt_kind(control_plane: ControlPlane) -> Iterator[None]:
    """The kind KubeVirt, which a cluster may lack: what is not served cannot be watched, with or without the right."""
    api = control_plane.client
    api.post(CRDS, CRD)
    try:
        wait_for(lambda: api.request("GET", KUBEVIRTS).code == 200, "the kind to be served")
        yield
    finally:
        api.delete(f"{CRDS}/{CRD['metadata']['name']}")  # type: ignore[index]


@pytest.mark.usefixtures("catalog", "kubevirt_kind")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("resource", RESOURCES)
def test_no_right_too_many(api: Client, control_plane: ControlPlane, resource: str, verb: str) -> None:
    """Without any single right the server misses it and says which; without a needed list it answers no data."""
    complaint = f'cannot {verb} resource "{resource}"'
    with lacking(api, resource, verb), replica(control_plane) as server, server.client() as client:
        wait_for(lambda: complaint in server.log.read_text(), complaint)
        if verb == "list" and resource in NEEDED:
            # Before it says so it may say that it does not know yet which callers to trust.
            wait_for(lambda: resource in client.request("GET", f"{API}/gpuclasses").body.decode(), "the reason")
            answer = client.request("GET", f"{API}/gpuclasses")
            assert (answer.code, answer.json()["reason"]) == (503, "ServiceUnavailable")
            assert resource in answer.json()["message"]
            assert client.request("GET", "/readyz/informer-sync").code == 500
            assert client.request("GET", API).code == 200


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("path", [DELEGATOR_BINDING, READER_BINDING], ids=["reviews", "the configuration"])
def test_no_binding_too_many(api: Client, control_plane: ControlPlane, path: str) -> None:
    """Without the right to ask for reviews no user is let in; without the front proxy's configuration nobody is."""
    binding = api.get(path)
    api.delete(path)
    try:
        if path == DELEGATOR_BINDING:
            resource, group = "subjectaccessreviews", "authorization.k8s.io"
            wait_for(lambda: not is_allowed(api, "create", resource, group), "the right to go")
        with replica(control_plane) as server, server.client("stranger", ()) as client:
            expected = 500 if path == DELEGATOR_BINDING else 503
            if path == READER_BINDING:
                wait_for(lambda: "forbidden" in server.log.read_text(), "the configuration to be refused")
            wait_for(lambda: client.request("GET", f"{API}/gpuclasses").code == expected, f"{expected} to every caller")
    finally:
        metadata = {"name": binding["metadata"]["name"]}
        api.post(path.rpartition("/")[0], {**binding, "metadata": metadata})
        wait_for(lambda: is_allowed(api, "create", "subjectaccessreviews", "authorization.k8s.io"), "the right")
