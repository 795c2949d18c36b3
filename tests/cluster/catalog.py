"""Our server as a process beside a control plane, installed there from `manifests/`."""

import base64
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.network import LOOPBACK, Host
from tests.cluster.pki import KeyPair
from tests.cluster.processes import Process, free_ports
from tests.cluster.waiting import wait_for

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "cozy-gpuclass-catalog"
NAME = "gpuclass-catalog"
GROUP_VERSION = "catalog.cozystack.io/v1alpha1"
API = f"/apis/{GROUP_VERSION}"
API_SERVICE = "v1alpha1.catalog.cozystack.io"
SERVICE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
SERVICE_ACCOUNT_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
SECURE_PORT = 6443
ENDPOINT_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{NAME}"
KUSTOMIZE_TIMEOUT_SECONDS = 60
PROGRAM = (sys.executable, "-m", "apiserver", "serve")

# What runs Pods: here a process on loopback stands in for them.
LEFT_OUT_KINDS = frozenset({"Deployment", "PodDisruptionBudget"})
LEFT_OUT_GROUPS = ("cert-manager.io/", "monitoring.coreos.com/")
CERT_MANAGER_ANNOTATIONS = "cert-manager.io/"
GROUP_DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the Service leads.

    Attributes:
        address: an IP address.
        port: the same for all endpoints of the Service.
        is_ready: whether it gets requests.
        is_terminating: whether its Pod is being deleted.
    """

    address: str
    port: int
    is_ready: bool = True
    is_terminating: bool = False


class CatalogServer:
    """Our server for as long as a `with` block lasts: installed on the control plane, running, and Available.

    It has the rights of the ServiceAccount that the manifests bind, and no others. A second one that is only started,
    not installed, is a second replica to be reached directly.

    Attributes:
        host: where it listens.
        port: on which port.
        authority: the certificate authority of its serving certificate, as a PEM file.
        log: what it wrote.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        arguments: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
        host: Host = LOOPBACK,
        kubeconfig: Path | None = None,
    ) -> None:
        """Prepare its port and certificates; entering the block installs and starts it.

        Args:
            control_plane: the running cluster to serve.
            host: one of the network that the cluster stands in; with its own namespace it has the usual port.
            arguments: further options for its command line.
            program: the command that the options follow.
            kubeconfig: how it reaches the cluster; by default straight, as the ServiceAccount.
        """
        self._control_plane = control_plane
        self._program, self._arguments = program, arguments
        self._kubeconfig = kubeconfig
        self.host = host
        (self.port,) = free_ports(1) if host.namespace is None else (SECURE_PORT,)
        self._name = f"catalog-{host.address}-{self.port}"
        directory = control_plane.directory / self._name
        directory.mkdir(exist_ok=True)
        authority = control_plane.extension_authority
        self.authority = authority.certificate
        self._authority = authority
        self._serving = self.rotate_certificate()
        self.log = directory / "catalog.log"
        self._process: Process | None = None

    def __enter__(self) -> Self:
        try:
            self.install()
            self.start()
            self.wait_until_available()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def install(self) -> None:
        """Apply the CRD and the base with a Service that leads here; applied again it changes nothing."""
        self._control_plane.kubectl("apply", "-f", "-", stdin=_as_list(manifests(self._control_plane, "crd")))
        apply_base(self._control_plane, self.endpoint())
        self._control_plane.kubectl(
            "wait", "--for=condition=Established", "crd/gpuclasses.cozystack.io", "--timeout=30s"
        )

    def start(
        self, program: Sequence[str] | None = None, arguments: Sequence[str] = (), *, until: str = "/readyz/serving"
    ) -> None:
        """Start the process and wait until it listens and calls itself ready to serve.

        Args:
            program: another command than usual, for this time.
            arguments: options besides the usual, for this time.
            until: the health endpoint that must say so.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        kubeconfig = self._kubeconfig or self._control_plane.user_kubeconfig(SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS)
        command = (
            *(program or self._program),
            *self._arguments,
            *arguments,
            f"--kubeconfig={kubeconfig}",
            f"--bind-address={self.host.address}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
        )
        with self.host.inside():
            self._process = Process("the catalog", command, self.log)
        self.wait_until_serving(until)

    def rotate_certificate(self) -> KeyPair:
        """Write another serving certificate and key, of the same authority, over those there are."""
        return self._authority.serving(self._name, (self.host.address, "localhost", f"{NAME}.{NAMESPACE}.svc"))

    @property
    def process(self) -> Process:
        """The running process."""
        if self._process is None:
            raise AssertionError("the catalog was never started")
        return self._process

    def wait_until_serving(self, until: str = "/readyz/serving") -> None:
        """Wait until the process listens and calls itself ready to serve.

        Args:
            until: the health endpoint that must say so.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        with contextlib.closing(self.client()) as client:
            self.process.wait_until(lambda: client.request("GET", until).code == HTTPStatus.OK)

    def terminate(self) -> None:
        """Ask the process to end, and do not wait."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Stop the process; the objects stay on the cluster."""
        if self._process is not None:
            self._process.stop()

    def end(self) -> None:
        """Stop the process for good: that it does not run is no fault from now on."""
        self.stop()
        self._process = None

    @property
    def pid(self) -> int:
        """The operating system's number of the running process."""
        return self.process.pid

    def require_running(self) -> None:
        """Raise when the process has ended.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        if self._process is not None:
            self._process.require_running()

    def wait_until_available(self) -> None:
        """Wait until kube-apiserver forwards requests to the server and shows its resources in discovery."""
        self._control_plane.kubectl("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=60s")
        wait_for(self._is_discovered, f"{GROUP_VERSION} in discovery")

    def client(self, user: str = ADMIN, groups: Sequence[str] = ADMIN_GROUPS) -> Client:
        """A connection straight to the server, past kube-apiserver; the caller closes it."""
        certificate = self._control_plane.authority.client(user, groups)
        return Client(self.port, authority=self.authority, certificate=certificate, address=self.host.address)

    def front_proxy_client(self) -> Client:
        """A connection with kube-apiserver's own certificate, for X-Remote-* headers; the caller closes it."""
        return self._control_plane.front_proxy_client(self.port, self.authority, self.host.address)

    def endpoint(self, *, is_ready: bool = True, is_terminating: bool = False) -> Endpoint:
        """Where it is, for the Service."""
        return Endpoint(self.host.address, self.port, is_ready, is_terminating)

    def _is_discovered(self) -> bool:
        groups = self._control_plane.client.request("GET", "/apis", headers=GROUP_DISCOVERY).json()["items"]
        return any(
            version["freshness"] == "Current" and f"{group['metadata']['name']}/{version['version']}" == GROUP_VERSION
            for group in groups
            for version in group["versions"]
        )


def apply_base(control_plane: ControlPlane, *endpoints: Endpoint) -> None:
    """Apply the base, with a Service that leads to these endpoints; on loopback it can only be one.

    With it come the rights that `--kubevirt` needs: many a test starts a server with it.
    """
    documents = composed(control_plane.binaries.kubectl, "kubevirt")
    authority = control_plane.extension_authority.certificate.read_bytes()
    if control_plane.network is None:
        (only,) = endpoints
        adapted = adapt(documents, port=only.port, authority=authority)
    else:
        adapted = [*adapt(documents, port=None, authority=authority), endpoint_slice(*endpoints)]
    control_plane.kubectl("apply", "-f", "-", stdin=_as_list(adapted))


def endpoint_slice(*endpoints: Endpoint) -> Json:
    """The EndpointSlice that leads the Service to these endpoints, as the controller would make it from Pods."""
    (port,) = {each.port for each in endpoints}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [each.address],
                "conditions": {
                    "ready": each.is_ready,
                    "serving": each.is_ready,
                    "terminating": each.is_terminating,
                },
            }
            for each in endpoints
        ],
    }


def manifests(control_plane: ControlPlane, name: str) -> list[Json]:
    """The documents of one directory under `manifests/`, as kustomize gives them if it is a kustomization."""
    directory = MANIFESTS / name
    if (directory / "kustomization.yaml").exists():
        return kustomized(control_plane.binaries.kubectl, directory)
    return [document for path in sorted(directory.glob("*.yaml")) for document in read_documents(path.read_text())]


def composed(kubectl: Path, *components: str) -> list[Json]:
    """The base with components, in this order, as kustomize gives them."""
    with tempfile.TemporaryDirectory(prefix="gpuclass-catalog-") as directory:
        root = os.path.relpath(MANIFESTS, Path(directory).resolve())  # kustomize takes no absolute path
        kustomization = {
            "resources": [f"{root}/base"],
            "components": [f"{root}/components/{each}" for each in components],
        }
        Path(directory, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return kustomized(kubectl, Path(directory))


def kustomized(kubectl: Path, directory: Path) -> list[Json]:
    """What kustomize makes of a directory.

    Raises:
        AssertionError: it refuses; the message carries what it said.
    """
    command = (str(kubectl), "kustomize", str(directory))
    done = subprocess.run(command, capture_output=True, text=True, timeout=KUSTOMIZE_TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise AssertionError(f"kustomize refuses {directory}: {done.stderr}")
    return read_documents(done.stdout)


def read_documents(text: str) -> list[Json]:
    """The Kubernetes objects in a YAML stream; those of a List one by one."""
    objects: list[Json] = []
    for document in yaml.safe_load_all(text):
        if document:
            objects.extend(document["items"] if document.get("kind") == "List" else [document])
    return objects


def adapt(documents: Iterable[Json], *, port: int | None, authority: bytes) -> list[Json]:
    """The base for servers that are no Pods.

    On loopback the Service becomes an ExternalName `localhost`, and the APIService gets the port there. With addresses
    of their own (port None) the Service only loses its selector: an EndpointSlice says where they are. The APIService
    gets our certificate authority; kube-apiserver still verifies the certificate for the Service's own name.
    The Namespace comes first.
    """
    changes = {
        "Service": lambda document: _without_selector(document) if port is None else _to_loopback(document, port)
    }
    changes["APIService"] = lambda document: _trusting(document, port, authority)
    kept = [document for document in documents if not _is_left_out(document)]
    adapted = [changes.get(document["kind"], dict)(document) for document in kept]
    if not any(document["kind"] == "Namespace" for document in adapted):
        adapted.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return sorted(adapted, key=lambda document: document["kind"] != "Namespace")


def _is_left_out(document: Json) -> bool:
    return document["kind"] in LEFT_OUT_KINDS or document["apiVersion"].startswith(LEFT_OUT_GROUPS)


def _to_loopback(service: Json, port: int) -> Json:
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    return {**service, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports}}


def _without_selector(service: Json) -> Json:
    return {**service, "spec": {key: value for key, value in service["spec"].items() if key != "selector"}}


def _trusting(api_service: Json, port: int | None, authority: bytes) -> Json:
    spec: dict[str, Any] = {key: value for key, value in api_service["spec"].items() if key != "insecureSkipTLSVerify"}
    if port is not None:
        spec["service"] = {**spec["service"], "port": port}
    spec["caBundle"] = base64.b64encode(authority).decode()
    annotations = {
        key: value
        for key, value in api_service["metadata"].get("annotations", {}).items()
        if not key.startswith(CERT_MANAGER_ANNOTATIONS)
    }
    return {**api_service, "metadata": {**api_service["metadata"], "annotations": annotations}, "spec": spec}


def _as_list(documents: list[Json]) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": documents})
