"""A class whose memory is stored as a number, which the CRD's int-or-string allows, is served with a string."""

import json

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_catalog import BASE, KIND
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, gpu_class

MEMORY = 24 * 2**30
CLASSES = f"{BASE}/gpuclasses"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def test_memory_as_a_number(api: Client, catalog: CatalogServer, control_plane: ControlPlane) -> None:
    """Get, list, Table, watch, metadata alone and the page all answer, with memory as text; the stored one stays."""
    catalog.require_running()
    api.post(STORED, gpu_class("number", memory=MEMORY))
    assert api.get(f"{STORED}/number")["spec"]["memory"] == MEMORY  # an integer it is, in etcd too
    wait_for(lambda: any(each["metadata"]["name"] == "number" for each in api.items(CLASSES)), "the class to be listed")
    served = api.get(f"{CLASSES}/number")
    assert served["spec"]["memory"] == str(MEMORY)
    assert served["status"]["reason"] == "Offered"
    (listed,) = [each for each in api.items(CLASSES) if each["metadata"]["name"] == "number"]
    assert listed == served
    page = api.get(f"{CLASSES}/number/catalog")
    assert page["offer"]["memory"] == str(MEMORY)
    partial: Json = api.request("GET", f"{CLASSES}/number", headers={"Accept": PARTIAL}).json()
    assert partial["metadata"] == served["metadata"]
    printed = control_plane.kubectl("get", KIND, "number", "-o", "wide").stdout.splitlines()[1].split()
    assert str(MEMORY) in printed
    watched = api.request("GET", f"{CLASSES}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnumber")
    event = json.loads(watched.body.splitlines()[0])
    assert (event["type"], event["object"]["spec"]["memory"]) == ("ADDED", str(MEMORY))
    picked = control_plane.kubectl("get", KIND, "number", "-o", "jsonpath={.spec.memory}").stdout
    assert picked == str(MEMORY)
