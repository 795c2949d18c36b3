"""The example cluster as a tenant sees it, and the example dashboard of a tenant."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.test_serve import Served

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
AURORA, CIRRUS = "tenant-aurora", "tenant-cirrus"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The example snapshot, to be changed."""
    path = tmp_path / "snapshot.yaml"
    path.write_text((EXAMPLES / "snapshot.yaml").read_text())
    return path


@pytest.fixture
def served(copy: Path) -> Iterator[Served]:
    """A server of it."""
    server = Served(copy)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate(timeout=10)


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        pytest.param(
            AURORA,
            [
                ("l40s-12q", 3, 3, 3, "Orderable"),
                ("l40s-24c", 2, 2, 2, "Orderable"),
                ("l40s-passthrough", 1, 1, 1, "Orderable"),
            ],
            id="entitled, with budgets",
        ),
        pytest.param(
            CIRRUS,
            [
                ("l40s-12q", 0, 0, 0, "NotEntitled"),
                ("l40s-24c", 0, 0, 0, "NotEntitled"),
                ("l40s-passthrough", None, 1, 1, "BudgetUnknown"),
            ],
            id="neither entitled nor counted",
        ),
    ],
)
def test_example(served: Served, namespace: str, expected: list[tuple[str, int | None, int, int, str]]) -> None:
    """The example's tenants have the figures that its header works out by hand."""
    text = served.get(f"/apis/catalog.cozystack.io/v1alpha1/namespaces/{namespace}/gpuoffers")[1]
    found = [
        (
            item["metadata"]["name"],
            item.get("orderable"),
            item["orderableAtMost"],
            item["maxPerInstance"],
            item["reason"],
        )
        for item in json.loads(text)["items"]
    ]
    assert found == expected


def test_dashboard(served: Served, copy: Path) -> None:
    """The dashboard prints what there is, and a line when something changes; it is as short as it says."""
    script = EXAMPLES / "tenant_dashboard.py"
    code = [
        line for line in script.read_text().splitlines() if line.strip() and not line.lstrip().startswith(("#", '"""'))
    ]
    assert len(code) <= 26  # 20 lines and the imports
    process = subprocess.Popen([sys.executable, str(script), CIRRUS, served.url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = (line.split() for line in process.stdout)
        listed = sorted(next(lines)[:4] for _ in range(3))
        assert listed == [
            ["ADDED", "l40s-12q", "0", "NotEntitled:"],
            ["ADDED", "l40s-24c", "0", "NotEntitled:"],
            ["ADDED", "l40s-passthrough", "<=1", "BudgetUnknown:"],
        ]
        label = "      kubernetes.io/metadata.name: tenant-cirrus"
        copy.write_text(copy.read_text().replace(label, f'{label}\n      gpuclass.cozystack.io/vgpu: "true"'))
        changed = sorted(next(lines)[:4] for _ in range(2))
        assert changed == [["MODIFIED", "l40s-12q", "9", "Orderable:"], ["MODIFIED", "l40s-24c", "5", "Orderable:"]]
    finally:
        process.kill()
        process.communicate(timeout=10)
