"""`make bench`: everything compared side by side. The last line counts what was missed; if anything is, 1 is returned.

`--rows TEXT` takes only the rows whose name has the text in it.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench import cpu, freshness, host, races, real, scale, start, tenants, watchers
from tests.bench.loads import find_load
from tests.bench.rows import HEADINGS, Row, as_json, as_markdown, as_plot, as_text, summary, write_between
from tests.bench.stage import staged
from tests.cluster.binaries import UnavailableError, find_binaries
from tests.cluster.catalog import CatalogServer
from tests.cluster.control_plane import ControlPlane

SECONDS: Final = 2.0
ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "performance.md"
PLOT: Final = ROOT / "docs" / "performance.svg"
STAGED_WORDS: Final = (*races.WORDS, *freshness.WORDS, *watchers.WORDS, *real.WORDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench.

    Returns:
        0 when every row meets its goal, 1 when one misses it, 2 when it cannot run.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows with this text in their name")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for which each is loaded in each round")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", metavar="FILE", help="all rows")
    parser.add_argument("--write", action="store_true", help="put the table and the plot into docs/")
    chosen = parser.parse_args(arguments)
    rows = []
    _say(", ".join(HEADINGS))
    began = host.taken()
    try:
        for row in measure(chosen.rows, chosen.seconds):
            _say(as_text(row))
            rows.append(row)
    except UnavailableError as error:
        _complain(str(error))
        return 2
    if not rows:
        _complain(f"there is no row with {chosen.rows!r} in its name")
        return 2
    rows.append(host.row(since=began))
    _say(as_text(rows[-1]))
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(as_json(rows))
    if chosen.write and not chosen.rows:  # a part of the rows must not stand for all
        write_between(DOCUMENT, as_markdown(rows))
        PLOT.write_text(as_plot(rows))
    _say(summary(rows))
    return 1 if any(not row.met for row in rows) else 0


def measure(wanted: str, seconds: float) -> Iterator[Row]:
    """Every row whose name has the text in it; a control plane is started only if one needs it."""
    yield from start.measure(wanted)
    yield from cpu.measure(wanted)
    yield from scale.measure(wanted)
    yield from tenants.measure(wanted)
    if not any(wanted in what for what in STAGED_WORDS):
        return
    binaries = find_binaries(_complain)
    program = find_load()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        ControlPlane(binaries, Path(directory), scheduler=False) as control_plane,
        CatalogServer(control_plane) as catalog,
        staged(control_plane, catalog, program) as stage,
    ):
        yield from races.measure(stage, seconds, wanted)
        yield from freshness.measure(stage, wanted)
        yield from watchers.measure(stage, wanted)
        yield from real.measure(stage, wanted, _complain)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
