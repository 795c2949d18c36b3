"""`make cluster`: a control plane with the catalog and the example objects, until Ctrl-C."""

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
from tests.cluster.workload import NAMESPACES, create_node, create_pod, ensure_namespace

EXAMPLES = MANIFESTS / "examples"
SNAPSHOT = EXAMPLES / "snapshot.yaml"
GPU_CLASSES = "/apis/cozystack.io/v1alpha1/gpuclasses"
STORED_METADATA = ("name", "namespace", "labels", "annotations")
PAUSE_SECONDS = 1


def main() -> int:
    """Start everything, say what to try, and wait for a signal to stop everything."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    try:
        _run()
    except UnavailableError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("Stopped.")
    return 0


def _run() -> None:
    binaries = find_binaries(_say)
    with tempfile.TemporaryDirectory(prefix="gpuclass-catalog-") as directory:
        _say("Starting etcd, kube-apiserver and kube-scheduler.")
        with ControlPlane(binaries, Path(directory)) as control_plane:
            _say("Installing the catalog and starting it.")
            with CatalogServer(control_plane) as catalog:
                nodes, classes = add_examples(control_plane.client)
                _say(_what_to_try(control_plane, catalog, nodes, classes))
                while True:
                    control_plane.require_running()
                    catalog.require_running()
                    time.sleep(PAUSE_SECONDS)


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

  export KUBECONFIG={control_plane.kubeconfig}
  export PATH={control_plane.binaries.kubectl.parent}:$PATH

  kubectl get gpuclasses.catalog.cozystack.io
  kubectl get gpuoffers -A
  kubectl get --raw {API}/gpuclasses/{classes[0]}/catalog
  kubectl cordon {nodes[0]} && kubectl get gpuclasses.catalog.cozystack.io

Ctrl-C stops everything."""


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
