"""Both replicas behind one Service: kube-apiserver chooses one of them at random for each list and each watch."""

import itertools
from collections.abc import Callable
from typing import Final

from tests.cluster.waiting import wait_for
from tests.conformance import rolling
from tests.conformance.checks import Check, require, require_equal
from tests.conformance.follower import PROCESS_TAG, Follower, Server
from tests.conformance.replicas import churn, require_agreement, tidied
from tests.conformance.stage import CLASSES, FREE, Stage

MOST_ROUNDS: Final = 40
"""Each lasts for about one watch, and each watch goes by chance: five all went to one replica once in a while."""
FEW_REQUESTS, FEW_WATCHES = 1000, 20


def _follow(stage: Stage) -> None:
    """Nothing is missed, no watch is refused and nothing is listed twice, whichever replica each request reaches."""
    cluster = Server.of_cluster(stage.control_plane)
    with tidied(stage), Follower(cluster, itertools.repeat(cluster), watch_seconds=3) as follower:
        wait_for(lambda: follower.watches, "the first watch")
        for seed in range(MOST_ROUNDS):
            churn(stage, seed)
            if len(follower.processes) == len(stage.replicas):
                break
        require_agreement(stage, follower)
        require_equal(set(follower.codes), {"200"}, "codes of all answers")
        require_equal(len(follower.processes), len(stage.replicas), "replicas that were watched")
        require(follower.lists == 1, f"listed {follower.lists} times, {follower.expired} watches were refused")


def _one_unready(stage: Stage) -> None:
    """Of a replica that is not ready, and then stopped, nobody hears."""
    first, second = stage.replicas
    stage.lead_to(first.endpoint(is_ready=False, is_terminating=True), second.endpoint())
    # Until kube-apiserver has heard of it, it may choose either.
    wait_for(lambda: _served_by_one(stage), "requests to reach one replica only")
    first.stop()
    try:
        names = {item["metadata"]["name"] for item in stage.client.items(CLASSES)}
        require_equal(names, set(FREE), "the list")
        require("gpuclasses" in stage.control_plane.kubectl("api-resources", "-o", "name").stdout, "not in discovery")
    finally:
        first.start()
        stage.lead_to(first.endpoint(), second.endpoint())


def _restart_both(stage: Stage) -> None:
    """A rolling restart under load: every answer is 200, every watch moves, and who watches lists only once."""
    result = rolling.run(stage, requests=FEW_REQUESTS, watches=FEW_WATCHES)
    require_equal(result.problems, [], str(result))


def _served_by_one(stage: Stage) -> bool:
    """Whether a number of lists all carry versions of one process."""
    return len({int(stage.client.get(CLASSES)["metadata"]["resourceVersion"]) & PROCESS_TAG for _ in range(20)}) == 1


def _check(name: str, run: Callable[[Stage], None], *, is_short: bool = False) -> Check:
    return Check(f"by Service: {name}", run, is_short=is_short)


CHECKS: Final = (
    _check("list and watch at any replica", _follow, is_short=True),
    _check("one is not ready", _one_unready),
    _check("rolling restart under load", _restart_both, is_short=True),
)
