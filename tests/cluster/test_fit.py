"""`gpuclasses/fit` on a real cluster: followed live, through kube-apiserver, with a right of its own."""

import pytest

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_catalog import BASE, KIND, read
from tests.cluster.waiting import wait_for
from tests.cluster.workload import DEVICE, STORED, create_node, create_pod, gpu_class, node, pod, pod_path, set_phase

FIT = f"{BASE}/gpuclasses/fitted/fit"
ASKED = "devices=1&cpu=2&memory=4Gi"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def fitted(api: Client, catalog: CatalogServer, control_plane: ControlPlane) -> None:
    """A class with a node of 4 devices, 8 cpus and 64Gi, so that 4 pods of 2 cpus fit."""
    catalog.require_running()
    small = node("f1", capacity={DEVICE: 4})
    small["status"]["allocatable"] |= {"cpu": "8", "memory": "64Gi", "pods": "5"}
    create_node(api, small)
    api.post(STORED, gpu_class("fitted", maxCount=3))
    wait_for(lambda: control_plane.kubectl("get", KIND, "fitted", check=False).returncode == 0, "the class")
    wait_until_fits(control_plane, 4)


def wait_until_fits(control_plane: ControlPlane, fits: int) -> Json:
    """Ask through kube-apiserver until so many fit, and return the answer."""
    return wait_for(
        lambda: page if (page := read(control_plane, f"{FIT}?{ASKED}"))["fits"] == fits else None, f"{fits} to fit"
    )


@pytest.mark.usefixtures("fitted")
def test_fit_follows_the_cluster(api: Client, control_plane: ControlPlane) -> None:
    """Pods without devices take cpu, memory and slots until they end or go, whatever they are for."""
    first = create_pod(api, pod("web", node="f1", requests={"cpu": "3500m", "memory": "1Gi"}))
    assert wait_until_fits(control_plane, 2)["nodes"] == [{"name": "f1", "count": 2}]
    api.patch(pod_path(first), {"metadata": {"labels": {"a": "b"}}})
    second = create_pod(api, pod("cache", node="f1", requests={"memory": "56Gi"}))
    wait_until_fits(control_plane, 1)
    set_phase(api, second, "Succeeded")
    wait_until_fits(control_plane, 2)
    for number in range(3):
        create_pod(api, pod(f"idle{number}", node="f1"))
    wait_until_fits(control_plane, 1)
    api.delete(pod_path(first))
    wait_until_fits(control_plane, 2)


@pytest.mark.usefixtures("fitted")
def test_bad_question_through_kube_apiserver(control_plane: ControlPlane) -> None:
    """Kubectl tells a person which parameter is wrong; without parameters it is refused too."""
    for arguments in (("--raw", f"{FIT}?{ASKED}&memory=1Gi"), ("--raw", f"{FIT}?devices=1&cpu=2&memory=lots")):
        failed = control_plane.kubectl("get", *arguments, check=False)
        assert failed.returncode != 0
        assert "memory: must be" in failed.stderr
    failed = control_plane.kubectl("get", KIND, "fitted", "--subresource=fit", check=False)
    assert "devices: is required" in failed.stderr


@pytest.mark.usefixtures("fitted")
def test_fit_is_a_right_of_its_own(api: Client, catalog: CatalogServer) -> None:
    """Who may read classes and their pages may not ask what fits; the role that is shipped may."""
    everything_else = ["gpuclasses", "gpuclasses/catalog"]
    rules = [{"apiGroups": ["catalog.cozystack.io"], "resources": everything_else, "verbs": ["get", "list"]}]
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "not-fit"}, "rules": rules})
    for user, role in (("looker", "not-fit"), ("hoster", "gpuclass-catalog-viewer")):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        binding = {"metadata": {"name": f"test-{user}"}, "roleRef": reference, "subjects": [subject]}
        api.post(f"{RBAC}/clusterrolebindings", binding)
    try:
        with catalog.client("looker", ()) as looker, catalog.client("hoster", ()) as hoster:
            wait_for(lambda: looker.request("GET", f"{BASE}/gpuclasses/fitted/catalog").code == 200, "the right")
            wait_for(lambda: hoster.request("GET", f"{FIT}?{ASKED}").code == 200, "the right to fit")
            refused = looker.request("GET", f"{FIT}?{ASKED}")
            assert refused.code == 403
            assert 'cannot get resource "gpuclasses/fit"' in refused.json()["message"]
    finally:
        for user in ("looker", "hoster"):
            api.delete(f"{RBAC}/clusterrolebindings/test-{user}")
        api.delete(f"{RBAC}/clusterroles/not-fit")
