"""Rows about freshness: from the 201 of a bound Pod to the first answer that shows it, while others read."""

import statistics
import time
from collections.abc import Iterator
from typing import Final

from tests.bench.churn import PODS
from tests.bench.loads import result
from tests.bench.objects import device
from tests.bench.rows import Row
from tests.bench.stage import LIST, NODES_OF_FIRST, ONE, Stage
from tests.cluster.catalog import API
from tests.cluster.client import Client
from tests.cluster.workload import pod, pod_path

MEDIAN: Final = "201 of a bound pod to the answer that shows it, median"
P99: Final = "201 of a bound pod to the answer that shows it, p99"
WORDS: Final = (MEDIAN, P99)
GOALS: Final = {MEDIAN: 15.0, P99: 100.0}
PODS_BOUND: Final = 200
LOAD_SECONDS: Final = 120
MEASURE_SECONDS: Final = 2
LONGEST_SECONDS: Final = 10


def measure(stage: Stage, wanted: str) -> Iterator[Row]:
    """Bind pods one after the other under a reading load of half of what is possible."""
    if not any(wanted in what for what in WORDS):
        return
    half = half_load(stage)
    with (
        stage.load.running(stage.ours(LIST), seconds=LOAD_SECONDS, rate=half) as process,
        stage.catalog.client() as reader,
    ):
        delays = sorted(_delay(stage.control_plane.client, reader, index) for index in range(PODS_BOUND))
        if process.poll() is not None:
            result(process, stage.ours(LIST))
            raise TimeoutError(f"the reading load ended before {PODS_BOUND} pods were bound")
    note = f"{PODS_BOUND} pods, {half:.0f} lists/s meanwhile"
    figures = {MEDIAN: statistics.median(delays), P99: delays[int(0.99 * (len(delays) - 1))]}
    for what, figure in figures.items():
        if wanted in what:
            yield Row(what, figure, None, GOALS[what], at_least=False, unit="ms", note=note)


def half_load(stage: Stage) -> float:
    """Half the rate at which lists are answered at most."""
    return stage.load.rate(stage.ours(LIST), seconds=MEASURE_SECONDS) / 2


def _delay(client: Client, reader: Client, index: int) -> float:
    """Milliseconds for one pod, which is deleted again.

    Raises:
        TimeoutError: no answer showed it.
    """
    requested = _requested(reader)
    made = client.post(PODS, pod(f"fresh-{index}", node=f"gpu-{index % NODES_OF_FIRST:03}", requests={device(0): 1}))
    created = time.perf_counter()
    try:
        while _requested(reader) == requested:
            if time.perf_counter() - created > LONGEST_SECONDS:
                raise TimeoutError(f"no answer showed pod {index} within {LONGEST_SECONDS} s")
        return (time.perf_counter() - created) * 1000
    finally:
        client.delete(pod_path(made))
        deadline = time.perf_counter() + LONGEST_SECONDS
        while _requested(reader) != requested and time.perf_counter() < deadline:
            time.sleep(0.001)


def _requested(reader: Client) -> int:
    return int(reader.get(f"{API}/{ONE}")["status"]["requested"])
