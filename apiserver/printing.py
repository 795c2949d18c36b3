"""Printing Tables and objects to a terminal, as kubectl does."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_GAP: Final = "   "


def format_table(table: Mapping[str, Any], *, wide: bool) -> str:
    """The Table in aligned columns; "No resources found" without rows.

    Args:
        table: as the API answers it.
        wide: show the columns of lower priority too.
    """
    shown = [index for index, column in enumerate(table["columnDefinitions"]) if wide or not column["priority"]]
    heads = [table["columnDefinitions"][index]["name"].upper() for index in shown]
    rows = [[_text(row["cells"][index]) for index in shown] for row in table["rows"]]
    if not rows:
        return "No resources found\n"
    return "".join(f"{line}\n" for line in _aligned([heads, *rows]))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [_GAP.join(row).rstrip() for row in padded]


def _text(cell: object) -> str:
    """A cell as kubectl writes it: booleans in lower case, one line."""
    if isinstance(cell, bool):
        return str(cell).lower()
    first, newline, _ = ("" if cell is None else str(cell)).partition("\n")
    return first + ("..." if newline else "")
