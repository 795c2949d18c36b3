"""kubectl-view-allocations, a Rust crate that lists every Pod of the cluster each time it is asked."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.cluster.binaries import UnavailableError, locked, run_build, user_cache

CRATE: Final = "kubectl-view-allocations"
VERSION: Final = "3.1.0"


@dataclass(frozen=True, slots=True)
class Run:
    """What one process took: seconds, and the most memory it had resident, in MB."""

    seconds: float
    memory_mb: float


def find_allocations(announce: Callable[[str], None]) -> Path:
    """The program in the user's cache, built first by cargo if it is not there.

    Args:
        announce: told in one sentence before the build, which takes minutes.

    Raises:
        UnavailableError: it is missing and cannot be built.
    """
    root = user_cache() / f"{CRATE}-{VERSION}"
    program = root / "bin" / CRATE
    if program.is_file():
        return program
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UnavailableError(f"{CRATE} is not in {root}, and there is no cargo to build it")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / ".lock"):
        if not program.is_file():
            announce(f"Building {CRATE} {VERSION} into {root}: once, some minutes.")
            command = [cargo, "install", CRATE, f"--version={VERSION}", "--locked", f"--root={root}"]
            run_build(CRATE, command, root)
    return program


def run(command: list[str], kubeconfig: Path, expected: str) -> Run:
    """Run a program on the cluster of a kubeconfig as a process of its own.

    Another process starts it, for the peak memory of a child is at least that of its starter, and the bench is big.

    Raises:
        LookupError: it failed, or what it printed does not hold the expected text.
    """
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    starter = [sys.executable, "-m", __name__, *command]
    done = subprocess.run(starter, capture_output=True, text=True, env=environment, check=False)
    printed, _, last = done.stdout.rstrip("\n").rpartition("\n")
    if done.returncode or expected not in printed:
        told = f"{printed[-500:]} {done.stderr[-500:]}"
        raise LookupError(f"{command[0]} ended with {done.returncode}, without {expected!r}: {told}")
    return Run(**json.loads(last))


def main() -> int:
    """Run the program of the arguments, and print after its output what it took, as JSON in a line of its own."""
    started = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    took = Run(time.perf_counter() - started, usage.ru_maxrss * 1024 / 1e6)
    sys.stdout.write(f"\n{json.dumps(asdict(took))}\n")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
