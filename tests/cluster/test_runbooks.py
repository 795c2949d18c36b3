"""The runbooks: each command, in a cluster in which what the alerts tell of has happened, shows what to look for."""

import dataclasses
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.cluster.catalog import API, API_SERVICE, MANIFESTS, NAMESPACE, CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.documents import DOCS, Command, Shell, commands
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, create_node, create_pod, gpu_class, node, pod, wait_until_refused

DEVICE: Final = "example.com/runbook"
CLASS, LATER, NODE = "l40s", "second-l40s", "gpu-sick"
OURS: Final = "gpuclasses.catalog.cozystack.io"
CONFLICT: Final = "GPUResourceNameConflict"
REPLICA: Final = "gpuclass-catalog-0"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:gpuclass-catalog"
SHOWN: Final = {
    f"kubectl get {OURS} CLASS --subresource=catalog": (f"{NODE} 0 2 1 4 true UnhealthyDevices,Overcommitted",),
    f"kubectl get --raw {API}/gpuclasses/CLASS/catalog": ('"pending":1', "Overcommitted"),
    "kubectl get pods -A --field-selector=status.phase=Pending": ("default waits",),
    f"kubectl get {OURS} -o wide": (DEVICE, "false ResourceNameConflict"),
    f'kubectl get {OURS} CLASS -o jsonpath=\'{{.status.message}}{{"\\n"}}{{.status.sharesWith}}{{"\\n"}}\'': (CLASS,),
    "kubectl get gpuclasses.cozystack.io -o custom-columns="
    "NAME:.metadata.name,SPEC:.spec.source.devicePlugin.resourceName,OWNED:.status.ownedResourceName": (
        f"{CLASS} {DEVICE} {DEVICE}",
        f"{LATER} {DEVICE} <none>",
    ),
    "kubectl describe node NODE": (f"{DEVICE}: 4", f"{DEVICE}: 1", "default holder"),
    'kubectl get node NODE -o jsonpath=\'{.status.capacity}{"\\n"}{.status.allocatable}{"\\n"}\'': (
        f'"{DEVICE}":"4"',
        f'"{DEVICE}":"1"',
    ),
    "kubectl get pods -A --field-selector=spec.nodeName=NODE": ("default holder",),
    f"kubectl get apiservice {API_SERVICE}": (f"{NAMESPACE}/gpuclass-catalog True",),
    f"kubectl -n {NAMESPACE} get pods -o wide": (f"{REPLICA} 0/1 Pending",),
    f"kubectl -n {NAMESPACE} logs -l app.kubernetes.io/name=gpuclass-catalog --tail=50": (REPLICA,),
    f"kubectl -n {NAMESPACE} get events --sort-by=.lastTimestamp": (f"FailedScheduling pod/{REPLICA}",),
    f"kubectl get --raw {API}": ('"groupVersion":"catalog.cozystack.io/v1alpha1"',),
    f"kubectl get --raw '{API}/gpuclasses?limit=1'": ('"kind":"GPUClassList"', CLASS),
    f"kubectl get --raw '{API}/gpuoffers?limit=1'": ('"kind":"GPUOfferList"',),
    f"kubectl auth can-i list nodes --as={ACCOUNT}": ("yes",),
    f"kubectl auth can-i watch pods -A --as={ACCOUNT}": ("yes",),
    f"kubectl auth can-i watch resourcequotas -A --as={ACCOUNT}": ("yes",),
    "kubectl get crd gpuclasses.cozystack.io": ("gpuclasses.cozystack.io Cluster",),
}
"""What each command shows here, however many spaces stand between the words."""


@pytest.fixture
def incident(api: Client, catalog: CatalogServer) -> None:
    """Two classes of one resource name, a node with sick devices that pods hold, and a pod for which nothing is free.

    A replica of the server, made of the Deployment's template, finds no node either: there is no kubelet to run it.
    """
    catalog.require_running()
    api.post(STORED, gpu_class(CLASS, DEVICE))
    api.patch(f"{STORED}/{CLASS}/status", {"status": {"ownedResourceName": DEVICE}})
    api.post(STORED, gpu_class(LATER, DEVICE))
    create_node(api, node(NODE, capacity={DEVICE: 4}, allocatable={DEVICE: 1}))
    create_pod(api, pod("holder", node=NODE, requests={DEVICE: 2}))
    waits = create_pod(api, pod("waits", requests={DEVICE: 1}))
    template = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())["spec"]["template"]
    replica: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": REPLICA, "namespace": NAMESPACE},
        "spec": {**template["spec"], "nodeSelector": {"no": "such"}},
    }
    for each in (waits, create_pod(api, replica)):
        wait_until_refused(api, each)


@pytest.mark.usefixtures("incident")
def test_runbooks(api: Client, control_plane: ControlPlane) -> None:
    """Every command is known here, can be run as it is written, and shows what its runbook says to look at."""
    shell = Shell(DOCS, (control_plane.binaries.kubectl.parent,), {"KUBECONFIG": str(control_plane.kubeconfig)})
    page = f"{API}/gpuclasses"
    wait_for(lambda: api.get(f"{page}/{CLASS}/catalog")["capacity"]["pending"] == 1, "the catalog to know of it")
    wait_for(lambda: api.get(f"{page}/{LATER}")["status"]["reason"] == "ResourceNameConflict", "the conflict")
    missed = dict(SHOWN)
    for command in _lines():
        assert command.script in SHOWN, f"{command.place}: say in SHOWN what this shows"
        missed.pop(command.script, None)
        name = LATER if command.heading == CONFLICT else CLASS
        filled = dataclasses.replace(command, script=command.script.replace("CLASS", name).replace("NODE", NODE))
        printed = " ".join(_said(shell, filled).split())
        for each in SHOWN[command.script]:
            assert each in printed, (filled, printed)
    assert not missed, "no runbook has these any more"


def _lines() -> Iterator[Command]:
    """The commands of the runbooks one by one: in each block a line is a command."""
    for block in commands(DOCS / "runbooks.md"):
        for line in block.script.splitlines():
            yield dataclasses.replace(block, script=line)


def _said(shell: Shell, command: Command) -> str:
    """What a command prints; of one that asks kubelets for logs, of which there are none here, whose it asks for."""
    said = shell.run(command)
    if " logs -l " not in command.script:
        return said
    chosen = command.script.replace(" logs ", " get pods ").replace(" --tail=50", "")
    return shell.run(dataclasses.replace(command, script=chosen))
