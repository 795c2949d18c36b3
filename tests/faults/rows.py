"""One row of the table: a fault, how it is made, what its effect must be, and what came of it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.faults.judging import Judge, Verdict
from tests.faults.stage import Stage

RECOVERY_SECONDS: Final = 5
"""The longest a recovery may take once the other side is back."""


class NoEffectError(AssertionError):
    """A fault was made, and what it must bring about did not come, or something it must not."""


def require(is_so: object, what: str) -> None:
    """Raise unless something is so.

    Raises:
        NoEffectError: it is not.
    """
    if not is_so:
        raise NoEffectError(what)


@dataclass(slots=True)
class Noted:
    """What a fault notes while it is made.

    Attributes:
        times: how often it was made.
        recoveries: seconds each recovery took.
        facts: what was seen of its effect, for people.
    """

    times: int = 0
    recoveries: list[float] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: as in the table.
        run: makes it and waits until all is well again; raises when its effect does not show.
        memory_limit: growth of the surviving server's memory that is allowed, as a share; None where the fault is
            itself about holding much.
    """

    name: str
    run: Callable[[Stage, Noted], None]
    memory_limit: float | None = None


@dataclass(slots=True)
class Row:
    """What came of one fault; what is counted is filled in by the judge."""

    fault: Fault
    noted: Noted
    began: float
    memory_before: float
    ended: float = 0
    memory_after: float = 0
    problems: list[str] = field(default_factory=list)
    wrong: int = 0
    stale: int = 0
    mixed: int = 0
    judged: int = 0
    lost: Counter[str] = field(default_factory=Counter)


def make(fault: Fault, stage: Stage) -> Row:
    """Make one fault, and note what can be noted at once."""
    row = Row(fault, Noted(), time.time(), stage.memory_mib())
    try:
        fault.run(stage, row.noted)
    except Exception as error:  # noqa: BLE001 # whatever goes wrong is what the row says; the others follow
        row.problems.append(f"{type(error).__name__}: {' '.join(str(error).split())[:600]}")
    row.ended, row.memory_after = time.time(), stage.memory_mib()
    slowest = max(row.noted.recoveries, default=0.0)
    if slowest > RECOVERY_SECONDS:
        row.problems.append(f"recovery took {slowest:.1f} s")
    if fault.memory_limit is not None and row.memory_after > row.memory_before * (1 + fault.memory_limit):
        row.problems.append(f"memory grew from {row.memory_before:.1f} to {row.memory_after:.1f} MiB")
    return row


def judge_rows(rows: Sequence[Row], stage: Stage, judge: Judge) -> list[str]:
    """Fill in what was told and what was lost while each fault lasted, and describe the worst answers."""
    verdicts: dict[tuple[object, ...], Verdict] = {}
    examples = []
    for told in list(stage.load.told):
        row = next((each for each in rows if each.began <= told.answered <= each.ended), None)
        if row is None:
            continue
        key = (round(told.asked, 1), id(told.figures), told.is_list)
        if key not in verdicts:
            verdicts[key] = judge.verdict(told)
        verdict = verdicts[key]
        row.judged += 1
        row.mixed += verdict is Verdict.MIXED
        row.stale += verdict is Verdict.STALE
        row.wrong += verdict is Verdict.WRONG
        if verdict in (Verdict.WRONG, Verdict.STALE):
            around = [
                f"{each.version:g} {each.kind}/{each.name}{' gone' if each.object is None else ''}"
                for each in judge.history.versions
                if each.came[0] - 1 <= told.answered and told.asked <= each.came[1] + 1
            ]
            examples.append(f"{row.fault.name}: {verdict.name} {told}; about then came {', '.join(around)}")
    for refused in list(stage.load.refused):
        for row in rows:
            if row.began <= refused.answered <= row.ended:
                row.lost[f"{refused.server}: {refused.what}"] += 1
    return examples[:8]


def table(rows: Sequence[Row]) -> str:
    """The rows as a table, what was lost below it."""
    head = ["fault", "times", "wrong figures", "stale figures shown as live", "mixed", "judged", "longest recovery"]
    head += ["requests lost", "memory before", "after"]
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    for row in rows:
        for name, facts in (("seen", row.noted.facts), ("FAILED", row.problems)):
            text += [f"{row.fault.name}: {name}: {fact}" for fact in facts]
        if row.lost:
            counted = ", ".join(f"{what} x {count}" for what, count in sorted(row.lost.items()))
            text.append(f"{row.fault.name}: lost: {counted}")
    return "\n".join(text)


def last_line(rows: Sequence[Row]) -> str:
    """How many faults, and what they brought about."""
    faults = sum(row.noted.times for row in rows)
    wrong, stale = sum(row.wrong for row in rows), sum(row.stale for row in rows)
    return f"{faults} faults, {wrong} wrong figures, {stale} stale"


def is_failed(rows: Sequence[Row]) -> bool:
    """Whether any of it must not be."""
    return any(row.wrong or row.stale or row.problems or not row.noted.times for row in rows)


def _cells(row: Row) -> list[str]:
    slowest = f"{max(row.noted.recoveries):.1f} s" if row.noted.recoveries else "-"
    figures = (row.noted.times, row.wrong, row.stale, row.mixed, row.judged)
    memory = (f"{row.memory_before:.1f} MiB", f"{row.memory_after:.1f} MiB")
    return [row.fault.name, *map(str, figures), slowest, str(row.lost.total()), *memory]
