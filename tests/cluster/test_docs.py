"""The documents for users: every command in them does what they say."""

import sys
from pathlib import Path

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.documents import Shell, commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", ["concepts.md", "faq.md", "terminal.md"])
def test_commands(name: str, binaries: Binaries) -> None:
    """Each command of the document succeeds and prints what stands below it."""
    shell = Shell(ROOT, (Path(sys.executable).parent, binaries.kubectl.parent))
    found = commands(DOCS / name)
    assert found
    for command in found:
        shell.run(command)
