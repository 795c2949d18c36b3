"""The documents for users: every command in them does what they say."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import API, CatalogServer
from tests.cluster.control_plane import ControlPlane
from tests.cluster.documents import DOCS, ROOT, Shell, commands, languages
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for

HERE: Final = "test_docs.py"
ON_THE_EXAMPLE: Final = ("concepts.md", "faq.md", "terminal.md")
RUN_BY: Final = {
    **dict.fromkeys(ON_THE_EXAMPLE, HERE),
    "README.md": "test_readme.py",
    "fit.md": "test_readme.py",
    "image.md": HERE,
    "install.md": "test_install.py",
    "metrics.md": "test_monitoring.py",
    "offers.md": "test_readme.py",
    "page.md": HERE,
    "runbooks.md": "test_runbooks.py",
}
"""Each page that has commands or queries, and the test that follows all of them."""

COMMANDS: Final = {"sh", "bash", "console", "promql"}
NO_COMMANDS: Final = {"json", "text", "yaml"}
BROWSER: Final = '#!/bin/sh\necho "$1" > "$0.opened"\n'


@pytest.mark.parametrize("name", ON_THE_EXAMPLE)
def test_commands(name: str, binaries: Binaries) -> None:
    """Each command of the document succeeds and prints what stands below it."""
    shell = Shell(ROOT, (Path(sys.executable).parent, binaries.kubectl.parent))
    found = commands(DOCS / name)
    assert found
    for command in found:
        shell.run(command)


def test_page(
    catalog: CatalogServer, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ui` opens the browser at a page that is there, over the cluster of the kubeconfig and over the dump."""
    catalog.require_running()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (block,) = commands(DOCS / "page.md")
    listed = []
    for number, line in enumerate(block.script.splitlines()):
        assert line.startswith("gpuclass-catalog ui"), line
        browser = tmp_path / str(number)
        browser.write_text(BROWSER)
        browser.chmod(0o700)
        monkeypatch.setenv("BROWSER", str(browser))
        listed.append(_shown(line, browser.with_suffix(".opened"), tmp_path / "log"))
    assert listed == [0, 3]


def _shown(line: str, opened: Path, log: Path) -> int:
    """Run `ui` until its page has been opened and its classes listed; how many these are."""
    process = Process("ui", ("bash", "-c", f"exec {line}"), log)
    try:
        page = wait_for(lambda: opened.read_text().strip() if opened.exists() else None, "the browser")
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/html")
        address = page.removesuffix("/ui/") + f"{API}/gpuclasses"
        wait_for(lambda: _answers(address), "the first sync")
        with urllib.request.urlopen(address, timeout=30) as answer:
            return len(json.load(answer)["items"])
    finally:
        process.stop()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=30):
            return True
    except urllib.error.HTTPError:
        return False


def test_image() -> None:
    """Make knows what the page sets. It only says here what it would do: tests/image builds with the same target.

    The images that the page names come from registries, which a test does not ask.
    """
    builders = ROOT / "no-such-directory"
    for command in commands(DOCS / "image.md"):
        for line in command.script.splitlines():
            script, _, _ = line.partition("  #")
            assert script.startswith("make image"), line
            shell = Shell(ROOT, (builders,), {"MAKEFLAGS": "n"})
            said = shell.run(type(command)(script, "", command.heading, command.place))
            for word in script.split()[2:]:
                assert word.rpartition("=")[2].strip('"') in said, (word, said)


def test_every_command_is_run() -> None:
    """A page with commands that no test follows is a mistake, and so is a block that does not say what it is."""
    found = set()
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "manifests").rglob("*.md")]:
        spoken = set(languages(page))
        assert spoken <= COMMANDS | NO_COMMANDS, page
        if spoken & COMMANDS:
            found.add(page.name)
    assert found == set(RUN_BY)
    for name, test in RUN_BY.items():
        assert name in Path(__file__).with_name(test).read_text(), (name, test)
