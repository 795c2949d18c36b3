"""`make oracle`: as many random clusters as wanted, the model against the real kube-scheduler."""

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.cluster.binaries import Binaries, UnavailableError, find_binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.oracle.dice import Coverage
from tests.cluster.oracle.drafting import draft, draft_fit
from tests.cluster.oracle.judging import Observation, Verdict, judge
from tests.cluster.oracle.observing import Crew, observe
from tests.cluster.oracle.reporting import KNOWN, KNOWN_FIT, coverage_lines, describe, never_occurred, save

BATCH = 40
"""Clusters that are there at once, each in two copies unless fit is asked for."""

PER_CONTROL_PLANE = 25 * BATCH
"""What is left behind of so many clusters fits into memory with ease."""

ENOUGH_FOR_EVERYTHING = 100
"""With fewer clusters, something may well not occur."""


def main() -> int:
    """Ask about all clusters; 0 if model and scheduler agree everywhere and everything occurred."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(find_binaries(_say), arguments)
    except UnavailableError as error:
        _say(str(error))
        return 1


def _run(binaries: Binaries, arguments: argparse.Namespace) -> int:
    clusters, seed, directory = arguments.clusters, arguments.seed, arguments.save
    began = time.monotonic()
    occurred: Coverage = Counter()
    total = Verdict()
    done = 0
    _say(f"Seed {seed}; disagreements are saved in {directory}.")
    for batch, drawn in _observed(binaries, clusters, seed, fit=arguments.fit):
        for observation in batch:
            verdict = judge(observation)
            total.add(verdict)
            for each in verdict.disagreements:
                _say(describe(each))
            if verdict.disagreements:
                _say(f"  saved as {save(directory, seed, observation, verdict.disagreements)}")
        occurred += drawn
        done += len(batch) if arguments.fit else len(batch) // 2
        _say(f"{done} of {clusters} clusters after {time.monotonic() - began:.0f} s")
    return _conclude(clusters, total, occurred, KNOWN_FIT if arguments.fit else KNOWN)


def _observed(
    binaries: Binaries, clusters: int, seed: int, *, fit: bool
) -> Iterator[tuple[list[Observation], Coverage]]:
    """The observations batch by batch, each with what was drawn for it."""
    for first in range(0, clusters, PER_CONTROL_PLANE):
        last = min(clusters, first + PER_CONTROL_PLANE)
        with (
            tempfile.TemporaryDirectory(prefix="gpuclass-oracle-") as directory,
            ControlPlane(binaries, Path(directory)) as control_plane,
            Crew(control_plane) as crew,
        ):
            for start in range(first, last, BATCH):
                indexes = range(start, min(last, start + BATCH))
                copies = ((draft_fit(seed, index),) if fit else draft(seed, index) for index in indexes)
                drafts = [each for both in copies for each in both]
                drawn = sum((each.drawn for each in drafts), Counter[tuple[str, str]]())
                yield observe(crew, control_plane.client, drafts), drawn


def _conclude(clusters: int, total: Verdict, occurred: Coverage, known: Mapping[str, Iterable[str]]) -> int:
    occurred = occurred + total.counted
    for line in coverage_lines(occurred, known):
        _say(line)
    _say(f"The scheduler placed probes on {total.placed_on_left_out} nodes that are left out by policy.")
    missing = never_occurred(occurred, known)
    for each in missing:
        _say(f"never occurred: {each}")
    _say(f"{clusters} clusters, {len(total.disagreements)} disagreements")
    return 1 if total.disagreements or (missing and clusters >= ENOUGH_FOR_EVERYTHING) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.oracle", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="other clusters (default: %(default)s)")
    parser.add_argument(
        "--fit", action="store_true", help="let cpu, memory and slots be scarce too: judge gpuclasses/fit"
    )
    default = Path(tempfile.gettempdir()) / "gpuclass-oracle-disagreements"
    parser.add_argument("--save", type=Path, default=default, metavar="DIR", help="for snapshots of disagreements")
    return parser.parse_args()


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
