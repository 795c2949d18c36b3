"""What `get --snapshot` has to import: each package costs its start."""

import subprocess
import sys
from pathlib import Path

SNAPSHOT = Path(__file__).parents[2] / "manifests" / "examples" / "snapshot.yaml"
RUN = """
import sys
from apiserver.cli import run
assert run(["get", "--snapshot", sys.argv[1]]) == 0
print(*sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)), file=sys.stderr)
"""
HEAVY = {"aiohttp", "cryptography", "kubernetes_asyncio", "uvloop", "pydantic"}


def test_get_from_a_snapshot_imports_neither_the_server_nor_the_cluster_client() -> None:
    """Only the packages that reading a dump and printing it need, and not the server's."""
    command = (sys.executable, "-c", RUN, str(SNAPSHOT))
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    packages = set(done.stderr.splitlines()[-1].split())
    assert {"apiserver", "msgspec", "orjson", "yaml"} <= packages
    assert not packages & HEAVY
