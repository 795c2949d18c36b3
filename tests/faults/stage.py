"""The stage of every fault: a cluster, three servers of ours, the writer, the load, and the judge's informer."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import ApiError, Client
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.waiting import wait_for
from tests.faults.figures import Figures, requests, resource_of, told, true_figures
from tests.faults.following import Follower, following
from tests.faults.history import History, merge
from tests.faults.judging import Judge
from tests.faults.loading import CLASSES, Load, Target, client_context
from tests.faults.proxy import Mode, Proxy
from tests.faults.writing import NOT_ANSWERED, PATHS, Writer

MAX_STALENESS: Final = 120
"""Seconds; the least that the server takes."""

KILLED, SURVIVOR, BEHIND = "killed", "survivor", "through kube-apiserver"
READER: Final = "reader"
READER_ROLE: Final = "gpuclass-catalog-viewer"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
POLL_SECONDS: Final = 0.05
RECOVERY_LIMIT_SECONDS: Final = 90


@dataclass(slots=True)
class Stage:
    """What the faults act upon.

    Attributes:
        control_plane: the cluster.
        killed: the server that is installed behind kube-apiserver, and is killed.
        survivor: one that lives through everything; its memory is what is measured.
        proxy: between both and kube-apiserver.
        load: readers and watchers.
        writer: changes the cluster.
        follower: the judge's informer.
        began: when it was set up.
    """

    control_plane: ControlPlane
    killed: CatalogServer
    survivor: CatalogServer
    proxy: Proxy
    load: Load
    writer: Writer
    follower: Follower
    began: float = field(default_factory=time.time)

    @property
    def servers(self) -> tuple[CatalogServer, CatalogServer]:
        """Both."""
        return self.killed, self.survivor

    def set_network(self, mode: Mode) -> None:
        """Change what the network between our servers and kube-apiserver does."""
        self.load.call(self.proxy.set_mode(mode))

    def target(
        self, name: str, server: CatalogServer, user: str = ADMIN, groups: Sequence[str] = ADMIN_GROUPS
    ) -> Target:
        """A server as the load asks it, straight."""
        certificate = self.control_plane.authority.client(user, groups)
        return Target(name, f"https://127.0.0.1:{server.port}", client_context(server.authority, certificate))

    def recover(self, back: float) -> float:
        """Wait until both servers tell exactly what the cluster holds, changes since `back` included.

        Args:
            back: when the other side was back.

        Returns:
            Seconds from then to the first such answer of the slower server.

        Raises:
            TimeoutError: one of them did not.
        """
        self.writer.wait_for_writes(back)
        with self.writer.paused():
            truth = self.truth()
            seconds = [self._seconds_until(server, truth, back) for server in self.servers]
            self._require_copies(truth)
        return max(seconds)

    def truth(self) -> dict[str, Figures]:
        """The figures of every class, from a list of everything straight from the cluster."""
        with self.control_plane.user_client(ADMIN, ADMIN_GROUPS) as client:
            items = {kind: client.items(path) for kind, path in PATHS.items()}
        nodes = {each["metadata"]["name"]: each for each in items["nodes"]}
        figures = {}
        for each in items["gpuclasses"]:
            resource = resource_of(each)
            figures[each["metadata"]["name"]] = true_figures(resource, nodes, requests(items["pods"], resource))
        return figures

    def judge(self) -> Judge:
        """The judge, once the informer has seen everything that was written."""
        with self.writer.paused():
            ended = time.time()
            self.follower.wait_for_version(self.writer.latest_version)
            versions = merge(self.follower.told(), list(self.writer.written), self.began, ended)
        return Judge(History(versions, ended + RECOVERY_LIMIT_SECONDS), MAX_STALENESS)

    def memory_mib(self) -> float:
        """Resident memory of the server that survives."""
        return resident_mib(self.survivor.process.pid)

    def _seconds_until(self, server: CatalogServer, truth: dict[str, Figures], back: float) -> float:
        with server.client() as client:
            wait_for(
                lambda: read_figures(client) == truth,
                "a server to tell what the cluster holds",
                timeout_seconds=RECOVERY_LIMIT_SECONDS,
                poll_seconds=POLL_SECONDS,
            )
        return time.time() - back

    def _require_copies(self, truth: dict[str, Figures]) -> None:
        """Every watcher's copy becomes what the list is."""
        wait_for(
            lambda: all(copy.state == truth for copy in self.load.copies),
            "every watcher's copy to be what the cluster holds",
            timeout_seconds=RECOVERY_LIMIT_SECONDS,
        )


def read_figures(client: Client) -> dict[str, Figures] | None:
    """The figures a server tells at once, None if it does not."""
    try:
        return {item["metadata"]["name"]: told(item) for item in client.items(CLASSES)}
    except NOT_ANSWERED:
        return None


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")


@contextlib.contextmanager
def set_up(control_plane: ControlPlane, follower: Path, *, seed: int, watchers: int) -> Iterator[Stage]:
    """Put everything on the stage; the control plane runs and is empty.

    Args:
        control_plane: the cluster.
        follower: the informer's program.
        seed: of the writer.
        watchers: at each of the two servers.
    """
    directory = control_plane.directory
    proxy = Proxy(control_plane, directory)
    arguments = (f"--max-staleness={MAX_STALENESS}s", "-v", "1")
    killed, survivor = (
        CatalogServer(control_plane, arguments=arguments, kubeconfig=proxy.kubeconfig) for _ in range(2)
    )
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Load())
        load.call(proxy.start())
        stack.callback(lambda: load.call(proxy.stop()))
        killed.install()
        _let_reader_read(control_plane)
        follow = stack.enter_context(following(follower, control_plane.kubeconfig, directory))
        writer = stack.enter_context(Writer(control_plane, seed))
        for server in (killed, survivor):
            stack.callback(server.stop)
            server.start()
        killed.wait_until_available()
        stage = Stage(control_plane, killed, survivor, proxy, load, writer, follow)
        stage.recover(time.time())
        load.add(stage.target(KILLED, killed), readers=2, watchers=watchers)
        load.add(stage.target(SURVIVOR, survivor), readers=2, watchers=watchers)
        load.add(stage.target(f"{SURVIVOR}, as a reader", survivor, READER, ()), readers=1, watchers=0)
        authority = control_plane.authority
        context = client_context(authority.certificate, authority.client(ADMIN, ADMIN_GROUPS))
        load.add(Target(BEHIND, control_plane.url, context), readers=1, watchers=2)
        stage.recover(time.time())
        yield stage


def _let_reader_read(control_plane: ControlPlane) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": READER_ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER_ROLE},
        "subjects": [
            {"kind": "User", "name": READER, "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": READER, "namespace": "default"},
        ],
    }
    with contextlib.suppress(ApiError):
        control_plane.client.post(BINDINGS, binding)
