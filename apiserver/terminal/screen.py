"""A picture that is drawn over and over while it changes, as `watch` and `top` do."""

from types import TracebackType
from typing import Final, Self

from apiserver.terminal.device import Device

_OPEN: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, no cursor, and lines that are too long are cut off instead of going on below."""

_CLOSE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K\r\n"
_CLEAR_REST: Final = "\x1b[J"


class Screen:
    """The whole of a terminal for as long as a `with` block lasts; the last picture stays when it ends.

    Args:
        device: a terminal that can be drawn over.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._last = ""

    def __enter__(self) -> Self:
        self._device.write(_OPEN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._device.write(_CLOSE + self._last)

    def draw(self, picture: str, footer: str) -> None:
        """Show the picture, as much of it as there is room for, and the footer below it."""
        self._last = picture
        lines, (_, height) = picture.splitlines(), self._device.size()
        room = max(1, (height or len(lines) + 2) - 2)
        if len(lines) > room:
            hidden = len(lines) - room + 1
            lines = [*lines[: room - 1], f"({hidden} more lines: make the window higher)"]
        self._device.write(_HOME + "".join(line + _END_OF_LINE for line in [*lines, ""]) + footer + _CLEAR_REST)
