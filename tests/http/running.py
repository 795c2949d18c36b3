"""The server as a process, on a port of its own."""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
CLASSES = "/apis/cozystack.io/v1alpha1/gpuclasses"
SPEC = {
    "vendor": "a",
    "model": "b",
    "mode": "passthrough",
    "memory": "1Gi",
    "source": {"devicePlugin": {"resourceName": "a.b/c"}},
}


@dataclass
class Running:
    """A server that listens.

    Attributes:
        url: where.
        process: its process.
        started_seconds: from the start of the process until it listened.
        log: the lines it wrote so far.
    """

    url: str
    process: asyncio.subprocess.Process
    started_seconds: float
    log: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def running(*arguments: str | Path) -> AsyncIterator[Running]:
    """Serve with these arguments, until the context is left at the latest."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apiserver", "serve", *map(str, arguments), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        log: list[str] = []
        found = None
        async with asyncio.timeout(60):
            while found is None and (line := await process.stderr.readline()):
                log.append(line.decode())
                found = re.search(r"serving at ([^\s\"]+)", log[-1])
        assert found, log
        server = Running(found[1], process, time.monotonic() - began, log)
        reading = asyncio.create_task(_read(process.stderr, log))
        yield server
        if process.returncode is None:
            process.kill()
        await reading
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _read(stream: asyncio.StreamReader, log: list[str]) -> None:
    while line := await stream.readline():
        log.append(line.decode())


def write_kubeconfig(file: Path, url: str) -> Path:
    """A kubeconfig of a cluster that asks for no credentials."""
    config = {
        "kind": "Config",
        "apiVersion": "v1",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "users": [{"name": "me", "user": {}}],
    }
    file.write_text(json.dumps(config))
    return file


def write_snapshot(file: Path) -> Path:
    """A dump of one class."""
    metadata = {"name": "one"}
    kind = {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass"}
    file.write_text(json.dumps({**kind, "metadata": metadata, "spec": SPEC}))
    return file
