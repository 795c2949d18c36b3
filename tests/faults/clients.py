"""Clients that mean harm or do not care: watchers that never read or vanish, slow heads, requests without measure."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import Final

from tests.faults.loading import CLASSES, Target
from tests.faults.rows import Fault, Noted, require
from tests.faults.stage import SURVIVOR, Stage
from tests.fuzz import Target as Attacked
from tests.fuzz import run as attack

MANY: Final = 1000
AT_ONCE: Final = 50
HELD_SECONDS: Final = 20
LORIS: Final = 200
SLOWEST_READ_SECONDS: Final = 3
KIB_PER_WATCHER: Final = 256
"""Memory a watcher may cost: TLS, its buffers, and what waits in them to be read."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def many_watchers(stage: Stage, noted: Noted) -> None:
    """A thousand watches: a third is never read, a third is read and then vanishes, a third is read to the end."""
    target = stage.target(SURVIVOR, stage.survivor)
    before, began = stage.memory_mib(), time.time()
    connections = stage.load.call(_watch_often(target, MANY), timeout_seconds=180)
    try:
        noted.times += 1
        require(len(connections) == MANY, f"only {len(connections)} watches were opened")
        vanishing, unread, read = (connections[index::3] for index in range(3))
        tasks = [stage.load.begin(_drain(each)) for each in (*vanishing, *read)]
        time.sleep(HELD_SECONDS / 2)
        stage.load.call(_abort(vanishing))
        time.sleep(HELD_SECONDS / 2)
        held = stage.memory_mib()
        alive = sum(not task.done() for task in tasks[len(vanishing) :])
        require(alive == len(read), f"of {len(read)} watches that are read {len(read) - alive} were ended")
        noted.facts.append(f"{before:.0f} MiB before, {held:.0f} MiB with {MANY} watches, {len(unread)} of them unread")
        require(held - before < MANY * KIB_PER_WATCHER / 1024, f"memory grew from {before:.0f} to {held:.0f} MiB")
    finally:
        stage.load.call(_abort(connections))
    noted.recoveries.append(stage.recover(time.time()))
    _require_readers_unharmed(stage, noted, began)


def slow_loris(stage: Stage, noted: Noted) -> None:
    """Connections that send a head a few bytes at a time, and never its end."""
    target = stage.target(SURVIVOR, stage.survivor)
    before, began = stage.memory_mib(), time.time()
    connections = stage.load.call(_open_often(target, LORIS), timeout_seconds=120)
    try:
        noted.times += 1
        require(len(connections) == LORIS, f"only {len(connections)} connections were opened")
        stage.load.call(_trickle(connections), timeout_seconds=120)
        held = stage.memory_mib()
        noted.facts.append(f"{before:.0f} MiB before, {held:.0f} MiB with {LORIS} unfinished heads")
        require(held - before < LORIS * KIB_PER_WATCHER / 1024, f"memory grew from {before:.0f} to {held:.0f} MiB")
    finally:
        stage.load.call(_abort(connections))
    noted.recoveries.append(stage.recover(time.time()))
    _require_readers_unharmed(stage, noted, began)


def oversized(stage: Stage, noted: Noted) -> None:
    """Heads, lines and bodies without measure are refused as the caller's fault, or hung up on; never 5xx."""
    target = stage.target(SURVIVOR, stage.survivor)
    big = b"a" * 2**20
    requests = {
        "a line of 1 MiB": b"GET /" + big + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        "a field of 1 MiB": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + big + b"\r\n\r\n",
        "100,000 fields": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        "a body of 64 MiB": b"POST "
        + CLASSES.encode()
        + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 67108864\r\n\r\n"
        + big * 64,
        "a chunk of 1 TiB": b"POST " + CLASSES.encode() + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"10000000000\r\n" + big * 16,
    }
    before, began = stage.memory_mib(), time.time()
    for what, request in requests.items():
        noted.times += 1
        code = stage.load.call(_send(target, request))
        noted.facts.append(f"{what}: {code or 'hung up'}")
        require(code == 0 or 400 <= code < 500, f"{what} is answered with {code}")  # HTTP's 4xx
    held = stage.memory_mib()
    require(held - before < 64, f"memory grew from {before:.0f} to {held:.0f} MiB")  # one body's MiB
    noted.recoveries.append(stage.recover(time.time()))
    _require_readers_unharmed(stage, noted, began)


def fuzz(seconds: float, seed: int) -> Fault:
    """Odd requests and raw bytes for so long: no answer of 5xx but a stated 503 or 504, and the server goes on."""

    def run(stage: Stage, noted: Noted) -> None:
        server, context, began = stage.survivor, stage.target(SURVIVOR, stage.survivor).context, time.time()
        with stage.writer.keeping_classes():
            noted.times += 1
            result = attack(seconds, seed, Attacked(server.port, server.process.pid, context))
        codes = ", ".join(f"{code or 'none'} x {count}" for code, count in sorted(result.codes.items()))
        before, after = (size / 2**20 for size in result.memory)
        noted.facts.append(f"{result.attempts} attempts, {before:.0f} to {after:.0f} MiB; codes {codes}")
        require(result.passed, f"{len(result.faults)} faults, such as {result.faults[:1]}")
        noted.recoveries.append(stage.recover(time.time()))
        _require_readers_unharmed(stage, noted, began)

    return Fault("fuzzed requests", run)


def _require_readers_unharmed(stage: Stage, noted: Noted, began: float) -> None:
    """While it went on no read of that server was lost, and none took long."""
    own = f"{SURVIVOR}, as a reader"
    lost = [each for each in list(stage.load.refused) if each.answered >= began and each.server in (SURVIVOR, own)]
    require(not lost, f"{len(lost)} reads were lost, such as {lost[:1]}")
    reads = [
        each.answered - each.asked
        for each in list(stage.load.told)
        if each.by == "reader" and each.server == SURVIVOR and each.asked >= began
    ]
    require(reads, "nobody read meanwhile")
    noted.facts.append(f"{len(reads)} reads meanwhile, the slowest {max(reads):.2f} s")
    require(max(reads) < SLOWEST_READ_SECONDS, f"a read took {max(reads):.1f} s")


async def _watch_often(target: Target, count: int) -> list[Connection]:
    head = f"GET {CLASSES}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    connections = await _open_often(target, count)
    for reader, writer in connections:
        writer.write(head)
        await writer.drain()
        status = await asyncio.wait_for(reader.readline(), 60)
        require(b" 200 " in status, f"a watch is answered with {status!r}")
    return connections


async def _open_often(target: Target, count: int) -> list[Connection]:
    context, port = target.context, int(target.url.rpartition(":")[2])
    connections: list[Connection] = []
    while len(connections) < count:
        opening = (_open(port, context) for _ in range(min(AT_ONCE, count - len(connections))))
        connections += await asyncio.gather(*opening)
    return connections


async def _open(port: int, context: ssl.SSLContext) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=2**16)


async def _drain(connection: Connection) -> None:
    while await connection[0].read(2**16):
        pass


async def _abort(connections: Sequence[Connection]) -> None:
    for _, writer in connections:
        writer.transport.abort()


async def _trickle(connections: Sequence[Connection]) -> None:
    for part in (b"GET ", CLASSES.encode(), b" HTTP/1.1\r\n", b"Host: ", b"local", b"host\r\n", b"X-Slow: ", b"1\r\n"):
        for _, writer in connections:
            if not writer.is_closing():
                writer.write(part)
        await asyncio.sleep(HELD_SECONDS / 10)


async def _send(target: Target, request: bytes) -> int:
    """The code of the answer, 0 when there is none."""
    port = int(target.url.rpartition(":")[2])
    reader, writer = await _open(port, target.context)
    sending = asyncio.create_task(_write(writer, request))
    try:
        status = await asyncio.wait_for(reader.readline(), 30)
    except (OSError, TimeoutError):
        status = b""
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    writer.transport.abort()
    return int(status.split()[1]) if status else 0


async def _write(writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    await writer.drain()


WATCHERS: Final = Fault("1,000 slow and vanishing watchers", many_watchers)
SLOW_LORIS: Final = Fault("slow-loris", slow_loris)
OVERSIZED: Final = Fault("oversized requests", oversized)
