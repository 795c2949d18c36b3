"""KubeVirt and DRA on a real cluster: kinds that come, change and go."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_catalog import BASE, fetch, read, served_locally
from tests.cluster.waiting import wait_for
from tests.cluster.workload import DEVICE, STORED, create_node, gpu_class, node

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KUBEVIRTS = "/apis/kubevirt.io/v1/namespaces/default/kubevirts"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kubevirts.kubevirt.io"},
    "spec": {
        "group": "kubevirt.io",
        "scope": "Namespaced",
        "names": {"plural": "kubevirts", "singular": "kubevirt", "kind": "KubeVirt", "listKind": "KubeVirtList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def kubevirt(table: Json) -> Json:
    """A KubeVirt with that table of permitted host devices."""
    spec = {"configuration": {"permittedHostDevices": table}}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": spec}


@pytest.fixture
def local(api: Client, control_plane: ControlPlane, catalog: CatalogServer) -> Iterator[str]:
    """The URL of a local server that heeds KubeVirt, with one class and two nodes, of which one takes VMs."""
    catalog.require_running()
    create_node(api, node("vms", capacity={DEVICE: 2}, labels={"kubevirt.io/schedulable": "true"}))
    create_node(api, node("containers", capacity={DEVICE: 2}, labels={"kubevirt.io/schedulable": "false"}))
    api.post(STORED, gpu_class("l40s"))
    with served_locally(control_plane.kubeconfig, "--kubevirt") as url:
        yield url


def status(url: str) -> Json:
    """The status of the class; empty while there is none to be had."""
    code, text, _ = fetch(f"{url}{BASE}/gpuclasses/l40s")
    found: Json = json.loads(text)["status"] if code == 200 else {}
    return found


def test_kubevirt(api: Client, local: str) -> None:
    """Only nodes that take VMs count; the table decides while the kind exists, and nothing is checked without it."""

    def wait_for_reason(reason: str) -> None:
        wait_for(lambda: status(local).get("reason") == reason, f"{reason}, not {status(local)}", timeout_seconds=60)

    wait_for_reason("Offered")
    assert (status(local)["free"], status(local)["capacity"]) == (2, 2)
    api.post(CRDS, CRD)
    try:
        wait_for(lambda: api.request("GET", KUBEVIRTS).code == 200, "the kind to be served")
        api.post(KUBEVIRTS, kubevirt({}))
        wait_for_reason("NotPermitted")
        assert (status(local)["free"], status(local)["orderable"]) == (2, 0)
        permitting = {"pciHostDevices": [{"resourceName": DEVICE}]}
        api.patch(f"{KUBEVIRTS}/kubevirt", kubevirt(permitting))
        wait_for_reason("Offered")
        api.patch(f"{KUBEVIRTS}/kubevirt", kubevirt({"pciHostDevices": []}))
        wait_for_reason("NotPermitted")
    finally:
        api.delete(f"{CRDS}/kubevirts.kubevirt.io")
    wait_for_reason("Offered")


def test_device_class(api: Client, control_plane: ControlPlane, catalog: CatalogServer) -> None:
    """The page of a class says when a DeviceClass maps its resource name, and stops when it does not."""
    catalog.require_running()
    create_node(api, node("n", capacity={DEVICE: 2}))
    api.post(STORED, gpu_class("l40s"))
    wait_for(
        lambda: any(each["metadata"]["name"] == "l40s" for each in read(control_plane, f"{BASE}/gpuclasses")["items"]),
        "the class to be listed",
    )

    def notes() -> list[str]:
        found: list[str] = read(control_plane, f"{BASE}/gpuclasses/l40s/catalog")["notes"]
        return found

    assert notes() == []
    api.post(
        DEVICE_CLASSES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.example.com"},
            "spec": {"extendedResourceName": DEVICE},
        },
    )
    try:
        wait_for(lambda: any("gpu.example.com" in note for note in notes()), "the note")
        command = [sys.executable, "-m", "apiserver", "catalog", "l40s", "--kubeconfig", str(control_plane.kubeconfig)]
        page = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
        assert "gpu.example.com" in page  # a page that is printed once waits until this kind was asked for, too
    finally:
        api.delete(f"{DEVICE_CLASSES}/gpu.example.com")
    wait_for(lambda: notes() == [], "the note to go")
