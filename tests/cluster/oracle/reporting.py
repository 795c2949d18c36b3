"""Saying what occurred, and keeping what disagreed."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from apiserver.gpu.capacity import NodeReason
from tests.cluster.oracle import drafting, judging, quantities, shapes, taints
from tests.cluster.oracle.dice import Coverage
from tests.cluster.oracle.judging import Disagreement, Observation

KNOWN: Mapping[str, Iterable[str]] = {
    judging.VERDICT: judging.KINDS,
    judging.REASON: [reason.value for reason in NodeReason],
    drafting.HEALTH: drafting.HEALTHS,
    drafting.DEVICES: drafting.OFFERS,
    taints.TAINTED: taints.TAINTS,
    taints.TOLERATING: taints.FORMS,
    quantities.GROUP: quantities.NAMES,
    shapes.GROUP: shapes.SHAPES,
    drafting.PHASE: drafting.PHASES,
    drafting.PLACE: drafting.PLACES,
    drafting.END: drafting.ENDS,
}
"""Everything that should occur, by group."""

KNOWN_FIT: Mapping[str, Iterable[str]] = {
    **KNOWN,
    shapes.GROUP: [*shapes.SHAPES, *shapes.BESIDE],
    drafting.ASKED: drafting.ASKED_WEIGHTS,
    drafting.SCARCE: drafting.SCARCITIES,
    quantities.CPU_FORM: quantities.CPU_SPELLINGS,
    quantities.MEMORY_FORM: quantities.MEMORY_SPELLINGS,
}
"""The same for clusters where cpu, memory and slots are scarce too."""


def coverage_lines(occurred: Coverage, known: Mapping[str, Iterable[str]] = KNOWN) -> Iterator[str]:
    """How often everything known occurred, group by group."""
    for group, names in known.items():
        yield f"{group}:"
        yield from (f"  {occurred[group, name]:7}  {name}" for name in names)


def never_occurred(occurred: Coverage, known: Mapping[str, Iterable[str]] = KNOWN) -> list[str]:
    """What is known but did not occur."""
    return [f"{group}: {name}" for group, names in known.items() for name in names if not occurred[group, name]]


def describe(disagreement: Disagreement) -> str:
    """One disagreement in a line."""
    reasons = f" ({', '.join(disagreement.reasons)})" if disagreement.reasons else ""
    return (
        f"{disagreement.cluster}, {disagreement.where}: the model says {disagreement.predicted}, "
        f"the scheduler placed {disagreement.placed}{reasons}"
    )


def save(directory: Path, seed: int, observation: Observation, disagreements: Iterable[Disagreement]) -> Path:
    """Keep the dump that `gpuclass-catalog get --snapshot` reads, and beside it what the scheduler did.

    Returns:
        The file of the dump.
    """
    directory.mkdir(parents=True, exist_ok=True)
    snapshot = directory / f"{observation.cluster}.json"
    snapshot.write_text(observation.snapshot)
    selector = ",".join(f"{key}={value}" for key, value in observation.selector.items())
    beside = {
        "seed": seed,
        "cluster": observation.cluster,
        "nodeSelector": selector,
        "devicesPerProbe": observation.devices,
        "besidePerProbe": observation.beside,
        "placed": dict(Counter(observation.placed)),
        "refused": observation.refused,
        "disagreements": [asdict(each) for each in disagreements],
    }
    snapshot.with_suffix(".placed.json").write_text(json.dumps(beside, indent=2))
    return snapshot
