"""What the bench compares, side by side on one control plane: the catalog, sample-apiserver and bare aiohttp."""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.bench.loads import HERE, Load
from tests.bench.objects import class_spec, device
from tests.cluster.binaries import Module, find_program
from tests.cluster.catalog import API, CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.pki import CertificateAuthority
from tests.cluster.processes import Process, free_ports
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, create_node, node

CLASSES: Final = 100
NODES_OF_FIRST: Final = 50
LIST: Final = "gpuclasses"
ONE: Final = "gpuclasses/class-000"
PAGE: Final = "gpuclasses/class-000/catalog"
SAMPLE_GROUP: Final = "wardle.example.com"
SAMPLE: Final = f"/apis/{SAMPLE_GROUP}/v1alpha1"
SAMPLE_LIST: Final = "fischers"
SAMPLE_ONE: Final = "fischers/class-000"
BARE_GROUP: Final = "bare.example.com"
BARE: Final = f"/apis/{BARE_GROUP}/v1alpha1"
SERVICE_NAMESPACE: Final = "default"
SAMPLE_MODULE: Final = Module("sample-apiserver", HERE)


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers, each with the same 100 objects.

    Attributes:
        control_plane: where they are installed.
        catalog: ours.
        load: what reads from them.
        sample_port: sample-apiserver's port on loopback.
        bare_port: bare aiohttp's.
    """

    control_plane: ControlPlane
    catalog: CatalogServer
    load: Load
    sample_port: int
    bare_port: int

    def ours(self, path: str) -> str:
        """Straight to us."""
        return f"https://127.0.0.1:{self.catalog.port}{API}/{path}"

    def sample(self, path: str) -> str:
        """Straight to sample-apiserver."""
        return f"https://127.0.0.1:{self.sample_port}{SAMPLE}/{path}"

    def bare(self, path: str) -> str:
        """Straight to bare aiohttp."""
        return f"https://127.0.0.1:{self.bare_port}{BARE}/{path}"

    def through(self, path: str) -> str:
        """To kube-apiserver, which answers itself or forwards."""
        return f"{self.control_plane.url}{path}"


@contextmanager
def staged(control_plane: ControlPlane, catalog: CatalogServer, program: Path) -> Iterator[Stage]:
    """Make the objects, start what we are compared with, and let kube-apiserver forward to all of it.

    Args:
        control_plane: running.
        catalog: installed and running there.
        program: the load generator.

    Raises:
        UnavailableError: sample-apiserver cannot be built.
    """
    sample_program = find_program("sample-apiserver", SAMPLE_MODULE, "k8s.io/sample-apiserver", _say)
    authority = CertificateAuthority(control_plane.directory, "bench-ca")
    hosts = ("127.0.0.1", "localhost", *(f"{name}.{SERVICE_NAMESPACE}.svc" for name in ("sample", "bare")))
    serving = authority.serving("bench-serving", hosts)
    sample_port, bare_port = free_ports(2)
    kubeconfig = control_plane.kubeconfig
    pair = (f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}")
    load = Load(program, control_plane.authority.client(ADMIN, ADMIN_GROUPS))
    with ExitStack() as stack:
        direct = stack.enter_context(catalog.client())
        make_classes(control_plane.client)
        wait_for(lambda: _is_complete(direct), "the catalog to know every class")
        sample = Process(
            "sample-apiserver",
            [
                str(sample_program),
                f"--etcd-servers={control_plane.etcd_url}",
                "--bind-address=127.0.0.1",
                f"--secure-port={sample_port}",
                *pair,
                *(f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")),
            ],
            control_plane.directory / "sample-apiserver.log",
        )
        stack.callback(sample.stop)
        client = Client(sample_port, authority=authority.certificate, certificate=load.certificate)
        stack.enter_context(client)
        sample.wait_until(lambda: _knows_us(client))
        make_fischers(client, len(direct.request("GET", f"{API}/{ONE}").body))
        answers = control_plane.directory / "bare.json"
        prepared = {path: direct.request("GET", f"{API}/{path}").body.decode() for path in (LIST, ONE, PAGE)}
        answers.write_text(json.dumps(prepared))
        authorities = (control_plane.authority.certificate, control_plane.front_proxy_authority.certificate)
        bare = Process(
            "bare aiohttp",
            [
                *(sys.executable, "-m", "tests.bench.yardstick", str(answers), str(bare_port)),
                *map(str, (serving.certificate, serving.key, *authorities)),
            ],
            control_plane.directory / "bare.log",
        )
        stack.callback(bare.stop)
        probe = stack.enter_context(Client(bare_port, authority=authority.certificate))
        bare.wait_until(lambda: probe.request("GET", BARE).code == HTTPStatus.OK)
        for name, group, port in (("sample", SAMPLE_GROUP, sample_port), ("bare", BARE_GROUP, bare_port)):
            _forward(control_plane, name, group, port, authority.certificate.read_bytes())
        yield Stage(control_plane, catalog, load, sample_port, bare_port)


def make_classes(client: Client) -> None:
    """100 classes; the first is on 50 nodes, the next nine on five each, the others on none."""
    for index in range(CLASSES):
        stored = {"metadata": {"name": f"class-{index:03}"}, "spec": class_spec(index)}
        client.post(STORED, {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", **stored})
    for index in range(NODES_OF_FIRST):
        capacity = {device(0): 8, device(1 + index % 9): 8}
        create_node(client, node(f"gpu-{index:03}", capacity=capacity))


def make_fischers(client: Client, size: int) -> None:
    """As many objects of sample-apiserver, each about as large as one of ours.

    Args:
        client: of sample-apiserver.
        size: bytes of one of ours.
    """
    bare_size = 0
    for index in range(CLASSES):
        annotations = {"example.com/text": "x" * max(0, size - bare_size)}
        fischer: Json = {
            "apiVersion": f"{SAMPLE_GROUP}/v1alpha1",
            "kind": "Fischer",
            "metadata": {"name": f"class-{index:03}", "annotations": annotations if bare_size else {}},
        }
        path = f"{SAMPLE}/{SAMPLE_LIST}"
        client.post(path, fischer)
        if not bare_size:
            bare_size = len(client.request("GET", f"{SAMPLE}/{SAMPLE_ONE}").body)
            client.delete(f"{SAMPLE}/{SAMPLE_ONE}")
            fischer["metadata"]["annotations"] = {"example.com/text": "x" * max(0, size - bare_size)}
            client.post(path, fischer)


def _knows_us(client: Client) -> bool:
    """Whether sample-apiserver takes our certificate; a connection made before it knew the authority never will."""
    client.close()
    return client.request("GET", f"{SAMPLE}/{SAMPLE_LIST}").code == HTTPStatus.OK


def _is_complete(direct: Client) -> bool:
    items = direct.items(f"{API}/{LIST}")
    return len(items) == CLASSES and direct.get(f"{API}/{ONE}")["status"]["capacity"] == NODES_OF_FIRST * 8


def _forward(control_plane: ControlPlane, name: str, group: str, port: int, authority: bytes) -> None:
    """Let kube-apiserver forward a group to a port on loopback."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports},
    }
    control_plane.client.post(f"/api/v1/namespaces/{SERVICE_NAMESPACE}/services", service)
    spec = {
        "group": group,
        "version": "v1alpha1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(authority).decode(),
        "service": {"name": name, "namespace": SERVICE_NAMESPACE, "port": port},
    }
    metadata = {"name": f"v1alpha1.{group}"}
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    control_plane.client.post(path, {**kind, "metadata": metadata, "spec": spec})
    what = LIST if group == BARE_GROUP else SAMPLE_LIST
    url = f"/apis/{group}/v1alpha1/{what}"
    wait_for(lambda: control_plane.client.request("GET", url).code == HTTPStatus.OK, f"{url} to be forwarded")


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
