"""Processes that are killed, or told to end, and started anew."""

import random
import time
from typing import Final

from tests.cluster.processes import Process
from tests.conformance import rolling
from tests.conformance.stage import opened
from tests.faults.rows import Fault, Noted, require
from tests.faults.stage import Stage

OURS: Final = "our server"
NAMES: Final = ("kube-apiserver", "etcd", OURS)
MEMORY_LIMIT: Final = 0.1


def kills(count: int, seed: int) -> Fault:
    """Kill kube-apiserver, etcd and our server, so many in all, in an order that the seed gives."""
    chance = random.Random(seed)  # noqa: S311 # no secret
    order = [NAMES[index % len(NAMES)] for index in range(count)]
    chance.shuffle(order)

    def run(stage: Stage, noted: Noted) -> None:
        longest = dict.fromkeys(NAMES, 0.0)
        for name in order:
            back = _kill(stage, name, chance.random())
            noted.times += 1
            seconds = stage.recover(back)
            noted.recoveries.append(seconds)
            longest[name] = max(longest[name], seconds)
        told = ", ".join(f"{name} {order.count(name)} x, recovery <= {longest[name]:.1f} s" for name in NAMES)
        noted.facts.append(told)

    return Fault("kill -9 and restart", run, MEMORY_LIMIT)


def _kill(stage: Stage, name: str, away_seconds: float) -> float:
    """Kill one process, start it anew, and return when it was back."""
    process: Process = stage.killed.process if name == OURS else stage.control_plane.process(name)
    pid = process.pid
    process.kill()
    time.sleep(away_seconds)
    process.start()
    require(process.pid != pid, f"{name} is the same process as before")
    if name == OURS:
        back = time.time()
        stage.killed.wait_until_serving()
        return back
    stage.control_plane.wait_until_ready()
    return time.time()


def restart_both(stage: Stage, noted: Noted) -> None:
    """Both replicas behind a Service are replaced under load; they have a cluster and addresses of their own."""
    directory = stage.control_plane.directory / "rolling"
    directory.mkdir()
    with opened(stage.control_plane.binaries, directory, announce=noted.facts.append) as replicated:
        noted.times += 1
        result = rolling.run(replicated)
    noted.facts.append(str(result))
    require(not result.problems, "; ".join(result.problems))


ROLLING: Final = Fault("rolling restart of both replicas", restart_both)
