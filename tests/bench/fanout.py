"""What it costs to tell many watchers of one class that it changed: `python -m tests.bench.fanout`.

1,000 watches over TLS with a client certificate, without a cluster; the class is changed ten times a second from
inside. Beside ours, two that write the same bytes and nothing else: uvloop's transports, and bare sockets in a plain
loop, than which nothing in Python is less. The processor time of the process for each event says more than the delay,
on a machine that others use as well. `--lists RATE` reads lists of 100 from ours meanwhile, `--profile SECONDS` writes
what py-spy saw of ours.
"""

import argparse
import asyncio
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
import uvloop

from apiserver.catalog.gpuclasses import gpu_class_object
from tests.bench.answers import BASE, USER, cpu_seconds, make_view, py_spy, serving, stored_class
from tests.bench.loads import Load, find_load, result, told, watching
from tests.cluster.pki import CertificateAuthority, KeyPair
from tests.cluster.processes import free_ports

NAME: Final = "class-000"
STAMP: Final = "bench/at"
OURS: Final = "ours"
TRANSPORTS: Final = "uvloop's transports"
SOCKETS: Final = "bare sockets"
SPARE_SECONDS: Final = 60
"""For opening the watches, and for what is told late."""

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

Change = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the class is changed.

    Attributes:
        watchers: who are told each time.
        per_second: changes.
        seconds: for which.
    """

    watchers: int
    per_second: int
    seconds: int


# What serves, each in a process of its own.


async def serve_ours(port: int, pair: KeyPair, authority: Path, pace: Pace) -> None:
    """Serve as on a cluster."""
    view = make_view()

    def change(stamp: int) -> None:
        view.apply_class(stored_class(0, **{STAMP: str(stamp)}))

    async with serving(view, port, pair, authority):
        await _serve(change, pace)


async def serve_transports(port: int, pair: KeyPair, _: Path, pace: Pace) -> None:
    """Write the lines to whoever has asked for anything, through the event loop."""
    transports: list[asyncio.WriteTransport] = []
    line = _make_line()

    class Asked(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's own is no subclass

        def data_received(self, _: bytes) -> None:
            self._transport.write(HEAD + line("ADDED", 0))
            transports.append(self._transport)

    def change(stamp: int) -> None:
        chunk = line("MODIFIED", stamp)
        for transport in transports:
            transport.write(chunk)

    loop = asyncio.get_running_loop()
    async with await loop.create_server(Asked, "127.0.0.1", port, ssl=_context(pair), backlog=pace.watchers):
        await _serve(change, pace)


async def serve_sockets(port: int, pair: KeyPair, _: Path, pace: Pace) -> None:
    """Write the lines to whoever has asked for anything, one blocking call for each."""
    sockets: list[socket.socket] = []
    line = _make_line()

    def accept(listener: socket.socket) -> None:
        while True:
            each, _ = listener.accept()
            each.recv(1 << 16)
            each.sendall(HEAD + line("ADDED", 0))
            sockets.append(each)

    def change(stamp: int) -> None:
        chunk = line("MODIFIED", stamp)
        for each in sockets:
            each.sendall(chunk)

    listener = socket.create_server(("127.0.0.1", port), backlog=pace.watchers)
    secure = _context(pair).wrap_socket(listener, server_side=True)
    threading.Thread(target=accept, args=(secure,), daemon=True).start()
    await _serve(change, pace)


async def _serve(change: Change, pace: Pace) -> None:
    """Change the class when told to on standard input, and say when it was."""
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    began, changes = time.monotonic(), list[int]()
    while time.monotonic() - began < pace.seconds:
        changes.append(time.time_ns())
        change(changes[-1])
        await asyncio.sleep(max(0, began + len(changes) / pace.per_second - time.monotonic()))
    sys.stdout.write(json.dumps(changes) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _make_line() -> Callable[[str, int], bytes]:
    """Makes an event of the class, as a chunk."""
    view = make_view()
    report = view.report(NAME)
    assert report is not None
    served = gpu_class_object(report)
    metadata = {**served["metadata"], "resourceVersion": f"{time.time_ns() // 1000}"}

    def line(type_: str, stamp: int) -> bytes:
        item = {**served, "metadata": {**metadata, "annotations": {STAMP: str(stamp)}}}
        event = b'{"type":"' + type_.encode() + b'","object":' + orjson.dumps(item) + b"}\n"
        return b"%x\r\n%b\r\n" % (len(event), event)

    return line


def _context(pair: KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


SERVERS: Final[dict[str, Callable[[int, KeyPair, Path, Pace], Coroutine[Any, Any, None]]]] = {
    OURS: serve_ours,
    TRANSPORTS: serve_transports,
    SOCKETS: serve_sockets,
}


# What measures them.


@dataclass(frozen=True, slots=True)
class Bench:
    """What all are measured with.

    Attributes:
        authority: who signs the certificates.
        pair: the serving certificate.
        load: the watchers.
        pace: how often the class is changed.
    """

    authority: CertificateAuthority
    pair: KeyPair
    load: Load
    pace: Pace

    @contextmanager
    def running(self, name: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
        """One of the servers, and its port."""
        (port,) = free_ports(1)
        files = map(str, (self.pair.certificate, self.pair.key, self.authority.certificate))
        command = [sys.executable, "-m", "tests.bench.fanout", "--serve", name, str(port), *files, *_flags(self.pace)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                _read(process)
                yield port, process
            finally:
                process.kill()

    def measure(self, name: str, lists: float, profile_seconds: int) -> float:
        """Print what one of them needs, and return the µs for each event."""
        with self.running(name) as (port, process), ExitStack() as stack:
            base = f"https://127.0.0.1:{port}{BASE}/gpuclasses"
            url = f"{base}?watch=true&fieldSelector=metadata.name%3D{NAME}"
            seconds = self.pace.seconds
            watches = stack.enter_context(
                watching(self.load, url, watches=self.pace.watchers, seconds=seconds + SPARE_SECONDS)
            )
            readers = stack.enter_context(self.load.running(base, seconds=seconds, rate=lists)) if lists else None
            if profile_seconds:
                stack.enter_context(_profiled(process.pid, profile_seconds))
            before = cpu_seconds(process.pid)
            assert process.stdin is not None
            process.stdin.write("change\n")
            process.stdin.flush()
            seen = told(watches, url, json.loads(_read(process)))
            microseconds: float = (cpu_seconds(process.pid) - before) / seen["events"] * 1e6
            _say(f"{name}: {microseconds:.1f} µs for each event, {_describe(seen, self.pace)}")
            if readers:
                read = result(readers, base)
                _say(f"    {read['rate']:.0f} lists/s meanwhile (their time is in the µs): {_delays(read)}")
        return microseconds


def _describe(seen: dict[str, Any], pace: Pace) -> str:
    changes = seen["count"] / pace.watchers
    return (
        f"{_delays(seen)} ({changes:.0f} changes, {seen['events'] / pace.watchers:.0f} events told to each of "
        f"{pace.watchers}; they took {seen['processors']:.2f} of a processor and were {seen['late_p99_ms']:.1f} "
        f"ms late themselves)"
    )


def _delays(seen: dict[str, Any]) -> str:
    return f"delay p50 {seen['p50_ms']:.1f} ms, p99 {seen['p99_ms']:.1f} ms, at most {seen['max_ms']:.1f} ms"


@contextmanager
def _profiled(pid: int, seconds: int) -> Iterator[None]:
    file = Path("build") / "fanout.txt"
    file.parent.mkdir(exist_ok=True)
    with subprocess.Popen(py_spy(pid, seconds, file), stdout=subprocess.DEVNULL):
        yield
    _say(f"    profile: {file}")


def _read(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the server ended: {process.wait()}")
    return line


def _flags(pace: Pace) -> Sequence[str]:
    return f"--watchers={pace.watchers}", f"--per-second={pace.per_second}", f"--seconds={pace.seconds}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--per-second", type=int, default=10, metavar="CHANGES")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--lists", type=float, default=0, metavar="RATE", help="read so many lists a second from ours")
    parser.add_argument("--profile", type=int, default=0, metavar="SECONDS", help="write build/fanout.txt")
    parser.add_argument("--only", choices=SERVERS)
    chosen = parser.parse_args()
    pace = Pace(chosen.watchers, chosen.per_second, chosen.seconds)
    if chosen.serve:
        name, port, certificate, key, authority = chosen.serve
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(SERVERS[name](int(port), KeyPair(Path(certificate), Path(key)), Path(authority), pace))
        return
    with tempfile.TemporaryDirectory(prefix="fanout-") as directory:
        authority = CertificateAuthority(Path(directory), "ca")
        pair = authority.serving("serving", ("127.0.0.1",))
        bench = Bench(authority, pair, Load(find_load(), authority.client(USER)), pace)
        for name in [chosen.only] if chosen.only else SERVERS:
            is_ours = name == OURS
            bench.measure(name, chosen.lists if is_ours else 0, chosen.profile if is_ours else 0)


if __name__ == "__main__":
    main()
