"""Where text is written to, and what can be done there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TextIO

_DUMB: Final = ("", "dumb")


@dataclass(frozen=True, slots=True)
class Device:
    """A stream as it is written to.

    Attributes:
        stream: the text stream.
        is_terminal: whether a person looks at it.
        redraws: whether what was written can be written over.
        colour: whether colours are wanted.
        unicode: whether more than ASCII can be written.
    """

    stream: TextIO
    is_terminal: bool = False
    redraws: bool = False
    colour: bool = False
    unicode: bool = False

    def size(self) -> tuple[int | None, int | None]:
        """Columns and lines of a terminal now; None where there is no end, or nobody knows it."""
        if not self.is_terminal:
            return None, None
        try:
            columns, lines = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return None, None
        return columns or None, lines or None

    def write(self, text: str) -> None:
        """Write and flush; what the encoding lacks is written as its escape."""
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            encoding = self.stream.encoding
            self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self.stream.flush()


def open_device(stream: TextIO, environ: Mapping[str, str]) -> Device:
    """What a stream can do. Source: no-color.org; TERM=dumb as git and gh take it."""
    is_terminal = stream.isatty()
    redraws = is_terminal and environ.get("TERM", "") not in _DUMB
    return Device(
        stream,
        is_terminal=is_terminal,
        redraws=redraws,
        colour=redraws and not environ.get("NO_COLOR"),
        unicode=(stream.encoding or "").lower().replace("-", "") == "utf8",
    )
