"""`make faults`: make every fault while readers and watchers go on, and print a table of what came of each."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.binaries import Binaries, UnavailableError, find_binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.network import Network, NetworkUnavailableError
from tests.faults import clients, cuts, trust
from tests.faults.following import find_follower
from tests.faults.judging import doubt
from tests.faults.kills import ROLLING, kills
from tests.faults.rows import Fault, Row, is_failed, judge_rows, last_line, make, table
from tests.faults.stage import MAX_STALENESS, set_up

WATCHERS: Final = 15
STORMS: Final = 3
FUZZ_SECONDS: Final = 60


def all_faults(count: int, seed: int) -> tuple[Fault, ...]:
    """Every row of the table, in order. A fault of another package is one more line here."""
    return (
        kills(count, seed),
        cuts.CUT,
        cuts.BLACKHOLE,
        Fault("410 storm (etcd compacted)", cuts.expire_often(STORMS)),
        trust.CLIENT_CA,
        trust.FRONT_PROXY_CA,
        trust.CONFIG_MAP,
        trust.REVIEWS,
        trust.SERVING,
        clients.WATCHERS,
        clients.SLOW_LORIS,
        clients.OVERSIZED,
        clients.fuzz(FUZZ_SECONDS, seed),
        cuts.FROZEN,
        cuts.WATCHES_FROZEN,
        ROLLING,
    )


def main() -> int:
    """Run the faults; 1 if any figure was wrong or stale, or any fault's effect was not what it must be."""
    arguments = _parse()
    faults = [each for each in all_faults(arguments.kills, arguments.seed) if arguments.only in each.name]
    if ROLLING in faults and (reason := why_no_network()):
        say(f"No {ROLLING.name}: {reason}")
        faults.remove(ROLLING)
    try:
        binaries, follower = find_binaries(say), find_follower(say)
    except UnavailableError as error:
        say(str(error))
        return 1
    with tempfile.TemporaryDirectory(prefix="gpuclass-faults-") as directory:
        rows = run(binaries, follower, Path(directory), faults, seed=arguments.seed)
    return int(is_failed(rows))


def run(binaries: Binaries, follower: Path, directory: Path, faults: Sequence[Fault], *, seed: int) -> list[Row]:
    """Make the faults one after the other, judge everything, and print the table."""
    with (
        ControlPlane(binaries, directory, scheduler=False) as control_plane,
        set_up(control_plane, follower, seed=seed, watchers=WATCHERS) as stage,
    ):
        rows = []
        for fault in faults:
            begun = time.monotonic()
            rows.append(make(fault, stage))
            problems = f": {'; '.join(rows[-1].problems)}" if rows[-1].problems else ""
            say(f"{'FAIL' if problems else 'ok'} {fault.name} ({time.monotonic() - begun:.0f} s){problems}")
        judge = stage.judge()
        for example in judge_rows(rows, stage, judge):
            say(example)
        say(f"{len(stage.writer.written)} changes were confirmed, {stage.writer.failed} were not answered")
    say(table(rows))
    say(doubt(judge, stage.load.told, MAX_STALENESS))
    say(last_line(rows))
    return rows


def why_no_network() -> str:
    """Why replicas cannot have addresses of their own here; empty if they can."""
    try:
        with Network():
            return ""
    except NetworkUnavailableError as reason:
        return str(reason)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="kill so many processes (50)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of their order and of the changes (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the faults whose name contains this")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
