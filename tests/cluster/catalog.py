"""Our server as a process beside a control plane, installed there from `manifests/`."""

import base64
import contextlib
import sys
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.pki import CertificateAuthority
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
PROGRAM = (sys.executable, "-m", "apiserver", "serve")

# What runs Pods: here a process on loopback stands in for them.
LEFT_OUT_KINDS = frozenset({"Deployment", "PodDisruptionBudget"})
LEFT_OUT_GROUPS = ("cert-manager.io/", "monitoring.coreos.com/")
CERT_MANAGER_ANNOTATIONS = "cert-manager.io/"
GROUP_DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


class CatalogServer:
    """Our server for as long as a `with` block lasts: installed on the control plane, running, and Available.

    It has the rights of the ServiceAccount that the manifests bind, and no others. A second one that is only started,
    not installed, is a second replica to be reached directly.

    Attributes:
        port: where it listens on loopback.
        authority: the certificate authority of its serving certificate, as a PEM file.
        log: what it wrote.
    """

    def __init__(
        self, control_plane: ControlPlane, *, arguments: Sequence[str] = (), program: Sequence[str] = PROGRAM
    ) -> None:
        """Prepare its port and certificates; entering the block installs and starts it.

        Args:
            control_plane: the running cluster to serve.
            arguments: further options for its command line.
            program: the command that the options follow.
        """
        self._control_plane = control_plane
        self._command = (*program, *arguments)
        (self.port,) = free_ports(1)
        directory = control_plane.directory / f"catalog-{self.port}"
        directory.mkdir(exist_ok=True)
        authority = CertificateAuthority(directory, "catalog-ca")
        self.authority = authority.certificate
        self._serving = authority.serving("serving", ("127.0.0.1", "localhost", f"{NAME}.{NAMESPACE}.svc"))
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
        """Apply the CRD and the base, adapted to a server on loopback; applied again it changes nothing."""
        self._control_plane.kubectl("apply", "-f", "-", stdin=_as_list(manifests(self._control_plane, "crd")))
        base = adapt(manifests(self._control_plane, "base"), port=self.port, authority=self.authority.read_bytes())
        self._control_plane.kubectl("apply", "-f", "-", stdin=_as_list(base))
        self._control_plane.kubectl(
            "wait", "--for=condition=Established", "crd/gpuclasses.cozystack.io", "--timeout=30s"
        )

    def start(self) -> None:
        """Start the process and wait until it listens and calls itself ready to serve.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        kubeconfig = self._control_plane.user_kubeconfig(SERVICE_ACCOUNT, SERVICE_ACCOUNT_GROUPS)
        command = (
            *self._command,
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
        )
        self._process = Process("the catalog", command, self.log)
        with contextlib.closing(self.client()) as client:
            self._process.wait_until(lambda: client.request("GET", "/readyz/serving").code == HTTPStatus.OK)

    def stop(self) -> None:
        """Stop the process; the objects stay on the cluster."""
        if self._process is not None:
            self._process.stop()

    def require_running(self) -> None:
        """Raise when the process has ended.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        if self._process is not None:
            self._process.require_running()

    @property
    def pid(self) -> int:
        """The operating system's number of the running process.

        Raises:
            RuntimeError: it was never started.
        """
        if self._process is None:
            raise RuntimeError("the catalog was not started")
        return self._process.pid

    def wait_until_available(self) -> None:
        """Wait until kube-apiserver forwards requests to the server and shows its resources in discovery."""
        self._control_plane.kubectl("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=60s")
        wait_for(self._is_discovered, f"{GROUP_VERSION} in discovery")

    def client(self, user: str = ADMIN, groups: Sequence[str] = ADMIN_GROUPS) -> Client:
        """A connection straight to the server, past kube-apiserver; the caller closes it."""
        certificate = self._control_plane.authority.client(user, groups)
        return Client(self.port, authority=self.authority, certificate=certificate)

    def front_proxy_client(self) -> Client:
        """A connection with kube-apiserver's own certificate, for X-Remote-* headers; the caller closes it."""
        return self._control_plane.front_proxy_client(self.port, self.authority)

    def _is_discovered(self) -> bool:
        groups = self._control_plane.client.request("GET", "/apis", headers=GROUP_DISCOVERY).json()["items"]
        return any(
            version["freshness"] == "Current" and f"{group['metadata']['name']}/{version['version']}" == GROUP_VERSION
            for group in groups
            for version in group["versions"]
        )


def manifests(control_plane: ControlPlane, name: str) -> list[Json]:
    """The documents of one directory under `manifests/`, as kustomize gives them if it is a kustomization."""
    directory = MANIFESTS / name
    if (directory / "kustomization.yaml").exists():
        return read_documents(control_plane.kubectl("kustomize", str(directory)).stdout)
    return [document for path in sorted(directory.glob("*.yaml")) for document in read_documents(path.read_text())]


def read_documents(text: str) -> list[Json]:
    """The Kubernetes objects in a YAML stream; those of a List one by one."""
    objects: list[Json] = []
    for document in yaml.safe_load_all(text):
        if document:
            objects.extend(document["items"] if document.get("kind") == "List" else [document])
    return objects


def adapt(documents: Iterable[Json], *, port: int, authority: bytes) -> list[Json]:
    """The base for a server on loopback instead of in Pods.

    The Service becomes an ExternalName `localhost`, and the APIService gets our port and certificate authority.
    kube-apiserver then still verifies the certificate for the Service's own name. The Namespace comes first.
    """
    changes = {"Service": lambda document: _to_loopback(document, port)}
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


def _trusting(api_service: Json, port: int, authority: bytes) -> Json:
    spec: dict[str, Any] = {key: value for key, value in api_service["spec"].items() if key != "insecureSkipTLSVerify"}
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
