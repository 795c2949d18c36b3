"""Sending attempts to a server and judging what comes back."""

import contextlib
import random
import re
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.cluster.processes import Process, free_ports
from tests.fuzz.requests import GOOD, LIST, Attempt, attempt

SNAPSHOT: Final = Path(__file__).parents[2] / "manifests" / "examples" / "snapshot.yaml"
STATED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
STATUS_LINE: Final = re.compile(rb"(?:^|\n|\})HTTP/1\.[01] (\d{3})")
GOOD_EVERY: Final = 20
WARM_UP: Final = 500
"""Attempts after which memory is measured first: code is imported and caches fill on the way."""
GROWTH_BYTES: Final = 64 * 2**20
"""What the caches and the allocator may take on after that; a leak of a request's bytes would be far more."""
ANSWER_SECONDS: Final = 0.15
"""For how long an answer is waited for; a watch begins at once and never ends, half a request is never answered."""
GOOD_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Target:
    """A server to attack.

    Attributes:
        port: on loopback.
        pid: its process.
        tls: how to connect, None for plain HTTP.
    """

    port: int
    pid: int
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class Result:
    """What came of it.

    Attributes:
        attempts: how many were made.
        codes: how often each HTTP status came; 0 for a connection that was closed or kept waiting without one.
        faults: what must not be, each with the beginning of what was sent.
        memory: bytes the server held after the warm-up, and at the end.
    """

    attempts: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    memory: tuple[int, int] = (0, 0)

    @property
    def passed(self) -> bool:
        """Whether nothing was at fault."""
        return self.attempts > 0 and not self.faults


def run(seconds: float, seed: int, target: Target | None = None) -> Result:
    """Attack a server for so long.

    An answer of 5xx is a fault unless it is 503 or 504 with a Status that says why. So are the end of the process, a
    well-formed request in between that is not answered as before the attack, and memory that grows by more than 64 MiB.

    Args:
        seconds: for how long.
        seed: names the run; the same seed sends the same.
        target: a running server; None starts one with the example snapshot, plain on loopback.
    """
    if target is None:
        with serving_snapshot() as started:
            return run(seconds, seed, started)
    rng = random.Random(seed)  # noqa: S311 # reproducible, not secret
    result = Result()
    expected = _good_answer(target)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and len(result.faults) < 20:
        made = attempt(rng)
        result.attempts += 1
        _judge(made, exchange(target, made.content), result)
        if result.attempts % GOOD_EVERY == 0:
            _require_alive(target, expected, made, result)
        if result.attempts == WARM_UP:
            result.memory = (_resident_bytes(target.pid), 0)
    _require_alive(target, expected, None, result)
    before, after = result.memory[0], _resident_bytes(target.pid)
    result.memory = (before, after)
    if before and after - before > GROWTH_BYTES:
        result.faults.append(f"memory grew from {before >> 20} to {after >> 20} MiB")
    return result


def exchange(target: Target, content: bytes, *, seconds: float = ANSWER_SECONDS) -> bytes:
    """Send bytes on a new connection and return what comes until it is closed, or falls silent for so long."""
    received = bytearray()
    with contextlib.suppress(OSError), _connect(target, seconds=5) as connection:
        with contextlib.suppress(OSError):  # refused while it is still being sent: the answer is there all the same
            connection.sendall(content)
        connection.settimeout(seconds)
        while block := connection.recv(65536):
            received += block
    return bytes(received)


def _connect(target: Target, *, seconds: float) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", target.port), timeout=seconds)
    return target.tls.wrap_socket(plain, server_hostname="localhost") if target.tls else plain


def _judge(made: Attempt, answer: bytes, result: Result) -> None:
    codes = [int(code) for code in STATUS_LINE.findall(answer)] or [0]
    result.codes.update(codes)
    stated = b'"kind":"Status"' in answer or b'"kind": "Status"' in answer or b"kind: Status" in answer
    for code in codes:
        if code >= HTTPStatus.INTERNAL_SERVER_ERROR and not (code in STATED and stated):
            result.faults.append(f"{code} for {made.kind} {made.content[:600]!r}: {answer[-300:]!r}")


def _good_answer(target: Target) -> bytes:
    """The names in the list of classes; everything else of it may change while the server is attacked."""
    answer = exchange(target, GOOD, seconds=GOOD_SECONDS)
    if not answer.startswith(b"HTTP/1.1 200"):
        raise AssertionError(f"GET {LIST} before the attack: {answer[:300]!r}")
    return _names(answer)


def _names(answer: bytes) -> bytes:
    return b",".join(re.findall(rb'"metadata":\{"name":"([^"]*)"', answer))


def _require_alive(target: Target, expected: bytes, made: Attempt | None, result: Result) -> None:
    answer = exchange(target, GOOD, seconds=GOOD_SECONDS)
    if not answer.startswith(b"HTTP/1.1 200") or _names(answer) != expected:
        after = f"after {made.content[:300]!r}" if made else "at the end"
        result.faults.append(f"a well-formed request {after}: {answer[:300]!r}")


def _resident_bytes(pid: int) -> int:
    """Memory of a process; 0 where the system does not say, or the process is gone."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        if found:
            return int(found[1]) * 1024
    return 0


@contextlib.contextmanager
def serving_snapshot() -> Iterator[Target]:
    """A server of the example snapshot, as a process, plain on loopback."""
    (port,) = free_ports(1)
    command = (sys.executable, "-m", "apiserver", "serve", "--snapshot", str(SNAPSHOT), f"--insecure-port={port}")
    with tempfile.TemporaryDirectory() as directory:
        process = Process("the server", command, Path(directory, "server.log"))
        try:
            target = Target(port, process.pid)
            process.wait_until(lambda: exchange(target, GOOD, seconds=GOOD_SECONDS).startswith(b"HTTP/1.1 200"))
            yield target
            process.require_running()
        finally:
            process.stop()
