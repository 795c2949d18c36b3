"""The test cluster itself: it judges as a real one does."""

import json
import ssl
from http import HTTPStatus

import pytest

from tests.cluster.catalog import (
    API,
    API_SERVICE,
    NAME,
    NAMESPACE,
    CatalogServer,
    Endpoint,
    adapt,
    apply_base,
    composed,
    endpoint_slice,
)
from tests.cluster.client import ApiError, Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.standins import API_SERVICE_PATH, SERVICE_PATH, lead_to
from tests.cluster.waiting import wait_for
from tests.cluster.workload import (
    NODES,
    bind,
    create_node,
    create_pod,
    node,
    pod,
    pod_path,
    set_phase,
    wait_until_placed,
    wait_until_refused,
)

DEVICE = "example.com/gpu"
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def test_scheduler_places_a_pod_where_its_device_is(api: Client) -> None:
    """The real scheduler binds a Pod to the one Node that has the device it asks for."""
    create_node(api, node("plain"))
    create_node(api, node("gpu", capacity={DEVICE: 1}))
    assert wait_until_placed(api, create_pod(api, pod("first", requests={DEVICE: 1}))) == "gpu"


def test_scheduler_refuses_a_pod_when_the_devices_are_taken(api: Client) -> None:
    """A device that a bound Pod holds is not given to another."""
    create_node(api, node("gpu", capacity={DEVICE: 1}))
    create_pod(api, pod("holder", node="gpu", requests={DEVICE: 1}))
    wait_until_refused(api, create_pod(api, pod("late", requests={DEVICE: 1})))


def test_pods_keep_their_own_tolerations(api: Client) -> None:
    """Nothing adds tolerations to a Pod, so the scheduler judges what the test wrote."""
    assert create_pod(api, pod("bare"))["spec"].get("tolerations", []) == []


def test_created_node_is_as_built(api: Client) -> None:
    """A Node arrives with its status and with exactly its own taints."""
    built = node("gpu", capacity={DEVICE: 4}, allocatable={DEVICE: 3}, taints=[TAINT], unschedulable=True)
    created = create_node(api, built)
    assert (created["spec"]["taints"], created["spec"]["unschedulable"]) == ([TAINT], True)
    assert created["status"]["capacity"][DEVICE] == "4"
    assert created["status"]["allocatable"][DEVICE] == "3"


def test_pod_is_bound_through_its_subresource(api: Client) -> None:
    """An unbound Pod can be bound by hand, and then be given a phase."""
    create_node(api, node("full", capacity={DEVICE: 1}, taints=[TAINT]))
    created = create_pod(api, pod("bound", requests={DEVICE: 1}))
    bind(api, created, "full")
    assert set_phase(api, created, "Running")["status"]["phase"] == "Running"
    assert api.get(pod_path(created))["spec"]["nodeName"] == "full"


@pytest.mark.parametrize("turn", ["first", "second"])
def test_cluster_is_left_as_found(api: Client, turn: str) -> None:
    """What one test makes, another does not see: both turns can create the same names."""
    create_node(api, node("same"))
    create_pod(api, pod("same", node="same", namespace="same", labels={"turn": turn}))
    assert [each["metadata"]["name"] for each in api.items(NODES)] == ["same"]


def test_user_without_rights_is_forbidden(control_plane: ControlPlane) -> None:
    """A user whom nothing is granted gets 403 from kube-apiserver, by kubectl as by the client."""
    refused = control_plane.kubectl("get", "nodes", user="nobody-special", groups=["guests"], check=False)
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr
    with control_plane.user_client("nobody-special") as client, pytest.raises(ApiError) as error:
        client.get(NODES)
    assert (error.value.code, error.value.reason) == (HTTPStatus.FORBIDDEN, "Forbidden")


def test_user_has_the_groups_of_the_certificate(control_plane: ControlPlane) -> None:
    """The organizations of a client certificate arrive as groups."""
    answer = control_plane.kubectl("auth", "whoami", "-o", "json", user="alice", groups=["devs", "ops"]).stdout
    info = json.loads(answer)["status"]["userInfo"]
    assert info["username"] == "alice"
    assert {"devs", "ops"} <= set(info["groups"])


def test_certificate_of_another_authority_is_refused(control_plane: ControlPlane) -> None:
    """The front proxy's certificate does not make a user of kube-apiserver."""
    with control_plane.front_proxy_client(control_plane.port, control_plane.authority.certificate) as client:
        with pytest.raises((ApiError, ssl.SSLError)) as error:
            client.get(NODES)
        assert not isinstance(error.value, ApiError) or error.value.code == HTTPStatus.UNAUTHORIZED


def test_base_is_adapted_to_loopback() -> None:
    """The Service leads to our port on localhost, the APIService trusts our authority, and no Pods are made."""
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}}}
    api_service: Json = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE, "annotations": {"cert-manager.io/inject-ca-from": "x/y"}},
        "spec": {
            "insecureSkipTLSVerify": True,
            "service": {"name": "s", "namespace": NAMESPACE},
            "version": "v1alpha1",
        },
    }
    deployment: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    certificate: Json = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "c"}}
    adapted = adapt([service, deployment, certificate, api_service], port=1234, authority=b"PEM")
    namespace, new_service, new_api_service = adapted
    assert namespace["metadata"]["name"] == NAMESPACE
    assert new_service["spec"] == {
        "type": "ExternalName",
        "externalName": "localhost",
        "ports": [{"name": "https", "port": 1234, "protocol": "TCP"}],
    }
    assert new_api_service["metadata"]["annotations"] == {}
    assert new_api_service["spec"] == {
        "caBundle": "UEVN",
        "service": {"name": "s", "namespace": NAMESPACE, "port": 1234},
        "version": "v1alpha1",
    }


def test_base_is_adapted_to_addresses() -> None:
    """The Service loses its selector, the APIService keeps its port, and an EndpointSlice says who is ready."""
    ports = [{"name": "https", "port": 443}]
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"selector": {"a": "b"}, "ports": ports},
    }
    api_service: Json = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {"service": {"name": NAME, "port": 443}},
    }
    _, new_service, new_api_service = adapt([service, api_service], port=None, authority=b"PEM")
    assert new_service["spec"] == {"ports": ports}
    assert new_api_service["spec"]["service"]["port"] == 443
    made = endpoint_slice(Endpoint("10.77.0.11", 6443), Endpoint("10.77.0.12", 6443, is_ready=False))
    assert made["metadata"]["labels"] == {"kubernetes.io/service-name": NAME}
    assert [each["conditions"]["ready"] for each in made["endpoints"]] == [True, False]
    with pytest.raises(ValueError, match="too many"):
        endpoint_slice(Endpoint("10.77.0.11", 6443), Endpoint("10.77.0.12", 6444))


def test_what_was_installed_is_led_to_loopback(
    catalog: CatalogServer, control_plane: ControlPlane, api: Client
) -> None:
    """Service and APIService as the manifests have them come to lead to the process, as with `make cluster`."""
    (service,) = (each for each in composed(control_plane.binaries.kubectl) if each["kind"] == "Service")
    try:
        api.delete(SERVICE_PATH)
        api.post(SERVICE_PATH.rpartition("/")[0], service)
        api.patch(API_SERVICE_PATH, {"spec": {"service": {"port": 443}}})
        wait_for(lambda: api.request("GET", API).code == HTTPStatus.SERVICE_UNAVAILABLE, "it to be unavailable")
        lead_to(api, catalog)
        catalog.wait_until_available()
        assert api.get(f"{API}/gpuclasses")["kind"] == "GPUClassList"
    finally:
        api.request("DELETE", SERVICE_PATH)
        apply_base(control_plane, catalog.endpoint())
        catalog.wait_until_available()
