"""Stand-ins for what our manifests need and a bare control plane lacks: the kinds of others, a kubelet, cert-manager.

The kinds take any fields: an object of them that is stored was well-formed, and no more is known of it.
"""

import base64
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.cluster.catalog import API_SERVICE, ENDPOINT_SLICES, NAME, NAMESPACE, CatalogServer, endpoint_slice
from tests.cluster.client import Client, Json, NotFoundError
from tests.cluster.waiting import wait_for

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API_SERVICE_PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
SERVICE_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}"
DEPLOYMENT_PATH: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
ENTRYPOINT: Final = (sys.executable, "-m", "apiserver")
"""What the image runs, of this checkout."""

AT_ONCE: Final = "--shutdown-delay-duration=0s"
"""No node has to be told that an endpoint is gone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind of somebody else."""

    group: str
    version: str
    kind: str

    @property
    def plural(self) -> str:
        """Its name in paths."""
        return f"{self.kind.lower()}s"

    @property
    def path(self) -> str:
        """Where all of them are listed."""
        return f"/apis/{self.group}/{self.version}/{self.plural}"


FOREIGN_KINDS: Final = (
    Kind("cert-manager.io", "v1", "Issuer"),
    Kind("cert-manager.io", "v1", "Certificate"),
    Kind("monitoring.coreos.com", "v1", "ServiceMonitor"),
    Kind("monitoring.coreos.com", "v1", "PrometheusRule"),
)


def add_foreign_kinds(client: Client) -> None:
    """Create the kinds, and wait until they are served."""
    for each in FOREIGN_KINDS:
        client.post(CRDS, _definition(each))
    wait_for(lambda: all(client.request("GET", each.path).code == 200 for each in FOREIGN_KINDS), "their service")


@contextlib.contextmanager
def foreign_kinds(client: Client) -> Iterator[None]:
    """Have the kinds served while the block lasts."""
    try:
        add_foreign_kinds(client)
        yield
    finally:
        for each in FOREIGN_KINDS:
            client.request("DELETE", f"{CRDS}/{each.plural}.{each.group}")


class Workload:
    """The Deployment as one process beside the cluster, in place of its controller, a kubelet and cert-manager.

    It is followed a step at a time. The process has the container's arguments and the rights of the ServiceAccount;
    where it listens, with which certificate, and how it reaches the cluster, is the server's.
    """

    def __init__(self, server: CatalogServer, client: Client) -> None:
        """Prepare to follow.

        Args:
            server: not started.
            client: an administrator's connection, of the thread that follows.
        """
        self._server, self._client = server, client
        self._arguments: tuple[str, ...] | None = None

    def step(self) -> None:
        """Start or stop the process as the Deployment now has it, lead the Service to it, and call it available.

        Raises:
            ProcessDiedError: the process did not come up, or ended by itself.
        """
        self._server.require_running()
        deployment = _found(self._client, DEPLOYMENT_PATH)
        arguments = None if deployment is None else _arguments(deployment)
        if arguments != self._arguments:
            self._server.end()
            self._arguments = arguments
            if arguments is not None:
                self._server.start(ENTRYPOINT, arguments)
        if deployment is not None:
            with contextlib.suppress(NotFoundError):  # deleted meanwhile, or not all is applied yet
                lead_to(self._client, self._server)
                _report_available(self._client, deployment)


def lead_to(client: Client, server: CatalogServer) -> None:
    """Lead the Service to a server, and write its CA into the APIService where cert-manager's cainjector would.

    On loopback, which no EndpointSlice may name, the Service becomes an ExternalName, and the APIService gets the port.
    What is so already is left alone.
    """
    if server.host.namespace is None:
        _ensure(client, SERVICE_PATH, {"spec": {"type": "ExternalName", "externalName": "localhost"}})
        _ensure(client, API_SERVICE_PATH, {"spec": {"service": {"port": server.port}}})
    elif _found(client, ENDPOINT_SLICES) is None:
        client.post(ENDPOINT_SLICES.rpartition("/")[0], endpoint_slice(server.endpoint()))
    if "cert-manager.io/inject-ca-from" in client.get(API_SERVICE_PATH)["metadata"].get("annotations", {}):
        authority = base64.b64encode(server.authority.read_bytes()).decode()
        _ensure(client, API_SERVICE_PATH, {"spec": {"caBundle": authority}})


def _arguments(deployment: Json) -> tuple[str, ...]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return (*container["args"], AT_ONCE)


def _report_available(client: Client, deployment: Json) -> None:
    generation, replicas = deployment["metadata"]["generation"], deployment["spec"]["replicas"]
    if deployment.get("status", {}).get("observedGeneration") == generation:
        return
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "StandIn",
        "message": "one process beside the cluster stands in for every replica",
    }
    status = {"observedGeneration": generation, **counts, "conditions": [condition]}
    client.patch(f"{DEPLOYMENT_PATH}/status", {"status": status})


def _found(client: Client, path: str) -> Json | None:
    try:
        return client.get(path)
    except NotFoundError:
        return None


def _ensure(client: Client, path: str, wanted: Json) -> None:
    if not _holds(client.get(path), wanted):
        client.patch(path, wanted)


def _holds(live: Json, wanted: Json) -> bool:
    """Whether all that is wanted stands there already."""
    return all(
        _holds(live.get(key, {}), value) if isinstance(value, dict) else live.get(key) == value
        for key, value in wanted.items()
    )


def _definition(kind: Kind) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [
                {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
