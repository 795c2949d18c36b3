"""Text as it stands in a terminal: how wide it is, what colour it has, and nothing in it that a terminal would obey."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

_DOUBLE: Final = ("W", "F")
_RESET: Final = "\x1b[0m"


class Style(Enum):
    """How text stands out, as the parameter of the escape sequence."""

    BOLD = "1"
    FAINT = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


@dataclass(frozen=True, slots=True)
class Ink:
    """What text can be made of.

    Attributes:
        colour: whether styles are written.
        unicode: whether more than ASCII can be.
    """

    colour: bool = False
    unicode: bool = False

    def paint(self, text: str, style: Style | None) -> str:
        """The text in a style; as it is without one, or without colours."""
        return f"\x1b[{style.value}m{text}{_RESET}" if self.colour and style and text.strip() else text

    def cut(self, text: str, columns: int) -> str:
        """No more of the text than fits, with a mark where it was cut off."""
        if width(text) <= columns:
            return text
        mark = "…" if self.unicode else "~"
        kept = ""
        for character in text:
            if width(kept + character) > columns - 1:
                break
            kept += character
        return kept + mark

    def bar(self, parts: Sequence[tuple[int, str, str]], columns: int) -> Sequence[str]:
        """The parts of a whole, drawn: each with its share of the columns, and at least one if it is not 0.

        Args:
            parts: figure, character, and its replacement in ASCII.
            columns: for all of them together, and no fewer than there are parts.
        """
        whole = sum(figure for figure, _, _ in parts)
        shares = [max(1, figure * columns // whole) if figure else 0 for figure, _, _ in parts] if whole else []
        while sum(shares) > columns:
            shares[shares.index(max(shares))] -= 1
        if shares:
            shares[shares.index(max(shares))] += columns - sum(shares)
        marks = [character if self.unicode else plain for _, character, plain in parts]
        return [mark * share for mark, share in zip(marks, shares, strict=False)]


def plain(value: object) -> str:
    """A value as text that can do nothing to a terminal. Source: kubectl escapes cells for the same reason."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def width(text: str) -> int:
    """Columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in _DOUBLE) for each in text
    )


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """The text, filled with spaces; at the right end of the room if asked for."""
    space = " " * (columns - width(text))
    return space + text if right else text + space
