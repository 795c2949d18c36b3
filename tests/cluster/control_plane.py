"""A control plane on loopback: etcd, kube-apiserver, kube-scheduler and, if asked for, kube-controller-manager."""

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Self

from tests.cluster.binaries import Binaries
from tests.cluster.client import Client
from tests.cluster.network import LOOPBACK, Network
from tests.cluster.pki import CertificateAuthority, file_name, write_kubeconfig, write_signing_keys
from tests.cluster.processes import Process, free_ports

ADMIN = "admin"
ADMIN_GROUPS = ("system:masters",)
FRONT_PROXY = "front-proxy-client"
KUBECTL_TIMEOUT_SECONDS = 90
NAMESPACES_AT_START = ("default", "kube-system")

# ServiceAccount would want a controller to make the accounts. The next two put tolerations on every Pod and a taint on
# every Node, and so would have the scheduler judge other objects than the test made. RuntimeClass takes away from a Pod
# the overhead that no RuntimeClass gave it.
ADMISSION_OFF = ("ServiceAccount", "DefaultTolerationSeconds", "TaintNodesByCondition", "RuntimeClass")

# The oracle has it place tens of thousands of Pods; 50 requests a second would be all that it measures.
UNHURRIED = ("--kube-api-qps=2000", "--kube-api-burst=4000")

# No kubelet renews a Node's heartbeat here; the node lifecycle controller must not call the Nodes dead for it.
NODES_NEVER_DIE = ("--node-monitor-grace-period=24h", "--node-startup-grace-period=24h")


class ControlPlane:
    """A Kubernetes control plane for as long as a `with` block lasts; its Nodes and Pods are objects, nothing runs.

    Attributes:
        directory: where certificates, kubeconfigs, logs and etcd's files are.
        binaries: what it runs.
        network: where it stands, if not on loopback alone.
        address: where kube-apiserver listens; the others listen on loopback.
        port: where kube-apiserver listens.
        etcd_port: where etcd listens for its clients, without TLS.
        kubeconfig: the cluster administrator's.
        authority: what signs the serving certificate, and the clients that kube-apiserver knows as users.
        front_proxy_authority: what signs the certificate by which aggregated servers know kube-apiserver.
        tokens: the keys that sign the tokens of service accounts.
        extension_authority: what signs the serving certificates of the aggregated servers.
        client: the cluster administrator's connection.
    """

    def __init__(
        self,
        binaries: Binaries,
        directory: Path,
        *,
        controllers: Iterable[str] = (),
        scheduler: bool = True,
        network: Network | None = None,
        tracing: Path | None = None,
    ) -> None:
        """Prepare the certificates; entering the block starts the processes.

        Args:
            binaries: what to run.
            directory: empty or new.
            controllers: names for kube-controller-manager's --controllers; without any it is not started.
            scheduler: whether kube-scheduler is started; without it no Pod is bound but by hand.
            network: entered; kube-apiserver then listens where its hosts reach it, and itself chooses among the
                endpoints of an aggregated server.
            tracing: a TracingConfiguration for kube-apiserver.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.binaries = binaries
        self._controllers = tuple(controllers)
        self._has_scheduler = scheduler
        self.network = network
        self._tracing = tracing
        self.address = LOOPBACK.address if network is None else network.address
        self.etcd_port, self._etcd_peer_port, self.port, self._scheduler_port, self._controllers_port = free_ports(5)
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, Process] = {}
        self.authority = CertificateAuthority(directory, "cluster-ca")
        self.front_proxy_authority = CertificateAuthority(directory, "front-proxy-ca")
        self.extension_authority = CertificateAuthority(directory, "extension-ca")
        names = ("127.0.0.1", self.address, "localhost", "kubernetes", "kubernetes.default.svc")
        self._serving = self.authority.serving("serving", names)
        self.tokens = write_signing_keys(directory, "service-account")
        self.kubeconfig = self.user_kubeconfig(ADMIN, ADMIN_GROUPS)
        self.client = self.user_client(ADMIN, ADMIN_GROUPS)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            stack.callback(self.client.close)
            self._start_etcd()
            self._start_kube_apiserver()
            if self._has_scheduler:
                self._start_kube_scheduler()
            if self._controllers:
                self._start_kube_controller_manager()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Where kube-apiserver listens."""
        return f"https://{self.address}:{self.port}"

    @property
    def etcd_url(self) -> str:
        """Where etcd listens."""
        return f"http://127.0.0.1:{self.etcd_port}"

    def require_running(self) -> None:
        """Raise when one of the processes has ended.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        for process in self._processes.values():
            process.require_running()

    def process(self, name: str) -> Process:
        """One of the processes: etcd, kube-apiserver, kube-scheduler or kube-controller-manager."""
        return self._processes[name]

    def wait_until_ready(self) -> None:
        """Wait until etcd and kube-apiserver answer, after either was started anew.

        Raises:
            ProcessDiedError: with the end of its log.
        """
        self.process("etcd").wait_until(lambda: _etcd_is_healthy(self.etcd_port))
        with self.user_client(ADMIN, ADMIN_GROUPS) as client:
            self.process("kube-apiserver").wait_until(lambda: _is_ready(client))

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a user with a client certificate, made when first asked for."""
        path = self.directory / f"{file_name(user, groups)}.kubeconfig"
        if not path.exists():
            certificate = self.authority.client(user, groups)
            write_kubeconfig(path, server=self.url, authority=self.authority.certificate, client=certificate)
        return path

    def user_client(self, user: str, groups: Sequence[str] = ()) -> Client:
        """A connection of its own for a user; the caller closes it."""
        certificate = self.authority.client(user, groups)
        return Client(self.port, authority=self.authority.certificate, certificate=certificate, address=self.address)

    def front_proxy_client(self, port: int, authority: Path, address: str = LOOPBACK.address) -> Client:
        """A connection as kube-apiserver itself has it to an aggregated server, for headers of one's own."""
        certificate = self.front_proxy_authority.client(FRONT_PROXY)
        return Client(port, authority=authority, certificate=certificate, address=address)

    def kubectl(
        self,
        *arguments: str,
        user: str = ADMIN,
        groups: Sequence[str] | None = None,
        stdin: str | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl.

        Args:
            *arguments: its command line.
            user: as whom.
            groups: the groups of that user; None is system:masters for the administrator and none for others.
            stdin: what to give it, for `-f -`.
            check: whether a failure raises.

        Raises:
            AssertionError: it failed and check is set; the message carries what it said.
        """
        if groups is None:
            groups = ADMIN_GROUPS if user == ADMIN else ()
        kubeconfig = self.user_kubeconfig(user, groups)
        cache = kubeconfig.with_suffix(".cache")
        command = [str(self.binaries.kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}", *arguments]
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=KUBECTL_TIMEOUT_SECONDS, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done

    def _start(self, name: str, program: Path, flags: Iterable[str]) -> Process:
        process = Process(name, [str(program), *flags], self.directory / f"{name}.log")
        self._stack.callback(process.stop)
        self._processes[name] = process
        return process

    def _start_etcd(self) -> None:
        url = self.etcd_url
        peer_url = f"http://127.0.0.1:{self._etcd_peer_port}"
        flags = (
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start("etcd", self.binaries.etcd, flags).wait_until(lambda: _etcd_is_healthy(self.etcd_port))

    def _start_kube_apiserver(self) -> None:
        front_proxy = self.front_proxy_authority.client(FRONT_PROXY)
        flags = (
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self.port}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--enable-aggregator-routing={str(self.network is not None).lower()}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.directory}",
            *self._serving_flags(),
            f"--client-ca-file={self.authority.certificate}",
            f"--service-account-key-file={self.tokens.certificate}",
            f"--service-account-signing-key-file={self.tokens.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--requestheader-client-ca-file={self.front_proxy_authority.certificate}",
            f"--requestheader-allowed-names={FRONT_PROXY}",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={front_proxy.certificate}",
            f"--proxy-client-key-file={front_proxy.key}",
            f"--disable-admission-plugins={','.join(ADMISSION_OFF)}",
            *(() if self._tracing is None else (f"--tracing-config-file={self._tracing}",)),
        )
        process = self._start("kube-apiserver", self.binaries.kube_apiserver, flags)
        process.wait_until(lambda: _is_ready(self.client))
        process.wait_until(self._has_namespaces)

    def _start_kube_scheduler(self) -> None:
        process = self._start(
            "kube-scheduler",
            self.binaries.kube_scheduler,
            (*self._component_flags(self.user_kubeconfig("system:kube-scheduler"), self._scheduler_port), *UNHURRIED),
        )
        self._wait_for_component(process, self._scheduler_port)

    def _start_kube_controller_manager(self) -> None:
        # Its own user may not delete Pods: a controller of a real cluster has a service account for that.
        kubeconfig = self.user_kubeconfig("system:kube-controller-manager", ADMIN_GROUPS)
        flags = (
            *self._component_flags(kubeconfig, self._controllers_port),
            f"--controllers={','.join(self._controllers)}",
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={self.tokens.key}",
            *NODES_NEVER_DIE,
        )
        process = self._start("kube-controller-manager", self.binaries.kube_controller_manager, flags)
        self._wait_for_component(process, self._controllers_port)

    def _component_flags(self, kubeconfig: Path, port: int) -> tuple[str, ...]:
        """What scheduler and controller manager have in common."""
        return (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *self._serving_flags(),
        )

    def _serving_flags(self) -> tuple[str, str]:
        return f"--tls-cert-file={self._serving.certificate}", f"--tls-private-key-file={self._serving.key}"

    def _wait_for_component(self, process: Process, port: int) -> None:
        with Client(port, authority=self.authority.certificate) as client:
            process.wait_until(lambda: client.request("GET", "/healthz").code == HTTPStatus.OK)

    def _has_namespaces(self) -> bool:
        names = {item["metadata"]["name"] for item in self.client.items("/api/v1/namespaces")}
        return names.issuperset(NAMESPACES_AT_START)


def _is_ready(client: Client) -> bool:
    return client.request("GET", "/readyz").code == HTTPStatus.OK


def _etcd_is_healthy(port: int) -> bool:
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == HTTPStatus.OK
