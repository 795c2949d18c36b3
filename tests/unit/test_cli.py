"""The command line: what is printed, and the exit codes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from apiserver.cli import run
from apiserver.terminal.tables import TableWriter

NOBODY = """
import pwd, sys
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
from apiserver.cli import run
sys.exit(run(["get", "--kubeconfig", sys.argv[1]]))
"""
EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "snapshot.yaml"


def get(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run `get` on the example snapshot; what it wrote to standard output and to standard error."""
    assert run(["get", "--snapshot", str(EXAMPLE), *arguments]) == code
    written = capsys.readouterr()
    return written.out, written.err


FIGURES = ("capacity", "allocatable", "requested", "overcommitted", "free", "unavailable", "maxFreePerNode")


@pytest.mark.parametrize(
    ("name", "figures", "max_per_instance"),
    [
        pytest.param("l40s-passthrough", (8, 7, 7, 1, 1, 1, 1), 1, id="a sick card, held by a pod all the same"),
        pytest.param("l40s-24c", (24, 12, 7, 0, 5, 12, 3), 2, id="a cordoned and a tainted node"),
        pytest.param("l40s-12q", (16, 16, 7, 0, 9, 0, 6), 6, id="the taint is tolerated"),
    ],
)
def test_example(
    capsys: pytest.CaptureFixture[str], name: str, figures: tuple[int, ...], max_per_instance: int
) -> None:
    """The example cluster has the figures that its header works out by hand."""
    status = json.loads(get(capsys, name, "-o", "json")[0])["status"]
    assert tuple(status[key] for key in FIGURES) == figures
    assert (status["maxPerInstance"], status["reason"], status["orderable"]) == (
        max_per_instance,
        "Offered",
        status["free"],
    )


def test_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and YAML say the same: a list as the API has it, versions aside."""
    from_json = json.loads(get(capsys, "-o", "json")[0])
    from_yaml = yaml.safe_load(get(capsys, "-o", "yaml")[0])
    for listing in (from_json, from_yaml):
        for each in [listing, *listing["items"]]:
            assert int(each["metadata"].pop("resourceVersion")) > 0
    assert from_json == from_yaml
    assert (from_json["kind"], len(from_json["items"])) == ("GPUClassList", 3)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The Table has the columns of kubectl, and more of them when wide."""
    lines = get(capsys)[0].splitlines()
    assert lines[0].split() == ["NAME", "FREE", "MAX", "REQUESTED", "ALLOCATABLE", "OFFERED", "REASON", "AGE"]
    assert [line.split()[:7] for line in lines[1:]] == [
        ["l40s-12q", "9", "6", "7", "16", "true", "Offered"],
        ["l40s-24c", "5", "2", "7", "12", "true", "Offered"],
        ["l40s-passthrough", "1", "1", "7", "7", "true", "Offered"],
    ]
    assert "nvidia.com/NVIDIA_L40S-24C" in get(capsys, "l40s-24c", "-o", "wide")[0]


def test_failures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A class that is not there, a file that is not, and one that is no dump end with 1; wrong settings with 2."""
    assert 'gpuclasses.catalog.cozystack.io "none" not found' in get(capsys, "none", code=1)[1]
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    for file in (broken, tmp_path / "missing"):
        assert run(["get", "--snapshot", str(file)]) == 1
        assert str(file) in capsys.readouterr().err
    assert run(["get", "-o", "xml", "-v", "11"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump can be piped in."""
    monkeypatch.setattr("sys.stdin", io.StringIO(EXAMPLE.read_text()))
    assert run(["get", "--snapshot", "-", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 3


def test_no_rows() -> None:
    """A Table without rows says so."""
    assert TableWriter().text({"columnDefinitions": [], "rows": []}) == "No resources found\n"


def test_cells() -> None:
    """Cells are one line each, booleans in lower case, null is nothing."""
    columns = [{"name": name, "priority": 0} for name in "ABC"]
    rows = [{"cells": [True, None, "one\ntwo"]}, {"cells": ["x", 10, ""]}]
    printed = TableWriter().text({"columnDefinitions": columns, "rows": rows})
    assert printed == "A      B    C\ntrue        one...\nx      10\n"


def test_without_a_home(tmp_path: Path) -> None:
    """A bare number for a user, with no HOME and no entry among the users, is told what is wrong as anybody is."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("contexts: []")
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, str(kubeconfig)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"gpuclass-catalog: kubeconfig {kubeconfig}" in done.stderr
    assert "Traceback" not in done.stderr
