"""Rows about the start: `get` from a file, and a server until it answers discovery."""

import http.client
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.bench.rows import Row, alternating
from tests.cluster.processes import free_ports

SNAPSHOT: Final = Path(__file__).parents[2] / "manifests" / "examples" / "snapshot.yaml"
GET: Final = "get --snapshot of the example, warm"
DISCOVERY: Final = "start to discovery, from a snapshot"
POLL_SECONDS: Final = 0.005
LONGEST_SECONDS: Final = 30


def measure(wanted: str) -> Iterator[Row]:
    """Run the program anew for each figure."""
    kinds: Mapping[str, tuple[float, Callable[[], float]]] = {GET: (0.35, get), DISCOVERY: (1, discovery)}
    for what, (goal, once) in kinds.items():
        if wanted in what:
            (seconds,) = alternating([once])
            yield Row(what, seconds, None, goal, at_least=False, unit="s")


def get() -> float:
    """Seconds that `get` takes."""
    started = time.perf_counter()
    command = (sys.executable, "-m", "apiserver", "get", "--snapshot", str(SNAPSHOT))
    subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_SECONDS)
    return time.perf_counter() - started


def discovery() -> float:
    """Seconds from the start of a server until it answers discovery.

    Raises:
        TimeoutError: it did not.
    """
    (port,) = free_ports(1)
    started = time.perf_counter()
    command = (sys.executable, "-m", "apiserver", "serve", "--snapshot", str(SNAPSHOT), "--insecure-port", str(port))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while time.perf_counter() - started < LONGEST_SECONDS:
                if _answers(port):
                    return time.perf_counter() - started
                time.sleep(POLL_SECONDS)
        finally:
            process.terminate()
    raise TimeoutError(f"no discovery within {LONGEST_SECONDS} s")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/apis/catalog.cozystack.io/v1alpha1")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
