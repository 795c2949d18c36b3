"""A program in a pseudoterminal, as a person has it: what it wrote, keys pressed, the window made smaller."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PROGRAM: Final = (sys.executable, "-m", "apiserver")
TIMEOUT_SECONDS: Final = 60
CTRL_C: Final = b"\x03"
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text: str) -> str:
    """The text without escape sequences."""
    return _ESCAPES.sub("", text)


class Terminal:
    """A program with a terminal of its own for as long as a `with` block lasts; it is killed at the end.

    Args:
        arguments: of the program.
        columns: width of the terminal.
        lines: its height.
        environ: what to change in the environment.
        program: what to run, before the arguments.
        stdout: a file for its standard output instead of the terminal.
    """

    def __init__(
        self,
        *arguments: str | Path,
        columns: int = 100,
        lines: int = 30,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        stdout: int | None = None,
    ) -> None:
        self.written = ""
        self._ours, theirs = pty.openpty()
        self.resize(columns, lines)
        usual = {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env=kept | usual | dict(environ or {}),
            preexec_fn=_own_terminal,  # noqa: PLW1509 # there are no threads between fork and exec here
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def resize(self, columns: int, lines: int) -> None:
        """Make the window so large."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def wait_for(self, text: str, *, after: int = 0) -> str:
        """Read until the text was written; escape sequences do not count.

        Args:
            text: what to wait for.
            after: how much of what was written does not count.

        Raises:
            AssertionError: it did not come.
        """
        self._read_until(lambda: text in plain(self.written[after:]))
        assert text in plain(self.written[after:]), self.written
        return self.written

    def wait_for_end(self) -> int:
        """Read to the end; the exit code."""
        self._read_until(lambda: False)
        return self.process.wait(TIMEOUT_SECONDS)

    def _read_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_enough() and time.monotonic() < deadline:
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if not ready:
                continue
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:  # Linux says so when nobody has the other end open any more
                return
            if not chunk:
                return
            self.written += chunk.decode(errors="replace")


def _own_terminal() -> None:
    """Make the standard input the controlling terminal, so that Ctrl-C is a SIGINT."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
