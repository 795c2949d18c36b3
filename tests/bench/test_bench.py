"""The bench itself: a row can fail, and what is loaded is counted."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apiserver.cluster.view import View
from apiserver.serving.versions import EPOCH
from tests.bench import cpu, host
from tests.bench.__main__ import main
from tests.bench.loads import Load, LoadError, find_load
from tests.bench.rows import BEGIN, END, Row, alternating, as_markdown, as_plot, summary, write_between
from tests.bench.tenants import Versions
from tests.cluster.binaries import UnavailableError
from tests.cluster.client import Client, Json
from tests.cluster.pki import CertificateAuthority
from tests.cluster.processes import Process, free_ports
from tests.needs import missing

GPU_POD = "CPU of a GPU pod's line"
FASTER = Row("faster", 30, 10, 2, at_least=True, unit="/s")
SLOWER = Row("slower", 30, 10, 4, at_least=True, unit="/s")


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (FASTER, True),
        (SLOWER, False),
        (Row("the other did nothing", 30, 0, 2, at_least=True, unit="/s"), False),
        (Row("at the bound", 50, None, 50, at_least=False, unit="µs"), True),
        (Row("above the bound", 51, None, 50, at_least=False, unit="µs"), False),
        (Row("nothing was measured", 0, None, 50, at_least=False, unit="µs"), False),
        (Row("nothing is the goal", 0, None, 0, at_least=False, unit=""), True),
        (Row("one where nothing is the goal", 1, None, 0, at_least=False, unit=""), False),
        (Row("no goal is set", 51, None, None, at_least=False, unit="MB"), True),
    ],
    ids=lambda value: value.what if isinstance(value, Row) else "",
)
def test_a_row_is_met_or_missed(row: Row, met: bool) -> None:
    """A goal is a bound; what was not measured is missed."""
    assert row.met is met


def test_rounds_alternate_and_the_median_counts() -> None:
    """Each has its turn in every round, and the warm-up does not count."""
    taken: list[str] = []
    slow = iter([100.0, 5, 1, 4, 2, 3])  # the first warms up

    def take(name: str, value: float) -> float:
        taken.append(name)
        return value

    assert alternating([lambda: take("a", next(slow)), lambda: take("b", 7)]) == (3, 7)
    assert taken == ["a", "b"] * 6


def test_the_document_keeps_what_stands_around_the_table(tmp_path: Path) -> None:
    """Only what lies between the markers is replaced."""
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between(document, as_markdown([FASTER, SLOWER]))
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| what ")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| faster | 30 /s | 10 /s | 3.00 | ≥ 2 | yes |" in text
    assert summary([FASTER, SLOWER]) == "2 rows, 1 missed"
    assert as_plot([FASTER, SLOWER]).count("<rect ") == 3


def test_a_row_without_a_goal_only_tells() -> None:
    """It has neither goal nor verdict, and no bar."""
    row = Row("peak", 51, None, None, at_least=False, unit="MB")
    assert row.cells() == ("peak", "51 MB", "-", "-", "-", "-")
    assert as_plot([FASTER, row]).count("<rect ") == 2


def test_versions_ahead_of_the_clock_are_seen() -> None:
    """More versions in a second than there are ticks are as far ahead as it takes to have a tick for each."""
    versions = Versions(lambda: EPOCH + 1)
    for _ in range(16_000):
        versions.next()
    assert versions.ahead_ms == pytest.approx(1000, rel=0.01)


def run(tmp_path: Path) -> tuple[int, Json]:
    """The exit code for the quickest row, and what was written of it."""
    file = tmp_path / "bench.json"
    code = main([f"--rows={GPU_POD}", f"--json={file}"])
    row, taken = json.loads(file.read_text())["rows"]
    assert (taken["what"], taken["goal"]) == (host.WHAT, None)
    assert 0 <= taken["ours"] <= 100
    return code, row


def test_a_program_made_slower_misses_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A view that counts everything anew for each event is reported as missed, with exit code 1."""
    monkeypatch.setattr(cpu, "EVENTS", 20)
    monkeypatch.setattr(cpu, "NODES", cpu.GPU_NODES)
    code, quick = run(tmp_path)
    assert code == (0 if quick["met"] else 1)  # a busy machine may miss it as well
    recount = View._recount  # noqa: SLF001 # what the view would do without its deltas

    def recount_everything(self: View, _resource: str, _node: str) -> None:
        for state in self._classes.values():
            for node in self._nodes:
                recount(self, state, node)

    monkeypatch.setattr(View, "_recount_sellers", recount_everything)
    code, slow = run(tmp_path)
    assert code == 1
    assert slow["met"] is False
    assert slow["ours"] > 10 * quick["ours"]
    assert capsys.readouterr().out.endswith("2 rows, 1 missed\n")


def test_no_row_of_that_name_is_no_success(tmp_path: Path) -> None:
    """A name mistyped must not look like every goal met."""
    assert main(["--rows=no such row", f"--json={tmp_path / 'bench.json'}"]) == 2


@contextmanager
def bare_server(directory: Path) -> Iterator[tuple[str, Load]]:
    """Bare aiohttp with one answer of 5 bytes, and what loads it."""
    try:
        program = find_load()
    except UnavailableError as error:
        missing(error)
    authority = CertificateAuthority(directory, "ca")
    serving = authority.serving("serving", ("127.0.0.1",))
    answers = directory / "answers.json"
    answers.write_text(json.dumps({"things": "12345"}))
    (port,) = free_ports(1)
    files = map(str, (answers, port, serving.certificate, serving.key, authority.certificate))
    process = Process("bare", (sys.executable, "-m", "tests.bench.yardstick", *files), directory / "log")
    try:
        with Client(port, authority=authority.certificate) as client:
            process.wait_until(lambda: client.request("GET", "/apis/g/v1/things").body == b"12345")
        yield f"https://127.0.0.1:{port}/apis/g/v1/things", Load(program, authority.client("reader"))
    finally:
        process.stop()


def test_what_is_answered_is_counted(tmp_path: Path) -> None:
    """What the load generator says agrees with what was served, and a refusal is an error."""
    with bare_server(tmp_path) as (url, load):
        seen = load.run(url, seconds=0.5, connections=2)
        assert seen["bytes"] >= 5 * seen["count"] > 0
        paced = load.run(url, seconds=1, connections=2, rate=20)
        assert 0 < paced["count"] <= 20
    with pytest.raises(LoadError, match="refused"):
        load.run(url, seconds=0.2, connections=1)
