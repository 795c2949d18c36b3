"""The judge's eyes: a client-go informer of its own on Nodes, Pods and GPUClasses, straight at kube-apiserver."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.binaries import Module, find_program
from tests.cluster.client import Json
from tests.cluster.waiting import wait_for

MODULE: Final = Module("follower", Path(__file__).parent)
STOP_SECONDS: Final = 10


def find_follower(announce: Callable[[str], None]) -> Path:
    """The Go program, built first if it is not there.

    Raises:
        UnavailableError: it cannot be built.
    """
    return find_program("follower", MODULE, ".", announce)


class Follower:
    """The running Go program, and what it has told so far."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def told(self) -> list[Json]:
        """Every line so far, the unfinished last one left out."""
        whole = self._log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for_version(self, version: int, *, timeout_seconds: float = 90) -> None:
        """Wait until it has seen a version or a later one; after a cut its own pauses grow to 30 s."""
        wait_for(
            lambda: any(int(line.get("resourceVersion") or 0) >= version for line in self.told()),
            f"the informer to see version {version}",
            timeout_seconds=timeout_seconds,
            poll_seconds=0.5,
        )


@contextmanager
def following(program: Path, kubeconfig: Path, directory: Path) -> Iterator[Follower]:
    """Run the program while the block lasts."""
    log = directory / "follower.jsonl"
    with log.open("w") as output, (directory / "follower.log").open("w") as errors:
        popen = subprocess.Popen(
            [program, f"--kubeconfig={kubeconfig}"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            process_group=0,
        )
        try:
            follower = Follower(log)
            wait_for(lambda: any(line["type"] == "synced" for line in follower.told()), "the informer to be synced")
            yield follower
        finally:
            if popen.stdin is not None:
                popen.stdin.close()
            try:
                popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait(STOP_SECONDS)
