"""What the bench has to say: one row per comparison, as lines, JSON, Markdown and a plot."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Final

ROUNDS: Final = 5
BEGIN: Final = "<!-- begin: make bench -->"
END: Final = "<!-- end: make bench -->"
HEADINGS: Final = ("what", "ours", "other", "ratio", "goal", "met")
FONT: Final = 'font-family="sans-serif" font-size="12"'
BAR_WIDTH: Final = 300
LINE_HEIGHT: Final = 22


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    Attributes:
        what: was measured.
        ours: what the program needs or does, in `unit`.
        other: the same of what it is compared with; None when the goal is a figure, not a ratio.
        goal: the bound on the ratio, or on `ours` when there is nothing to compare with; None where none is set, and
            the row only tells.
        at_least: whether the goal is a lower bound.
        unit: of `ours` and `other`.
        note: what a reader must know to judge it.
    """

    what: str
    ours: float
    other: float | None
    goal: float | None
    at_least: bool
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours per other; None when there is no other or it did nothing."""
        return self.ours / self.other if self.other else None

    @property
    def judged(self) -> float | None:
        """What the goal is held against; None when the other was asked for and did nothing."""
        return self.ours if self.other is None else self.ratio

    @property
    def met(self) -> bool:
        """Whether the goal is met. What could not be measured is missed; 0 is met only where 0 is the goal.

        Without a goal there is nothing to miss.
        """
        if self.goal is None:
            return True
        if self.judged is None or (self.judged <= 0 and self.goal):
            return False
        return self.judged >= self.goal if self.at_least else self.judged <= self.goal

    def cells(self) -> tuple[str, ...]:
        """The row in words, in the order of the headings."""
        unit = f" {self.unit}" if self.unit else ""
        goal, met = "-", "-"
        if self.goal is not None:
            goal = f"{'≥' if self.at_least else '≤'} {_number(self.goal)}{unit if self.other is None else ''}"
            met = "yes" if self.met else "no"
        return (
            self.what,
            _number(self.ours) + unit,
            "-" if self.other is None else _number(self.other) + unit,
            "-" if self.ratio is None else f"{self.ratio:.2f}",
            goal,
            met,
        )


def alternating(
    measures: Sequence[Callable[[], float]], *, rounds: int = ROUNDS, warm_up: bool = True
) -> tuple[float, ...]:
    """The median of each measure over rounds in which each is taken once, so that a busy minute hits all alike."""
    if warm_up:
        for measure in measures:
            measure()
    seen = [[measure() for measure in measures] for _ in range(rounds)]
    return tuple(statistics.median(column) for column in zip(*seen, strict=True))


def summary(rows: Sequence[Row]) -> str:
    """The last line."""
    return f"{len(rows)} rows, {sum(not row.met for row in rows)} missed"


def as_text(row: Row) -> str:
    """A row as a line."""
    return ", ".join(row.cells())


def as_json(rows: Iterable[Row]) -> str:
    """All rows for programs."""
    entries = [{**asdict(row), "ratio": row.ratio, "met": row.met} for row in rows]
    return json.dumps({"rows": entries}, indent=2) + "\n"


def as_markdown(rows: Iterable[Row]) -> str:
    """All rows as a table, with what must be known of each."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---:|---:|---:|---:|---|"]
    for row in rows:
        what, *rest = row.cells()
        lines.append(f"| {' | '.join([f'{what} ({row.note})' if row.note else what, *rest])} |")
    return "\n".join(lines)


def write_between(path: Path, table: str) -> None:
    """Replace what stands between the markers of a document.

    Raises:
        ValueError: the markers are not there.
    """
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path}: the lines {BEGIN} and {END} are missing")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def as_plot(rows: Sequence[Row]) -> str:
    """A bar for each row that has a goal, as long as what is left of it: up to the line it is met.

    Bars that go beyond twice the goal are cut off; the figure stands beside them.
    """
    rows = [row for row in rows if row.goal is not None]
    height = LINE_HEIGHT * (len(rows) + 2)
    left, goal_at = 430, 430 + BAR_WIDTH / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="15">share of the goal used (shorter than the line: met)</text>',
        f'<line x1="{goal_at}" x2="{goal_at}" y1="20" y2="{height}" stroke="black"/>',
    ]
    for index, row in enumerate(rows):
        y = LINE_HEIGHT * (index + 1) + 4
        used = _used(row)
        width = min(used, 2.0) * BAR_WIDTH / 2
        colour = "#4878a8" if row.met else "#c04040"
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(row.what)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.0f}" height="16" fill="{colour}"/>')
        parts.append(f'<text x="{left + BAR_WIDTH + 8}" y="{y + 13}">{used:.2f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _used(row: Row) -> float:
    """What part of the goal is used up: 1 is just met, and more is missed."""
    if not row.goal or not row.judged:
        return 0.0 if row.met else 2.0
    return row.goal / row.judged if row.at_least else row.judged / row.goal


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
