"""A cluster without the CRD and the right to list Nodes: no data, but the APIService stays, and so all else works."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import API, API_SERVICE, NAME, CatalogServer
from tests.cluster.client import Client, NotFoundError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import DEVICE, STORED, create_node, gpu_class, node

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuclasses.cozystack.io"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
AVAILABILITY = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
NAMESPACES = "/api/v1/namespaces"
NORMAL_SECONDS = 20
"""For a namespace to end; without any aggregated server it takes 5 to 10."""
GRACE_SECONDS = 60
"""For how long a server that cannot sync calls itself not ready to serve; then it does, see design."""
STALE_SECONDS = 120
RECOVERY_SECONDS = 90
"""The pauses between attempts have doubled to half a minute by then."""


@pytest.fixture
def cluster(binaries: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, with the controller that ends namespaces."""
    controllers = ("namespace-controller",)
    with ControlPlane(binaries, tmp_path / "cluster", controllers=controllers, scheduler=False) as running:
        yield running


def is_available(api: Client) -> bool:
    """Whether the aggregator calls the APIService available."""
    conditions = api.get(AVAILABILITY)["status"]["conditions"]
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def end_namespace(api: Client, name: str) -> None:
    """A namespace with something in it is gone in the normal time."""
    api.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    inside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inside"}}
    api.post(f"{NAMESPACES}/{name}/configmaps", inside)
    api.delete(f"{NAMESPACES}/{name}")

    def is_gone() -> bool:
        try:
            api.get(f"{NAMESPACES}/{name}")
        except NotFoundError:
            return True
        return False

    wait_for(is_gone, f"the namespace {name} to end", timeout_seconds=NORMAL_SECONDS)


def free(api: Client) -> int | None:
    """What the catalog says of the class, through kube-apiserver."""
    answer = api.request("GET", f"{API}/gpuclasses/l40s")
    figure: int | None = answer.json()["status"]["free"] if answer.code == 200 else None
    return figure


@contextmanager
def started_broken(cluster: ControlPlane) -> Iterator[tuple[CatalogServer, float]]:
    """Another replica, started now, and when."""
    replica = CatalogServer(cluster)
    began = time.monotonic()
    try:
        replica.start(until="/livez")
        yield replica, began
    finally:
        replica.stop()


def require_unsynced(direct: Client) -> None:
    """The server answers no data, and says which lists it lacks and why."""
    reasons = ("not listed yet", "gpuclasses (", "nodes (403")

    def is_complete() -> bool:
        message = direct.request("GET", f"{API}/gpuclasses").body.decode()
        return all(each in message for each in reasons)

    wait_for(is_complete, f"{reasons} to be told")
    refused = direct.request("GET", f"{API}/gpuclasses")
    assert (refused.code, refused.json()["reason"]) == (503, "ServiceUnavailable")
    assert direct.request("GET", "/readyz").code == 500
    assert "nodes" in direct.request("GET", "/readyz/informer-sync").body.decode()


@pytest.mark.timeout(420)
def test_broken_cluster(cluster: ControlPlane) -> None:
    """Data is 503 with the reason, readiness says why, and the APIService is available all the while."""
    api = cluster.client
    with CatalogServer(cluster, arguments=[f"--max-staleness={STALE_SECONDS}s"]) as catalog:
        create_node(api, node("n1", capacity={DEVICE: 4}))
        api.post(STORED, gpu_class("l40s"))
        wait_for(lambda: free(api) == 4, "the figures")
        api.delete(CRD)
        api.delete(ROLE)
        end_namespace(api, "just-broken")

        with started_broken(cluster) as (replica, began), replica.client() as direct:
            require_unsynced(direct)
            assert direct.request("GET", "/readyz/serving").code == 500
            wait_for(
                lambda: direct.request("GET", "/readyz/serving").code == 200,
                "the server to call itself ready to serve",
                timeout_seconds=2 * GRACE_SECONDS,
                poll_seconds=0.5,
            )
            assert time.monotonic() - began > GRACE_SECONDS * 0.9
            require_unsynced(direct)

        # What was known is told until it may be too old.
        wait_for(
            lambda: api.request("GET", f"{API}/gpuclasses").code == 503,
            "the data to be refused",
            timeout_seconds=2 * STALE_SECONDS,
            poll_seconds=1,
        )
        assert "out of date" in api.request("GET", f"{API}/gpuclasses").json()["message"]
        with catalog.client() as direct:
            assert direct.request("GET", "/readyz").code == 500
            assert direct.request("GET", "/readyz/staleness").code == 500
            assert direct.request("GET", "/readyz/serving").code == 200
        assert is_available(api)
        end_namespace(api, "while-stale")

        catalog.stop()
        catalog.start(until="/livez")
        catalog.wait_until_available()
        with catalog.client() as direct:
            require_unsynced(direct)
        assert is_available(api)
        end_namespace(api, "while-unsynced")

        catalog.install()
        api.post(STORED, gpu_class("l40s"))
        wait_for(lambda: free(api) == 4, "the figures to return", timeout_seconds=RECOVERY_SECONDS)
        assert is_available(api)
