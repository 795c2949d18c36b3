"""A client that lists at one replica and watches at another, while the cluster changes and replicas come and go."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, NotFoundError
from tests.cluster.clocks import program
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, create_pod, gpu_class, pod, pod_path
from tests.conformance.checks import Check, require, require_equal
from tests.conformance.follower import Follower, Server, without_version
from tests.conformance.stage import CARD, CLASSES, SETTLE_SECONDS, Stage

CHURN_STEPS: Final = 60
CHURN_PAUSE_SECONDS: Final = 0.05
IDLE_LISTS, IDLE_WATCHES = 6, 10
"""A replica that has just begun takes no version up: for 4 s, and a list comes every second."""
AGREE_SECONDS: Final = 20
CLOCK_SLACK_SECONDS: Final = 3


def churn(
    stage: Stage, seed: int, *, pause_seconds: float = CHURN_PAUSE_SECONDS, until: threading.Event | None = None
) -> None:
    """Make, change and delete classes and Pods, at random but the same for the same seed.

    Args:
        stage: where.
        seed: of the dice.
        pause_seconds: between two changes.
        until: ends it early.
    """
    until = until or threading.Event()
    chance = random.Random(seed)  # noqa: S311 # no secret
    with stage.control_plane.user_client(ADMIN, ADMIN_GROUPS) as client:
        for step in range(CHURN_STEPS):
            number = chance.randrange(6)
            chance.choice((_toggle_class, _toggle_class, _toggle_pod, _label))(client, number, step)
            if until.wait(pause_seconds):
                return


def _toggle_class(client: Client, number: int, _: int) -> None:
    name = f"churn-{number}"
    try:
        client.delete(f"{STORED}/{name}")
    except NotFoundError:
        client.post(STORED, gpu_class(name, f"example.com/{name}"))


def _toggle_pod(client: Client, number: int, _: int) -> None:
    wanted = pod(f"churn-{number}", node=f"gpu-{1 + number % 2}", requests={CARD: 1})
    try:
        client.delete(pod_path(wanted))
    except NotFoundError:
        create_pod(client, wanted)


def _label(client: Client, _: int, step: int) -> None:
    client.patch(f"{STORED}/l40s", {"metadata": {"labels": {"step": str(step)}}})


@contextlib.contextmanager
def tidied(stage: Stage) -> Iterator[None]:
    """Take away at the end what the churn left."""
    try:
        yield
    finally:
        for number in range(6):
            stage.remove_class(f"churn-{number}")
            with_pod = pod_path(pod(f"churn-{number}"))
            if stage.client.request("GET", with_pod).code == HTTPStatus.OK:
                stage.client.delete(with_pod)
        stage.client.patch(f"{STORED}/l40s", {"metadata": {"labels": {"step": None}}})


def require_agreement(stage: Stage, follower: Follower) -> None:
    """The copy becomes what both replicas list."""
    for replica in stage.replicas:
        with replica.client() as client:

            def agrees(client: Client = client) -> bool:
                require(not follower.failure, follower.failure)
                return follower.state == {
                    item["metadata"]["name"]: without_version(item) for item in client.items(CLASSES)
                }

            wait_for(agrees, "the follower to agree with a replica's list", timeout_seconds=AGREE_SECONDS)


def following(stage: Stage, list_at: int, watch_at: Iterator[int]) -> Follower:
    """One that asks the replicas of these indices, past kube-apiserver."""
    servers = [Server.of_replica(stage.control_plane, replica) for replica in stage.replicas]
    return Follower(servers[list_at], (servers[index] for index in watch_at))


def _follow(stage: Stage, list_at: int, watch_at: Iterator[int], seed: int) -> None:
    """No watch is refused, nothing is listed twice, and nothing is missed."""
    with tidied(stage), following(stage, list_at, watch_at) as follower:
        wait_for(lambda: follower.watches, "the first watch")
        churn(stage, seed)
        require_agreement(stage, follower)
        require(follower.lists == 1, f"listed {follower.lists} times, {follower.expired} watches were refused")
        require(follower.watches > 1, "no watch was taken up")


def _restart(stage: Stage, watch_at: Iterator[int]) -> None:
    """A replica that is started anew takes the watch up or answers 410, and the follower recovers."""
    with tidied(stage), following(stage, 0, watch_at) as follower:
        wait_for(lambda: follower.watches, "the first watch")
        changing = threading.Thread(target=churn, args=(stage, 3))
        changing.start()
        stage.replicas[0].stop()
        stage.replicas[0].start()
        changing.join(timeout=60)
        require_agreement(stage, follower)


def _idle(stage: Stage) -> None:
    """Nothing changes, and the replica to watch at is younger than the last change: the follower must not list forever.

    For the first seconds it may be told that its version is too old.
    """
    stage.replicas[1].stop()
    stage.replicas[1].start()
    with following(stage, 0, itertools.repeat(1)) as follower:
        wait_for(lambda: follower.watches > IDLE_WATCHES or follower.lists > IDLE_LISTS, "watches without a change")
        require(follower.lists <= IDLE_LISTS, f"{follower.lists} lists, {follower.expired} of the watches expired")
        require_agreement(stage, follower)


def _step_clocks(stage: Stage) -> None:
    """Their own clocks are 10 s before and behind the truth, then one is a minute behind: nothing depends on them."""
    with tidied(stage), with_clocks(stage):
        for index, seconds in ((0, 10), (1, -10)):
            _start_with_clock(stage, index, seconds)
        time.sleep(SETTLE_SECONDS)
        _require_steady(stage, 5)
        _start_with_clock(stage, 0, -60)
        time.sleep(SETTLE_SECONDS)
        _require_steady(stage, 6)


def _require_steady(stage: Stage, seed: int) -> None:
    """Whoever is listed and watched at, no watch is refused, nothing is listed twice, and nothing is missed."""
    ways = [(list_at, itertools.cycle((1 - list_at, list_at))) for list_at in (0, 1)]
    with contextlib.ExitStack() as stack:
        followers = [stack.enter_context(following(stage, *way)) for way in ways]
        wait_for(lambda: all(follower.watches for follower in followers), "the first watches")
        churn(stage, seed)
        for follower in followers:
            require_agreement(stage, follower)
            require_equal((follower.lists, follower.expired, follower.ahead), (1, 0, 0), "lists, 410, 504")
            require(follower.watches > 1, "no watch was taken up")


def _late_server(stage: Stage) -> None:
    """A replica learns the time from a kube-apiserver that is a minute late: who comes from the other lists anew.

    For the late replica the other's versions lie in the future. As for a kube-apiserver it is 504 after 3 s, a client
    recovers by a list, and misses nothing.
    """
    with tidied(stage), with_clocks(stage):
        start_late(stage.replicas[0])
        with following(stage, 1, itertools.cycle((1, 0))) as follower:
            wait_for(lambda: follower.ahead, "a watch to be refused for a version of the future")
            churn(stage, 7)
            require_agreement(stage, follower)
            require(follower.lists > 1, "was not listed anew")
            begun = follower.watches
            wait_for(lambda: follower.watches > begun + 1, "watches to go on")
            require_equal(set(follower.codes), {"200", "504"}, "codes of all answers")
            require(follower.lists <= follower.ahead + follower.expired + 1, f"{follower.lists} lists for no reason")


def start_late(replica: CatalogServer) -> None:
    """Start a replica anew that learns the time from a kube-apiserver which is a minute late."""
    replica.stop()
    replica.start(program(server_seconds=-60))


def _start_with_clock(stage: Stage, index: int, seconds: float) -> None:
    """Start a replica anew, its wall clock off by so much; its Date headers show that it really is."""
    replica = stage.replicas[index]
    replica.stop()
    replica.start(program(wall_seconds=seconds))
    with replica.client() as client:
        told = parsedate_to_datetime(client.request("GET", CLASSES).headers["date"]).timestamp()
    require(abs(told - time.time() - seconds) < CLOCK_SLACK_SECONDS, f"its clock is off by {told - time.time():.0f} s")


@contextlib.contextmanager
def with_clocks(stage: Stage) -> Iterator[None]:
    """Start both replicas at the end with true clocks."""
    try:
        yield
    finally:
        for replica in stage.replicas:
            replica.stop()
            replica.start()
        time.sleep(SETTLE_SECONDS)


def _one_away(stage: Stage) -> None:
    """With one replica stopped the cluster still answers for the catalog, in discovery too."""
    stage.replicas[0].stop()
    try:
        stage.client.get(f"{CLASSES}/l40s")
        require("gpuclasses" in stage.control_plane.kubectl("api-resources", "-o", "name").stdout, "not in discovery")
    finally:
        stage.replicas[0].start()


def _check(name: str, run: Callable[[Stage], None], *, is_short: bool = False) -> Check:
    return Check(f"replicas: {name}", run, is_short=is_short)


CHECKS: Final = (
    _check("list at A, watch at B", lambda stage: _follow(stage, 0, itertools.repeat(1), 1)),
    _check("list at B, watch at A", lambda stage: _follow(stage, 1, itertools.repeat(0), 2)),
    _check("each watch at the other", lambda stage: _follow(stage, 0, itertools.cycle((1, 0)), 4), is_short=True),
    _check("A restarts, watched at A", lambda stage: _restart(stage, itertools.repeat(0))),
    _check("A restarts, watched at both", lambda stage: _restart(stage, itertools.cycle((1, 0)))),
    _check("nothing changes, B is younger", _idle),
    _check("wall clocks are 10 s off either way, then a minute behind", _step_clocks, is_short=True),
    _check("kube-apiserver's clock is a minute late for A", _late_server),
    _check("A is away", _one_away),
)
