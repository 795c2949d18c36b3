"""Server processes with a log each, and free ports for them."""

import contextlib
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.waiting import wait_for

PORTS = range(20_000, 30_000)

LOG_TAIL_LINES = 30
KILL_SECONDS = 15


class ProcessDiedError(Exception):
    """A server process ended by itself, or never became ready."""


class Process:
    """One server process of a cluster; it lives until `stop` or `kill`, and after a kill `start` gives it a new life.

    It leads a process group of its own, so that a Ctrl-C in the terminal reaches only us and the servers are stopped
    in order.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._is_told = False
        self._popen = self._spawn()

    @property
    def pid(self) -> int:
        """The operating system's number of the process."""
        return self._popen.pid

    def start(self) -> None:
        """Start the process anew, with the same command line; it must have ended."""
        if self._popen.poll() is None:
            raise ProcessDiedError(f"{self.name} was to be started, and still runs")
        self._is_told = False
        self._popen = self._spawn()

    def kill(self) -> None:
        """End the process at once, as when the machine takes its memory away."""
        self._popen.kill()
        self._popen.wait(timeout=KILL_SECONDS)

    def freeze(self) -> None:
        """Let the process stand still with everything it holds: its connections stay open."""
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._popen.send_signal(signal.SIGCONT)

    def require_running(self) -> None:
        """Raise when the process has ended.

        Raises:
            ProcessDiedError: it has; the message carries the end of its log.
        """
        code = self._popen.poll()
        if code is not None:
            raise ProcessDiedError(f"{self.name} ended with code {code}; the end of its log:\n{self.log_tail()}")

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_seconds: float = 60) -> None:
        """Wait until the process is ready.

        Args:
            is_ready: asks the server; a refused connection or an OSError counts as not yet.
            timeout_seconds: how long to wait.

        Raises:
            ProcessDiedError: it ended, or is still not ready; the message carries the end of its log.
        """

        def check() -> bool:
            self.require_running()
            with contextlib.suppress(OSError):
                return is_ready()
            return False

        try:
            wait_for(check, f"{self.name} to be ready", timeout_seconds=timeout_seconds)
        except TimeoutError as error:
            raise ProcessDiedError(f"{error}; the end of its log:\n{self.log_tail()}") from error

    def log_tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def terminate(self) -> None:
        """Ask the process to end, and do not wait; twice is once, for a second signal would mean at once."""
        if self._popen.poll() is None and not self._is_told:
            self._is_told = True
            self._popen.send_signal(signal.SIGTERM)

    def stop(self, *, grace_seconds: float = 15) -> None:
        """Ask the process to end, wait, and kill it if it does not; twice is once."""
        self.terminate()
        try:
            self._popen.wait(timeout=grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listened on a moment ago.

    They are none that the kernel hands out by itself: a connection of another test would take one before it is used.
    """
    free: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):  # its own seed: two test runs with one must not meet
        if len(free) == count:
            return free
        with contextlib.suppress(OSError), socket.socket() as each:
            each.bind(("127.0.0.1", port))
            free.append(port)
    raise OSError(f"fewer than {count} of the ports {PORTS[0]} to {PORTS[-1]} are free")
