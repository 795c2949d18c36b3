"""A rolling restart of both replicas behind one Service, while many read and watch.

Each replica is replaced as a Deployment does it: a new one starts, and its address enters the EndpointSlice when it is
ready; the old one is told to end, a moment later its endpoint is not ready any more, and when it has ended it is gone.
"""

import argparse
import contextlib
import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from tests.cluster.binaries import UnavailableError, find_binaries
from tests.cluster.catalog import API, CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.network import NetworkUnavailableError
from tests.cluster.waiting import wait_for
from tests.conformance.follower import NO_ANSWER, Follower, Server, without_version
from tests.conformance.replicas import churn, tidied
from tests.conformance.stage import CLASSES, SETTLE_SECONDS, Stage, opened

REQUESTS: Final = 10_000
WATCHES: Final = 200
READERS: Final = 4
SHUTDOWN_DELAY: Final = "--shutdown-delay-duration=6s"
"""Longer than a replica that has just begun takes no other's version up; the manifests have 15 s."""
HEARD_SECONDS: Final = 1
"""How long after the signal the endpoint is told not to be ready: in a cluster both take their own ways."""
CHURN_PAUSE_SECONDS: Final = 0.2
BEGIN_SECONDS: Final = 60
AGREE_SECONDS: Final = 30
EXPECTED_CODES: Final = frozenset({"200"})
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
READS: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    (CLASSES, {}),
    (CLASSES, {"Accept": TABLE}),
    (f"{CLASSES}?limit=1", {}),
    (f"{CLASSES}/l40s", {}),
    (f"{CLASSES}/l40s/catalog", {}),
    (API, {}),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it.

    Attributes:
        requests: how often each code was answered to who reads; "no answer" where the connection broke.
        watches: the same for who watches, their lists included.
        moved: watches that were begun anew.
        unmoved: how many of those that watch never had to move; every replica is replaced, so there should be none.
        expired: watches that were ended with 410, an ERROR event after the code 200.
        relisted: lists after the first, over all that watch.
        missed: objects that a watcher has otherwise than both replicas at the end, over all watchers.
        failures: what watchers could not understand.
        seconds: how long it took.
    """

    requests: Mapping[str, int]
    watches: Mapping[str, int]
    moved: int
    unmoved: int
    expired: int
    relisted: int
    missed: int
    failures: tuple[str, ...]
    seconds: float

    @property
    def problems(self) -> list[str]:
        """What should not have been; empty if all was well.

        No code but 200 may appear. A 410 and a new list are right where a replica has begun less than 4 s ago, but one
        that ends gives its watches up only after `SHUTDOWN_DELAY`, and the new one is older by then.
        """
        unnamed = {
            f"{what} answered with {code}": count
            for what, codes in (("requests", self.requests), ("watches", self.watches))
            for code, count in codes.items()
            if code not in EXPECTED_CODES
        }
        counted = {
            **unnamed,
            "watches ended with 410": self.expired,
            "lists anew by watchers": self.relisted,
            "watchers that did not move": self.unmoved,
            "missed by watchers": self.missed,
            "watchers that failed": len(self.failures),
        }
        return [f"{count} {what}" for what, count in counted.items() if count] + list(self.failures[:1])

    def __str__(self) -> str:
        return (
            f"{sum(self.requests.values())} requests {dict(self.requests)}, "
            f"watchers' requests {dict(self.watches)}, {self.moved} watches moved, {self.expired} ended with 410, "
            f"{self.relisted} lists anew, {self.missed} missed, {self.seconds:.0f} s"
        )


def run(stage: Stage, *, requests: int = REQUESTS, watches: int = WATCHES) -> Result:
    """Restart both replicas one after the other, by way of a third, while so many requests come and so many watch.

    Args:
        stage: with addresses of its own; the Service then leads to both replicas.
        requests: at least so many are sent from the beginning to the end.
        watches: how many are open.

    Raises:
        NetworkUnavailableError: the replicas have no addresses of their own.
    """
    if stage.control_plane.network is None:
        raise NetworkUnavailableError("a rolling restart needs replicas with addresses of their own")
    surge = CatalogServer(stage.control_plane, host=stage.control_plane.network.add_host())
    for replica in stage.replicas:
        replica.stop()
        replica.start(arguments=(SHUTDOWN_DELAY,))
    time.sleep(SETTLE_SECONDS)
    stage.lead_to(*(replica.endpoint() for replica in stage.replicas))
    cluster = Server.of_cluster(stage.control_plane)
    with contextlib.ExitStack() as stack:
        stack.enter_context(tidied(stage))
        stack.callback(surge.stop)
        followers = [Follower(cluster, itertools.repeat(cluster), watch_seconds=600) for _ in range(watches)]
        for follower in followers:
            stack.enter_context(follower)
        wait_for(lambda: all(each.watches for each in followers), "all watches", timeout_seconds=BEGIN_SECONDS)
        begun = time.monotonic()
        codes = _under_load(stage, requests, lambda: _replace_all(stage, surge))
        seconds = time.monotonic() - begun
        return _judge(stage, followers, codes, seconds)


def _replace_all(stage: Stage, surge: CatalogServer) -> None:
    """The third takes the place of the first, the first that of the second, and the second that of the third."""
    first, second = stage.replicas
    for new, old, stays in ((surge, first, second), (first, second, surge), (second, surge, first)):
        new.start(arguments=(SHUTDOWN_DELAY,))
        stage.lead_to(old.endpoint(), stays.endpoint(), new.endpoint())
        old.terminate()
        time.sleep(HEARD_SECONDS)
        stage.lead_to(old.endpoint(is_ready=False, is_terminating=True), stays.endpoint(), new.endpoint())
        old.stop()
        stage.lead_to(stays.endpoint(), new.endpoint())


def _under_load(stage: Stage, requests: int, act: Callable[[], None]) -> Counter[str]:
    """Act while it is read and changed, and go on until there were enough requests; the codes of their answers."""
    codes: Counter[str] = Counter()
    done = threading.Event()
    counting = threading.Lock()

    def read(client: Client, reads: Iterator[tuple[str, Mapping[str, str]]]) -> None:
        while not done.is_set() or sum(codes.values()) < requests:
            path, headers = next(reads)
            try:
                code = str(client.request("GET", path, headers=headers).code)
            except (OSError, HTTPException):
                code = NO_ANSWER
            with counting:
                codes[code] += 1

    def change() -> None:
        for seed in itertools.count():
            churn(stage, seed, pause_seconds=CHURN_PAUSE_SECONDS, until=done)
            if done.is_set():
                return

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stage.control_plane.user_client(ADMIN, ADMIN_GROUPS)) for _ in range(READERS)]
        threads = [threading.Thread(target=change)]
        for index, client in enumerate(clients):
            reads = itertools.islice(itertools.cycle(READS), index, None)
            threads.append(threading.Thread(target=read, args=(client, reads)))
        for thread in threads:
            thread.start()
        try:
            act()
        finally:
            done.set()
            for thread in threads:
                thread.join()
    return codes


def _judge(stage: Stage, followers: list[Follower], codes: Counter[str], seconds: float) -> Result:
    """Give the watchers time for what is under way, and compare them with what both replicas list."""
    served = []
    for replica in stage.replicas:
        with replica.client() as client:
            served.append({item["metadata"]["name"]: without_version(item) for item in client.items(CLASSES)})
    first, second = served

    def missed() -> int:
        return sum(
            follower.state.get(name) != first.get(name)
            for follower in followers
            for name in first.keys() | follower.state.keys()
        )

    with contextlib.suppress(TimeoutError):
        wait_for(lambda: missed() == 0, "all watchers to agree", timeout_seconds=AGREE_SECONDS, poll_seconds=1)
    watched: Counter[str] = Counter()
    for follower in followers:
        watched.update(follower.codes)
    return Result(
        requests=codes,
        watches=watched,
        moved=sum(follower.watches - 1 for follower in followers),
        unmoved=sum(follower.watches <= 1 for follower in followers),
        expired=sum(follower.expired for follower in followers),
        relisted=sum(max(0, follower.lists - 1) for follower in followers),
        missed=missed() + (first != second),
        failures=tuple(follower.failure for follower in followers if follower.failure),
        seconds=seconds,
    )


def main() -> int:
    """Run it on a cluster of its own, and print what came of it; 1 if anything should not have been."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.rolling", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--watches", type=int, default=WATCHES)
    arguments = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gpuclass-rolling-") as directory,
            opened(find_binaries(_say), Path(directory), announce=_say) as stage,
        ):
            result = run(stage, requests=arguments.requests, watches=arguments.watches)
    except (UnavailableError, NetworkUnavailableError) as error:
        _say(str(error))
        return 1
    _say(str(result))
    for problem in result.problems:
        _say(f"NOT WELL: {problem}")
    return int(bool(result.problems))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
