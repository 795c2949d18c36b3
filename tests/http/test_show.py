"""`get` and `catalog` of a snapshot, in a pseudoterminal and in a pipe."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from apiserver.cli import run_plugin
from tests.terminals import CTRL_C, PROGRAM, Terminal, plain

EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "snapshot.yaml"
SNAPSHOT = ("--snapshot", str(EXAMPLE))
BOLD, GREEN = "\x1b[1m", "\x1b[32m"
OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


def piped(*arguments: str, code: int = 0) -> str:
    """What the program writes into a pipe."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_table_on_a_terminal() -> None:
    """A terminal gets a bold heading, and no more columns than there is room for."""
    with Terminal("get", "-o", "wide", *SNAPSHOT, columns=110) as terminal:
        assert terminal.wait_for_end() == 0
    assert BOLD in terminal.written
    lines = plain(terminal.written).splitlines()
    assert lines[0].split()[:3] == ["NAME", "FREE", "MAX"]
    assert max(map(len, lines)) <= 110
    assert lines[1].endswith("…")
    assert lines[1].split()[:5] == ["l40s-12q", "9", "6", "7", "16"]


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_no_colours(environ: dict[str, str]) -> None:
    """Who wants none gets no escape sequence at all, only the table."""
    with Terminal("get", *SNAPSHOT, environ=environ) as terminal:
        assert terminal.wait_for_end() == 0
    assert "\x1b" not in terminal.written
    assert terminal.written.replace("\r\n", "\n") == piped("get", *SNAPSHOT)


def test_pipe() -> None:
    """A pipe gets the same without colours, and nothing is cut off."""
    wide = piped("get", "-o", "wide", *SNAPSHOT)
    assert "\x1b" not in wide
    assert "nvidia.com/NVIDIA_L40S-24C" in wide
    assert "UntoleratedTaint: The class does not tolerate the taint node.kubernetes.io/unschedulable" in piped(
        "catalog", "l40s-24c", *SNAPSHOT
    )


def test_page() -> None:
    """The page says what is sold, what is free, where, and why the rest is not."""
    with Terminal("catalog", "l40s-24c", *SNAPSHOT, columns=80) as terminal:
        assert terminal.wait_for_end() == 0
    text = plain(terminal.written)
    lines = text.splitlines()
    assert lines[0] == "l40s-24c  offered"
    assert lines[1] == "NVIDIA L40S, vGPU L40S-24C, 24Gi, at most 2 in one instance, needs a licence"
    assert "7 held" in text
    assert "5 free" in text
    assert "12 unavailable" in text
    assert "5 x 1 device or 2 x 2 devices" in text
    nodes = [line.split()[0] for line in lines if line.startswith("gpu-")]
    assert nodes == ["gpu-04", "gpu-03", "gpu-05", "gpu-06"]  # those that have most free first
    assert "Cordoned: " in text
    assert max(map(len, lines)) <= 80
    assert GREEN in terminal.written


def test_page_in_ascii() -> None:
    """Where only ASCII can be written the bar is of ASCII."""
    with Terminal("catalog", "l40s-24c", *SNAPSHOT, environ={"PYTHONIOENCODING": "ascii"}) as terminal:
        assert terminal.wait_for_end() == 0
    assert terminal.written.isascii()
    assert "###" in terminal.written


def test_page_as_others_want_it() -> None:
    """The same as JSON, YAML, and the Table that the API serves."""
    from_json = json.loads(piped("catalog", "l40s-24c", "-o", "json", *SNAPSHOT))
    assert from_json == yaml.safe_load(piped("catalog", "l40s-24c", "-o", "yaml", *SNAPSHOT))
    assert from_json["kind"] == "GPUClassCatalog"
    assert piped("catalog", "l40s-24c", "-o", "table", *SNAPSHOT).split("\n")[0].split() == [
        "NODE",
        "FREE",
        "REQUESTED",
        "ALLOCATABLE",
        "CAPACITY",
        "ELIGIBLE",
        "REASONS",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(["get", "l40s-24"], 1, "did you mean l40s-24c", id="a near miss"),
        pytest.param(["catalog", "h100"], 1, "there is l40s-12q, l40s-24c, l40s-passthrough", id="nothing near"),
        pytest.param(["catalog"], 2, "NAME: say which class", id="no name"),
        pytest.param(["catalog", "a", "-o", "wide"], 2, "page, table, json, yaml", id="no such output"),
        pytest.param(["get", "--context", "c"], 2, "--context: leave it out with --snapshot", id="a context"),
    ],
)
def test_failures(arguments: list[str], code: int, said: str) -> None:
    """What is wrong is said in a line, with what is right."""
    errors = piped(*arguments, *SNAPSHOT, code=code)
    assert said in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) == 1


def edited(file: Path) -> None:
    """Change the dump: a pod of l40s-24c on gpu-03 is gone, and so is the class l40s-12q."""
    objects = yaml.safe_load_all(EXAMPLE.read_text())
    items = [item for document in objects if document for item in document.get("items", [document])]
    kept = [item for item in items if item["metadata"]["name"] != "l40s-12q"]
    pod = next(
        item
        for item in kept
        if item["kind"] == "Pod" and item["spec"].get("nodeName") == "gpu-03" and "L40S-24C" in json.dumps(item)
    )
    kept.remove(pod)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}))
    new.rename(file)


def test_watch_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal the table is drawn anew in place; Ctrl-C gives the terminal back with the last of it, and 130."""
    file = Path(shutil.copy(EXAMPLE, tmp_path / "snapshot.yaml"))
    with Terminal("get", "--watch", "--snapshot", file, columns=100, lines=20) as terminal:
        terminal.wait_for("l40s-12q")
        assert OTHER_SCREEN in terminal.written
        terminal.wait_for("live, ")
        edited(file)
        before = len(terminal.written)
        terminal.wait_for("l40s-24c              7", after=before)
        terminal.resize(100, 4)
        terminal.wait_for("more lines: make the window higher", after=before)
        file.write_text("a: [")
        terminal.wait_for("not up to date", after=before)
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 130
    assert "Traceback" not in terminal.written
    left = plain(terminal.written[terminal.written.index(FIRST_SCREEN) :])
    assert "l40s-24c" in left
    assert "l40s-12q" not in left


def test_watch_of_a_page(tmp_path: Path) -> None:
    """The page of a class is drawn anew too; SIGTERM gives the terminal back as well."""
    file = Path(shutil.copy(EXAMPLE, tmp_path / "snapshot.yaml"))
    with Terminal("catalog", "l40s-24c", "-w", "--snapshot", file) as terminal:
        terminal.wait_for("5 free")
        edited(file)
        terminal.wait_for("7 free")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_for_end() == 128 + signal.SIGTERM
    assert FIRST_SCREEN in terminal.written
    assert "Traceback" not in terminal.written


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_watch_in_a_pipe(tmp_path: Path, output: str) -> None:
    """A pipe gets a line, or a document, for each change."""
    file = Path(shutil.copy(EXAMPLE, tmp_path / "snapshot.yaml"))
    command = [*PROGRAM, "get", "-w", "-o", output, "--snapshot", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            first = process.stdout.readline()
            edited(file)
            file_of_errors = process.stderr
            told = [first]
            while "DELETED" not in told[-1]:
                told.append(process.stdout.readline())
                assert told[-1]
            file.write_text("a: [")
            assert "not up to date" in file_of_errors.readline()
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert process.wait(30) == 130
            assert file_of_errors.read() == ""
        finally:
            process.kill()
    text = "".join(told) + rest
    if output == "json":
        events = [json.loads(line) for line in text.splitlines()]
    elif output == "yaml":
        events = list(yaml.safe_load_all(text))
    else:
        rows = [line.split() for line in text.splitlines()[1:]]
        assert text.split(maxsplit=2)[:2] == ["EVENT", "NAME"]
        events = [{"type": row[0], "object": {"metadata": {"name": row[1]}}} for row in rows]
    said = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert said[:3] == [("ADDED", "l40s-12q"), ("ADDED", "l40s-24c"), ("ADDED", "l40s-passthrough")]
    assert sorted(said[3:]) == [("DELETED", "l40s-12q"), ("MODIFIED", "l40s-24c")]


def test_a_reader_who_leaves() -> None:
    """A pipe whose reader has gone ends the program without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "get", *SNAPSHOT], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    """As a plugin of kubectl it is the same, and `get` without a command."""
    for arguments, said in (((), "NAME"), (("-o", "wide"), "RESOURCE"), (("catalog", "l40s-24c"), "5 free")):
        assert run_plugin([*arguments, *SNAPSHOT]) == 0
        assert said in capsys.readouterr().out
    assert run_plugin(["l40s-24", *SNAPSHOT]) == 1
    assert capsys.readouterr().err.startswith("kubectl gpuclasses: ")
    with pytest.raises(SystemExit):
        run_plugin(["--help"])
    assert "usage: kubectl gpuclasses" in capsys.readouterr().out
