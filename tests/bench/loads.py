"""The load generator: built once, run as a process beside what it loads."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.binaries import Module, find_program
from tests.cluster.pki import KeyPair

HERE: Final = Path(__file__).parent
LOAD: Final = Module("load", HERE)
CONNECTIONS: Final = 8
GRACE_SECONDS: Final = 60


class LoadError(Exception):
    """What was to be loaded did not answer as it should."""


@dataclass(frozen=True, slots=True)
class Load:
    """Reads from servers as one user.

    Attributes:
        program: the load generator.
        certificate: the user's.
    """

    program: Path
    certificate: KeyPair

    def run(
        self, url: str, *, seconds: float, connections: int = CONNECTIONS, rate: float = 0, anew: bool = False
    ) -> dict[str, Any]:
        """Read for a while and return what was seen, as the generator says it.

        Raises:
            LoadError: a request failed.
        """
        with self.running(url, seconds=seconds, connections=connections, rate=rate, anew=anew) as process:
            return result(process, url)

    def rate(self, url: str, *, seconds: float, anew: bool = False) -> float:
        """Answers per second, asked for in the same words each time or in others."""
        return float(self.run(url, seconds=seconds, anew=anew)["rate"])

    @contextmanager
    def running(
        self,
        url: str,
        *,
        seconds: float,
        connections: int = CONNECTIONS,
        rate: float = 0,
        watch: bool = False,
        anew: bool = False,
    ) -> Iterator[subprocess.Popen[str]]:
        """The generator at work; it ends by itself, or with the block. Watches are to be ended with `told`."""
        command: Sequence[str] = [
            str(self.program),
            f"-url={url}",
            f"-c={connections}",
            f"-d={seconds}s",
            f"-rate={rate}",
            f"-cert={self.certificate.certificate}",
            f"-key={self.certificate.key}",
            *(["-watch"] if watch else []),
            *(["-anew"] if anew else []),
        ]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=GRACE_SECONDS)


@contextmanager
def watching(load: Load, url: str, *, watches: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """So many watches of one object, all of them open; they are ended with `told`, or with the block.

    Args:
        load: who watches.
        url: of the watch.
        watches: how many.
        seconds: for which they may last altogether.

    Raises:
        LoadError: not every watch could be opened.
    """
    with load.running(url, seconds=seconds, connections=watches, watch=True) as process:
        assert process.stderr is not None
        if process.stderr.readline() != "open\n":
            result(process, url)
            raise LoadError(f"{url}: not every watch was told of the object in {seconds} s")
        yield process


def told(process: subprocess.Popen[str], url: str, changes: Iterable[int]) -> dict[str, Any]:
    """What watches saw, when they were told of the last change.

    Args:
        process: from `watching`.
        url: of the watch.
        changes: the time of each, as it stands in the object, in nanoseconds since 1970.

    Raises:
        LoadError: a watch ended, or was not told of every change.
    """
    return result(process, url, said="".join(f"{change}\n" for change in changes))


def result(process: subprocess.Popen[str], url: str, *, said: str = "", timeout: float = 300) -> dict[str, Any]:
    """What a generator saw, when it has ended.

    Args:
        process: from `Load.running`.
        url: what was loaded.
        said: what to tell it on its standard input before that ends.
        timeout: seconds until it must have ended.

    Raises:
        LoadError: a request failed, or none was answered.
    """
    output, errors = process.communicate(said, timeout=timeout)
    if process.returncode:
        raise LoadError(f"{url}: {errors}")
    seen: dict[str, Any] = json.loads(output)
    if seen["errors"] or not seen["count"]:
        raise LoadError(f"{url}: {seen['errors']} errors, the last: {seen['last_error'] or 'nothing was answered'}")
    return seen


def find_load() -> Path:
    """The load generator, built if it is missing.

    Raises:
        UnavailableError: it cannot be built.
    """
    return find_program("load", LOAD, ".", lambda _: None)
