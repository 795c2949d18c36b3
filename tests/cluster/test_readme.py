"""The README and the pages about offers and fit: every command in them does what they say."""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.documents import Command, Shell, commands
from tests.cluster.processes import Process, free_ports
from tests.cluster.workload import STORED

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
PORT: Final = "8080"
OWN_CLUSTER: Final = "Your own cluster, with nothing installed"
OF_THE_EXAMPLE: Final = ("With kubectl", "For a dashboard")
DASHBOARD: Final = "tenant_dashboard.py"
"""Ends with Ctrl-C; tests/http/test_tenant_dashboard.py runs it."""

ELSEWHERE: Final = ("Two commands", "Install")
"""`make serve` is below, `make test` is what runs this, and test_install.py follows the rest."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where `make serve` serves the example."""
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("readme") / "serve.log"
    serving = Process("make serve", ("make", "-C", str(ROOT), "-o", ".venv/.ready", "serve", f"PORT={port}"), log)
    try:
        serving.wait_until(lambda: "serving at" in log.read_text())
        yield port
    finally:
        serving.stop()


def test_of_the_example(port: int, binaries: Binaries) -> None:
    """What kubectl and the examples print with `make serve` running is what stands below the commands."""
    shell = Shell(ROOT, (Path(sys.executable).parent, binaries.kubectl.parent))
    for command in _found(README, OF_THE_EXAMPLE):
        shell.run(_against(command, port))
    for name in ("offers.md", "fit.md"):
        for command in _found(ROOT / "docs" / name):
            if DASHBOARD not in command.script:
                shell.run(_against(command, port))


def test_of_a_cluster(catalog: CatalogServer, control_plane: ControlPlane, api: Client, tmp_path: Path) -> None:
    """The classes are stored and read with one's own kubeconfig, and from a dump."""
    assert catalog.port
    for each in ("manifests", ".venv"):
        (tmp_path / each).symlink_to(ROOT / each if each == "manifests" else Path(sys.prefix))
    environment = {"KUBECONFIG": str(control_plane.kubeconfig), "HOME": str(tmp_path)}
    shell = Shell(tmp_path, (control_plane.binaries.kubectl.parent,), environment)
    printed = [shell.run(command) for command in _found(README, (OWN_CLUSTER,))]
    names = {each["metadata"]["name"] for each in api.get(STORED)["items"]}
    assert names
    assert all(name in each for each in printed for name in names)


def test_every_command_is_run() -> None:
    """A heading with commands that no test follows is a mistake."""
    assert {each.heading for each in commands(README)} == {OWN_CLUSTER, *OF_THE_EXAMPLE, *ELSEWHERE}


def _found(document: Path, headings: tuple[str, ...] = ()) -> list[Command]:
    found = [each for each in commands(document) if not headings or each.heading in headings]
    assert found, (document, headings)
    return found


def _against(command: Command, port: int) -> Command:
    """The same at that server, where ages are what they are."""
    script = command.script.replace(PORT, str(port))
    if script.startswith("kubectl "):
        script = script.replace("kubectl ", f"kubectl --server=http://127.0.0.1:{port} ", 1)
    return dataclasses.replace(command, script=script, output=re.sub(r"\b\d+d\b", "…", command.output))
