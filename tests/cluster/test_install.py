"""Every command of docs/install.md, run on a real control plane: install, upgrade, uninstall, by kustomize and by Helm.

There is no kubelet, so the program runs beside the cluster, and two controllers have stand-ins: the Service is led to
the program by an EndpointSlice, and the CA is written into the APIService where cert-manager's cainjector would. The
kinds of others are bare CRDs. The namespace controller is the real one.
"""

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import API_SERVICE, ENDPOINT_SLICES, MANIFESTS, NAMESPACE, CatalogServer
from tests.cluster.cleaning import left_as_found
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.documents import Shell, commands
from tests.cluster.network import Network, NetworkUnavailableError
from tests.cluster.renderings import require_admitted
from tests.cluster.standins import DEPLOYMENT_PATH, Workload, foreign_kinds, lead_to
from tests.cluster.test_broken_cluster import AVAILABILITY, CRD, free, is_available
from tests.cluster.waiting import wait_for
from tests.cluster.workload import DEVICE, NAMESPACES, STORED, create_node, ensure_namespace, gpu_class, node
from tests.needs import missing

DOCUMENT: Final = MANIFESTS.parent / "docs" / "install.md"
README: Final = MANIFESTS.parent / "README.md"
CRD_APART: Final = "The stored kind"
BY_KUSTOMIZE: Final = ("By kustomize", "Upgrade by kustomize", "Uninstall by kustomize")
BY_HELM: Final = ("By Helm", "Upgrade by Helm", "Uninstall by Helm")
TRIAL: Final = "For a trial"
ASKING: Final = ("Who may read", "When it does not become available")
HELD: Final = "held"
STEP_SECONDS: Final = 0.2
SETTLED_SECONDS: Final = 60
"""For the namespace controller, which waits longer after each attempt."""
DELETED_FROM: Final = (
    "/apis/apiregistration.k8s.io/v1/apiservices",
    f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
)
"""Where what an uninstall deletes was; the APIService first."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who follows the document, and the program that kubelets would run.

    Attributes:
        control_plane: the cluster.
        api: the administrator's connection.
        server: the program.
        shell: where the commands are run.
    """

    control_plane: ControlPlane
    api: Client
    server: CatalogServer
    shell: Shell

    def follow(self, heading: str, *, first: int | None = None, after: int = 0) -> None:
        """Run the commands under a heading, all or a part of them, as far as they go without a server."""
        found = [each for each in commands(DOCUMENT) if each.heading == heading]
        assert found, heading
        for each in found[after:first]:
            self.shell.run(each)

    def serve(self) -> None:
        """Do what the controllers and a kubelet would: lead the Service to the program, hand out its CA, start it."""
        lead_to(self.api, self.server)
        self.server.start()
        self.server.wait_until_available()  # discovery follows the APIService's condition after a moment

    @contextlib.contextmanager
    def run_by_the_cluster(self) -> Iterator[None]:
        """While the block lasts the program runs as the Deployment says, as with `make cluster`."""
        ended = threading.Event()

        def follow() -> None:
            with self.control_plane.user_client(ADMIN, ADMIN_GROUPS) as client:
                workload = Workload(self.server, client)
                while not ended.wait(STEP_SECONDS):
                    workload.step()

        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(follow)
            try:
                yield
            finally:
                ended.set()
            following.result()

    def order(self) -> str:
        """Offer a class, see its figure through kube-apiserver, and return what tells this object from any other."""
        uid: str = self.api.post(STORED, gpu_class("l40s"))["metadata"]["uid"]
        wait_for(lambda: free(self.api) == 4, "the figure")
        return uid

    def lose_the_server(self) -> str:
        """End the program, and see that a namespace cannot be deleted any more; return a resourceVersion of then."""
        self.server.stop()
        self.api.delete(ENDPOINT_SLICES)
        wait_for(lambda: not is_available(self.api), "kube-apiserver to notice", timeout_seconds=SETTLED_SECONDS)
        self.api.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HELD}})
        self.api.delete(f"{NAMESPACES}/{HELD}")
        wait_for(self._is_held, "the namespace to be held", timeout_seconds=SETTLED_SECONDS)
        return self.now()

    def now(self) -> str:
        """A resourceVersion of now."""
        version: str = self.api.get(DELETED_FROM[0])["metadata"]["resourceVersion"]
        return version

    def require_gone(self, since: str, uid: str) -> None:
        """The APIService was deleted before all else, no namespace is held, ours is gone, and the class is there.

        Ours was deleted after the APIService: that it is gone shows that namespaces can be deleted again.
        """
        deletions = {path: self._deletions(path, since) for path in DELETED_FROM}
        assert list(deletions[DELETED_FROM[0]]) == [API_SERVICE]
        (first,) = deletions[DELETED_FROM[0]].values()
        for path in DELETED_FROM[1:]:
            assert deletions[path], path
            assert first < min(deletions[path].values()), path
        wait_until_gone(self.api, HELD)
        wait_until_gone(self.api, NAMESPACE)
        assert self.api.get(f"{STORED}/l40s")["metadata"]["uid"] == uid

    def _is_held(self) -> bool:
        conditions = self.api.get(f"{NAMESPACES}/{HELD}")["status"].get("conditions", [])
        found = {each["type"]: each for each in conditions}
        failure = found.get("NamespaceDeletionDiscoveryFailure", {"status": "", "message": ""})
        return failure["status"] == "True" and "catalog.cozystack.io" in failure["message"]

    def _deletions(self, path: str, since: str) -> dict[str, int]:
        """The names of what was deleted there, and in which order: resourceVersions of one etcd can be compared."""
        answer = self.api.request("GET", f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=1")
        assert answer.code == 200, answer.body
        events = [json.loads(line) for line in answer.body.splitlines()]
        ended: list[Json] = [each["object"]["metadata"] for each in events if each["type"] == "DELETED"]
        return {each["name"]: int(each["resourceVersion"]) for each in ended}


def wait_until_gone(api: Client, namespace: str) -> None:
    """Wait until there is no such namespace."""
    path = f"{NAMESPACES}/{namespace}"
    gone = f"the namespace {namespace} to be gone"
    wait_for(lambda: api.request("GET", path).code == 404, gone, timeout_seconds=SETTLED_SECONDS)


@pytest.fixture(scope="module")
def cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster whose aggregated servers have addresses of their own, with the controller that ends namespaces."""
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(Network())
        except NetworkUnavailableError as reason:
            missing(reason)
        directory = tmp_path_factory.mktemp("install")
        controllers = ("namespace-controller",)
        running = ControlPlane(binaries, directory, controllers=controllers, scheduler=False, network=network)
        stack.enter_context(running)
        stack.enter_context(foreign_kinds(running.client))
        create_node(running.client, node("n1", capacity={DEVICE: 4}))
        yield running


@pytest.fixture
def reader(cluster: ControlPlane, helm: Path, tmp_path: Path) -> Iterator[Reader]:
    """A reader in a checkout, with kubectl and helm; without the CRD before and afterwards."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests", symlinks=True)
    assert cluster.network is not None
    server = CatalogServer(cluster, host=cluster.network.add_host())
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}
    shell = Shell(tmp_path, (cluster.binaries.kubectl.parent, helm.parent), environment)
    try:
        yield Reader(cluster, cluster.client, server, shell)
    finally:
        server.stop()
        cluster.client.request("DELETE", CRD)
        wait_for(lambda: cluster.client.request("GET", CRD).code == 404, "the CRD to be gone")


def test_all_is_admitted(cluster: ControlPlane, everything: list[Json]) -> None:
    """Each object that any choice of components has is admitted in each of its forms.

    Of the kinds of others this shows only that they are well-formed: see `test_kinds_of_others_are_theirs`.
    """
    with left_as_found(cluster.client):
        ensure_namespace(cluster.client, NAMESPACE)
        require_admitted(cluster.client, everything)


@pytest.mark.timeout(420)
def test_by_kustomize(reader: Reader) -> None:
    """Installed, upgraded and uninstalled by kustomize: the classes stay, and no namespace hangs."""
    install, upgrade, uninstall = BY_KUSTOMIZE
    reader.follow(CRD_APART)
    reader.follow(install, first=1)
    reader.serve()
    reader.follow(install, after=1)
    uid = reader.order()
    reader.follow(upgrade)
    reader.server.wait_until_available()
    assert free(reader.api) == 4
    since = reader.lose_the_server()
    reader.follow(uninstall, first=1)
    reader.require_gone(since, uid)
    reader.follow(uninstall, after=1)
    wait_for(lambda: reader.api.request("GET", STORED).code == 404, "the classes to go with their CRD")


@pytest.mark.timeout(420)
def test_by_helm(reader: Reader) -> None:
    """Installed, upgraded and uninstalled by Helm, which deletes the APIService first and keeps the CRD."""
    install, upgrade, uninstall = BY_HELM
    reader.follow(install, first=1)
    reader.serve()
    reader.follow(install, after=1)
    uid = reader.order()
    flow_schema = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/gpuclass-catalog"
    assert reader.api.request("GET", flow_schema).code == 404
    reader.follow(upgrade)
    assert reader.api.request("GET", flow_schema).code == 200
    reader.server.wait_until_available()
    assert free(reader.api) == 4
    since = reader.lose_the_server()
    reader.follow(uninstall)
    reader.require_gone(since, uid)


@pytest.mark.timeout(300)
def test_a_trial(reader: Reader) -> None:
    """The trial works without anybody's certificates, and what is told of rights and of failures can be done there."""
    reader.follow(CRD_APART)
    reader.follow(TRIAL, first=1)
    for heading in ASKING:
        reader.follow(heading)
    reader.serve()
    reader.server.wait_until_available()
    uid = reader.order()
    with reader.control_plane.user_client("anna", ["gpu-hosters"]) as hoster:
        assert hoster.get("/apis/catalog.cozystack.io/v1alpha1/gpuclasses/l40s")["status"]["free"] == 4
    since = reader.now()
    reader.follow(TRIAL, after=1)
    reader.require_gone(since, uid)


@pytest.mark.timeout(300)
def test_the_readme(reader: Reader) -> None:
    """The few commands of the README install it and take it away again, word for word, as with `make cluster`."""
    apply, away = (each for each in commands(README) if each.heading == "Install")
    with reader.run_by_the_cluster():
        reader.shell.run(apply)
        uid = reader.order()
        assert reader.api.get(DEPLOYMENT_PATH)["status"]["availableReplicas"] == 2
    since = reader.lose_the_server()
    reader.shell.run(away)
    reader.require_gone(since, uid)


def test_helm_does_not_take_a_crd_over(reader: Reader) -> None:
    """Where the CRD came from elsewhere Helm refuses, naming it, and has installed nothing."""
    reader.follow(CRD_APART)
    with pytest.raises(AssertionError, match=r"(?s)gpuclasses\.cozystack\.io.*ownership"):
        reader.follow(BY_HELM[0], first=1)
    assert reader.api.request("GET", AVAILABILITY).code == 404
    reader.api.delete(f"{NAMESPACES}/{NAMESPACE}")
    wait_until_gone(reader.api, NAMESPACE)


def test_every_command_is_run() -> None:
    """A heading with commands that no test follows is a mistake."""
    assert {each.heading for each in commands(DOCUMENT)} == {CRD_APART, *BY_KUSTOMIZE, *BY_HELM, TRIAL, *ASKING}
