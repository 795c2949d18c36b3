"""`get`, `catalog` and the kubectl plugin on a real cluster, from nothing but a kubeconfig."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_catalog import BINDINGS
from tests.cluster.waiting import wait_for
from tests.cluster.workload import DEVICE, STORED, create_node, create_pod, gpu_class, node, pod
from tests.terminals import CTRL_C, PROGRAM, Terminal, plain

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
PLUGIN = "kubectl-gpuclasses"


@pytest.fixture
def l40s(api: Client, catalog: CatalogServer) -> str:
    """A class with two devices, one of them held."""
    catalog.require_running()
    name = "terminal-l40s"
    api.post(STORED, gpu_class(name))
    create_node(api, node("gpu-node", capacity={DEVICE: 2}))
    create_pod(api, pod("holder", node="gpu-node", requests={DEVICE: 1}))
    return name


@pytest.fixture
def plugged(tmp_path: Path) -> Path:
    """A directory for the PATH with nothing in it but the plugin, as pip installs it."""
    (tmp_path / PLUGIN).symlink_to(Path(sys.executable).parent / PLUGIN)
    return tmp_path


def test_plugin(control_plane: ControlPlane, plugged: Path, l40s: str) -> None:
    """Kubectl finds the plugin and runs it with the kubeconfig that it uses itself."""
    environ = {"PATH": str(plugged), "KUBECONFIG": str(control_plane.kubeconfig), "HOME": str(plugged)}

    def kubectl(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [control_plane.binaries.kubectl, *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    assert str(plugged / PLUGIN) in kubectl("plugin", "list")
    assert f"{l40s}      1     1           1             2   true" in kubectl("gpuclasses")
    assert "1 held" in kubectl("gpuclasses", "catalog", l40s)
    assert f"did you mean {l40s}?" in kubectl("gpuclasses", "catalog", l40s[:-1], code=1)


def test_live_on_a_terminal(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """What happens in the cluster is seen at once, in the table and on the page; Ctrl-C ends both."""
    kubeconfig = ("--kubeconfig", control_plane.kubeconfig)
    with (
        Terminal("get", "-w", *kubeconfig) as table,
        Terminal("catalog", l40s, "-w", *kubeconfig) as page,
    ):
        table.wait_for(f"{l40s}      1")
        page.wait_for("1 free")
        create_pod(api, pod("another", node="gpu-node", requests={DEVICE: 1}))
        table.wait_for(f"{l40s}      0")
        page.wait_for("No instance would be placed now.")
        for terminal in (table, page):
            terminal.press(CTRL_C)
            assert terminal.wait_for_end() == 130
            assert "Traceback" not in terminal.written


def test_live_in_a_pipe(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """A pipe gets the events of a watch, as kubectl writes them with --output-watch-events."""
    command = [*PROGRAM, "get", l40s, "-w", "-o", "json", "--kubeconfig", str(control_plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first = json.loads(process.stdout.readline())
            api.delete(f"{STORED}/{l40s}")
            last = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert (first["type"], first["object"]["status"]["free"]) == ("ADDED", 1)
    assert (last["type"], last["object"]["metadata"]["name"]) == ("DELETED", l40s)


@pytest.fixture
def reader_of_nodes(api: Client) -> Iterator[str]:
    """A user who may list and watch classes and nodes, and no pods."""
    name = "reader-of-nodes"
    rules = [{"apiGroups": ["", "cozystack.io"], "resources": ["nodes", "gpuclasses"], "verbs": ["list", "watch"]}]
    api.post(ROLES, {"metadata": {"name": name}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    api.post(BINDINGS, {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})
    yield name
    api.delete(f"{BINDINGS}/{name}")
    api.delete(f"{ROLES}/{name}")


@pytest.mark.usefixtures("l40s")
def test_forbidden(control_plane: ControlPlane, reader_of_nodes: str) -> None:
    """Who lacks a right is told at once which rule would give it."""
    kubeconfig = control_plane.user_kubeconfig(reader_of_nodes)
    rule = '{apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}'

    def errors() -> str:
        with Terminal("get", "--kubeconfig", kubeconfig, columns=300) as terminal:
            assert terminal.wait_for_end() == 1
        return plain(terminal.written)

    said = wait_for(lambda: text if rule in (text := errors()) else None, "the missing rule")
    assert 'cannot list resource "pods"' in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 2
