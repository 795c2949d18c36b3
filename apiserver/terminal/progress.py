"""What is being waited for, said to a person who has waited for a moment."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from apiserver.terminal.device import Device

AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.2
_LINE_START: Final = "\r\x1b[K"


class Progress:
    """Says what is going on while a `with` block lasts, and takes it away again.

    Only a terminal is told. A thread of its own writes, so that it does not matter what the block waits for.

    Args:
        device: where to say it.
        say: what to say now, in one line.
    """

    def __init__(self, device: Device, say: Callable[[], str]) -> None:
        self._device = device
        self._say = say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._device.is_terminal:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._device.is_terminal:
            self._thread.join()

    def _run(self) -> None:
        if self._done.wait(AFTER_SECONDS):
            return
        if not self._device.redraws:
            self._device.write(self._say() + "\n")
            return
        while not self._done.wait(_EVERY_SECONDS):
            columns, _ = self._device.size()
            self._device.write(_LINE_START + self._say()[: (columns or 80) - 1])
        self._device.write(_LINE_START)
