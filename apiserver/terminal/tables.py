"""Tables in aligned columns, as kubectl prints them; figures stand at the right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apiserver.terminal.text import Ink, Style, pad, plain, width

GAP: Final = "   "
_TIGHT_GAP: Final = " "
_LEAST_NAME: Final = 12
_LEAST_TEXT: Final = 6
_FIGURES: Final = ("integer", "number")

Emphasis = Callable[[str, Any], Style | None]
"""How a cell stands out, from the name of its column and its value."""


def no_emphasis(_: str, __: object) -> Style | None:
    """Nothing stands out."""
    return None


@dataclass(slots=True)
class TableWriter:
    """Writes Tables of one kind below each other.

    Attributes:
        wide: show the columns of lower priority too.
        ink: what the text is made of.
        columns: how much room there is; None for any.
        emphasis: how cells stand out.
    """

    wide: bool = False
    ink: Ink = field(default_factory=Ink)
    columns: int | None = None
    emphasis: Emphasis = no_emphasis
    _widths: list[int] = field(default_factory=list)

    def text(self, table: Mapping[str, Any], *, heads: bool = True) -> str:
        """The Table in lines, no column narrower than it was before; "No resources found" without rows.

        Args:
            table: as the API answers it.
            heads: whether the headings are wanted.
        """
        shown = [
            (index, each) for index, each in enumerate(table["columnDefinitions"]) if self.wide or not each["priority"]
        ]
        rows = [[row["cells"][index] for index, _ in shown] for row in table["rows"]]
        if not rows:
            return "No resources found\n" if heads else ""
        definitions = [definition for _, definition in shown]
        texts = [[_text(cell) for cell in row] for row in rows]
        names = [plain(definition["name"]).upper() for definition in definitions]
        self._widen([names, *texts])
        widths, gap = fit(self._widths, definitions, self.columns)

        def line(cells: Sequence[str], styles: Sequence[Style | None]) -> str:
            return gap.join(self._cells(cells, widths, definitions, styles))

        lines = [line(names, [Style.BOLD] * len(names))] if heads else []
        for cells, row in zip(texts, rows, strict=True):
            styles = [
                self.emphasis(definition["name"], value) for definition, value in zip(definitions, row, strict=True)
            ]
            lines.append(line(cells, styles))
        return "".join(f"{line}\n" for line in lines)

    def _widen(self, rows: Sequence[Sequence[str]]) -> None:
        needed = [max(map(width, column)) for column in zip(*rows, strict=True)]
        self._widths = [max(pair) for pair in zip(needed, self._widths or needed, strict=True)]

    def _cells(
        self,
        cells: Sequence[str],
        widths: Sequence[int],
        definitions: Sequence[Mapping[str, Any]],
        styles: Sequence[Style | None],
    ) -> Sequence[str]:
        """The cells of a line as they are written, without what is empty at its end."""
        padded = [
            pad(self.ink.cut(cell, columns), columns, right=definition.get("type") in _FIGURES)
            for cell, columns, definition in zip(cells, widths, definitions, strict=True)
        ]
        padded[-1] = padded[-1].rstrip()
        while len(padded) > 1 and not padded[-1]:
            del padded[-1]
            padded[-1] = padded[-1].rstrip()
        return [self.ink.paint(cell, style) for cell, style in zip(padded, styles, strict=False)]


def fit(
    widths: Sequence[int], definitions: Sequence[Mapping[str, Any]], room: int | None, gap: str = GAP
) -> tuple[list[int], str]:
    """The widths and what stands between them, made smaller as far as it goes where there is too little room.

    First texts are cut, then the name, then there is less space between all of them. A figure is never cut.
    """
    fitted = list(widths)
    over = 0 if room is None else sum(widths) + len(gap) * (len(widths) - 1) - room
    texts = [index for index, each in enumerate(definitions) if each.get("type") == "string"]
    names = [index for index in texts if definitions[index].get("format") == "name"]
    for least, indexes in ((_LEAST_TEXT, [index for index in texts if index not in names]), (_LEAST_NAME, names)):
        for index in sorted(indexes, key=lambda each: -fitted[each]):
            head = max(least, width(definitions[index]["name"]))
            taken = max(0, min(over, fitted[index] - head))
            fitted[index] -= taken
            over -= taken
    return (fitted, gap) if over <= 0 or gap == _TIGHT_GAP else fit(widths, definitions, room, _TIGHT_GAP)


def _text(cell: object) -> str:
    """A cell as kubectl writes it: booleans in lower case, one line."""
    if isinstance(cell, bool):
        return str(cell).lower()
    first, newline, _ = ("" if cell is None else str(cell)).partition("\n")
    return plain(first) + ("..." if newline else "")
