"""`make cluster`: a control plane with the catalog and the example objects, until Ctrl-C.

The catalog is installed by the README's commands, and can be taken away and installed again by them: kubelet and
cert-manager have stand-ins.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tests.cluster.binaries import UnavailableError, find_binaries
from tests.cluster.catalog import API, MANIFESTS, CatalogServer, read_documents
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import ProcessDiedError
from tests.cluster.standins import Workload, add_foreign_kinds
from tests.cluster.workload import NAMESPACES, create_node, create_pod, ensure_namespace

EXAMPLES = MANIFESTS / "examples"
SNAPSHOT = EXAMPLES / "snapshot.yaml"
GPU_CLASSES = "/apis/cozystack.io/v1alpha1/gpuclasses"
STORED_METADATA = ("name", "namespace", "labels", "annotations")
PAUSE_SECONDS = 0.5
CONTROLLERS = ("namespace-controller", "clusterrole-aggregation-controller")
"""Those that installing and uninstalling need: the rest would be busy with Pods that nobody runs."""


def main() -> int:
    """Start everything, say what to try, and wait for a signal to stop everything."""
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--catalog", choices=("yes", "no"), default="yes", help="whether it is installed at the start")
    is_installed = parser.parse_args().catalog == "yes"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    try:
        _run(is_installed=is_installed)
    except (UnavailableError, ProcessDiedError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("Stopped.")
    return 0


def _run(*, is_installed: bool) -> None:
    binaries = find_binaries(_say)
    with tempfile.TemporaryDirectory(prefix="gpuclass-catalog-") as directory:
        _say("Starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager.")
        with (
            ControlPlane(binaries, Path(directory), controllers=CONTROLLERS) as control_plane,
            contextlib.ExitStack() as at_the_end,
        ):
            catalog = CatalogServer(control_plane)
            at_the_end.callback(catalog.stop)
            add_foreign_kinds(control_plane.client)
            workload = Workload(catalog, control_plane.client)
            _apply(control_plane, "crd")
            control_plane.kubectl("wait", "--for=condition=Established", "crd/gpuclasses.cozystack.io", "--timeout=30s")
            nodes, classes = add_examples(control_plane.client)
            if is_installed:
                _say("Installing the catalog.")
                _apply(control_plane, "overlays/default")
                workload.step()
                catalog.wait_until_available()
            _say(
                _what_to_try(control_plane, catalog, nodes, classes)
                if is_installed
                else _what_to_install(control_plane)
            )
            while True:
                control_plane.require_running()
                workload.step()
                time.sleep(PAUSE_SECONDS)


def _apply(control_plane: ControlPlane, name: str) -> None:
    control_plane.kubectl("apply", "-k", str(MANIFESTS / name))


def add_examples(client: Client) -> tuple[list[str], list[str]]:
    """Create the example Nodes, Pods, GPUClasses and tenants; return the names of the Nodes and of the classes."""
    snapshot = [_without_server_fields(each) for each in read_documents(SNAPSHOT.read_text())]
    nodes = [each for each in snapshot if each["kind"] == "Node"]
    classes = [each for each in _example_documents() if each.get("kind") == "GPUClass"]
    for each in nodes:
        create_node(client, each)
    for each in snapshot:
        if each["kind"] == "Namespace":
            ensure_namespace(client, each["metadata"]["name"], each["metadata"]["labels"])
    # What is bound comes first, or the scheduler gives its devices to what waits for some.
    for each in sorted(snapshot, key=lambda each: "nodeName" not in each.get("spec", {})):
        if each["kind"] == "Pod":
            create_pod(client, each)
        elif each["kind"] == "ResourceQuota":
            path = f"{NAMESPACES}/{each['metadata']['namespace']}/resourcequotas"
            client.post(path, each)
            client.patch(f"{path}/{each['metadata']['name']}/status", {"status": each["status"]})
    for each in classes:
        client.post(GPU_CLASSES, each)
    return [each["metadata"]["name"] for each in nodes], [each["metadata"]["name"] for each in classes]


def _example_documents() -> list[Json]:
    paths = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if path != SNAPSHOT]
    return [document for path in paths for document in read_documents(path.read_text())]


def _without_server_fields(document: Json) -> Json:
    """The object as it can be created: without what another cluster's server wrote."""
    metadata = {key: value for key, value in document["metadata"].items() if key in STORED_METADATA}
    return {**document, "metadata": metadata}


def _what_to_try(control_plane: ControlPlane, catalog: CatalogServer, nodes: list[str], classes: list[str]) -> str:
    return f"""
The catalog is Available. Its log: {catalog.log}
{_how_to_reach(control_plane)}
  kubectl get gpuclasses.catalog.cozystack.io
  kubectl get gpuoffers -A
  kubectl get --raw {API}/gpuclasses/{classes[0]}/catalog
  kubectl cordon {nodes[0]} && kubectl get gpuclasses.catalog.cozystack.io
"""


def _what_to_install(control_plane: ControlPlane) -> str:
    return f"""
The cluster is up, without the catalog: install it as the README says.
{_how_to_reach(control_plane)}"""


def _how_to_reach(control_plane: ControlPlane) -> str:
    return f"""
No kubelet and no cert-manager run here. In their place the Deployment is one process of this checkout, to which the
Service is led, with a certificate made here. The README's section Install works as it stands, uninstalling included.
Ctrl-C stops everything.

  export KUBECONFIG={control_plane.kubeconfig}
  export PATH={control_plane.binaries.kubectl.parent}:$PATH
"""


def _interrupt_once(_number: int, _frame: FrameType | None) -> None:
    """Begin to stop; what comes during the stop is not heard, so that it runs to its end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _do_nothing)
    raise KeyboardInterrupt


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Let a signal pass; SIG_IGN would complain about one that had come already."""


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
