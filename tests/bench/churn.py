"""Pods that hold GPUs and come and go, as on a busy cluster."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.bench.objects import device
from tests.bench.stage import NODES_OF_FIRST, Stage
from tests.cluster.client import Client
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.workload import pod, pod_path

PER_SECOND: Final = 20
LEAST_SHARE: Final = 0.5
PODS: Final = "/api/v1/namespaces/default/pods"


class TooSlowError(Exception):
    """The churn did not come about, so what was measured is not what the row says."""


@contextmanager
def churning(stage: Stage, per_second: int = PER_SECOND) -> Iterator[None]:
    """Bind and delete so many pods a second while the block runs.

    Raises:
        TooSlowError: less than half as many came about.
    """
    done = threading.Event()
    made: list[float] = []
    client = stage.control_plane.user_client(ADMIN, ADMIN_GROUPS)
    thread = threading.Thread(target=_churn, args=(client, per_second, done, made), name="churn")
    started = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        client.close()
    rate = len(made) / (time.monotonic() - started)
    if rate < LEAST_SHARE * per_second:
        raise TooSlowError(f"only {rate:.1f} pods a second came and went, not {per_second}")


def _churn(client: Client, per_second: int, done: threading.Event, made: list[float]) -> None:
    due = time.monotonic()
    while not done.is_set():
        index = len(made)
        each = pod(f"churn-{index}", node=f"gpu-{index % NODES_OF_FIRST:03}", requests={device(0): 1})
        client.post(PODS, each)
        client.delete(pod_path(each))
        made.append(time.monotonic())
        due = max(due + 1 / per_second, time.monotonic() - 1)
        time.sleep(max(0, due - time.monotonic()))
