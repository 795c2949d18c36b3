"""kube-apiserver that stands still, watches that say nothing any more, a network that is cut, versions that expired."""

import contextlib
import functools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Answer, Client
from tests.cluster.waiting import wait_for
from tests.faults.judging import Told, Verdict
from tests.faults.loading import CLASSES
from tests.faults.proxy import Mode
from tests.faults.rows import Fault, Noted, require
from tests.faults.stage import KILLED, MAX_STALENESS, SURVIVOR, Stage

CAREFREE: Final = "a server that does not care"
TOLD_SECONDS: Final = 45
"""How long after the age limit the last figures may still be judged, not told: until then 503 must have come."""

SHORT_CUT_SECONDS: Final = 8
BEYOND_SECONDS: Final = 10


def freeze_kube_apiserver(stage: Stage, noted: Noted) -> None:
    """SIGSTOP for longer than figures may be told."""
    process = stage.control_plane.process("kube-apiserver")
    noted.times += 1
    with stage.writer.paused():
        began = time.time()
        process.freeze()
        try:
            _require_silence(stage, noted, began)
            # With watches frozen alone this would not hold: after the 503 the servers list anew, which works.
            time.sleep(2)
            late = [each for name in (KILLED, SURVIVOR) for each in _of(stage, name, time.time() - 1)]
            require(not late, f"figures are told beyond the age limit: {late[:1]}")
        finally:
            process.thaw()
            stage.control_plane.wait_until_ready()
            back = time.time()
    noted.recoveries.append(stage.recover(back))


def freeze_watches(stage: Stage, noted: Noted) -> None:
    """Watches are accepted and stay open, and nothing comes on them; all else works, and the cluster changes."""
    noted.times += 1
    held = stage.proxy.held
    began = time.time()
    stage.set_network(Mode.WATCHES_FROZEN)
    try:
        _require_silence(stage, noted, began)
        require(stage.proxy.held > held, "no watch was held back")
        # The servers count from before it froze; only from now on would an answer without 503 be too old.
        time.sleep(max(0.0, began + MAX_STALENESS + BEYOND_SECONDS - time.time()))
    finally:
        stage.set_network(Mode.OPEN)
        back = time.time()
    noted.recoveries.append(stage.recover(back))


def freeze_watches_of_carefree(stage: Stage, noted: Noted) -> None:
    """The same, while another server runs that tells its figures however old they are: the judge must notice."""
    careless = CatalogServer(
        stage.control_plane, arguments=("--max-staleness=100h",), kubeconfig=stage.proxy.kubeconfig
    )
    try:
        careless.start()
        reading = stage.load.add(stage.target(CAREFREE, careless), readers=1, watchers=0)
        wait_for(lambda: _of(stage, CAREFREE, 0), "figures of the other server")
        freeze_watches(stage, noted)
        for each in reading:
            each.cancel()
    finally:
        careless.stop()
    answers = _of(stage, CAREFREE, 0)
    stage.load.told[:] = [each for each in stage.load.told if each.server != CAREFREE]
    stage.load.refused[:] = [each for each in stage.load.refused if each.server != CAREFREE]
    judge = stage.judge()
    stale = sum(judge.verdict(each) is Verdict.STALE for each in answers)
    require(stale, f"none of {len(answers)} answers of a server without an age limit was found stale")
    noted.facts.append(f"the judge finds {stale} of {len(answers)} answers of a server without an age limit stale")


def _require_silence(stage: Stage, noted: Noted, began: float) -> None:
    """Wait until every server answers 503 with the reason."""
    for server in stage.servers:
        with server.client() as client:
            answer = wait_for(
                functools.partial(_unavailable, client),
                "503 beyond the age limit",
                timeout_seconds=MAX_STALENESS + TOLD_SECONDS,
                poll_seconds=0.2,
            )
        message = answer.json()["message"]
        require("out of date" in message, f"503 without the reason: {message}")
        noted.facts.append(f"503 after {time.time() - began:.0f} s: {message[:160]}")


def _unavailable(client: Client) -> Answer | None:
    answer = client.request("GET", CLASSES)
    return answer if answer.code == HTTPStatus.SERVICE_UNAVAILABLE else None


def _of(stage: Stage, server: str, since: float) -> list[Told]:
    return [each for each in list(stage.load.told) if each.server == server and each.asked >= since]


def cut(stage: Stage, noted: Noted) -> None:
    """Connections are reset and none is accepted."""
    _interrupt(stage, noted, Mode.CUT)


def blackhole(stage: Stage, noted: Noted) -> None:
    """Connections stay, new ones are accepted, and nothing passes."""
    _interrupt(stage, noted, Mode.BLACKHOLE)


def _interrupt(stage: Stage, noted: Noted, mode: Mode) -> None:
    noted.times += 1
    since = time.time()
    stage.set_network(mode)
    try:
        time.sleep(SHORT_CUT_SECONDS)
        with stage.writer.paused():
            truth = stage.truth()
        told = _of(stage, SURVIVOR, since)
        require(told, "a server without its cluster told nothing, though what it knew was new enough")
        require(dict(told[-1].figures) != truth, "the network was cut, and the figures went on all the same")
    finally:
        stage.set_network(Mode.OPEN)
        back = time.time()
    noted.recoveries.append(stage.recover(back))


def expire(stage: Stage, noted: Noted) -> None:
    """Versions expire while the servers are cut off: etcd is compacted, and kube-apiserver starts with no memory."""
    offsets = [server.log.stat().st_size for server in stage.servers]
    noted.times += 1
    with _cut_off(stage):
        stage.writer.wait_for_writes(time.time())
        with stage.writer.paused():
            _compact(stage)
            process = stage.control_plane.process("kube-apiserver")
            process.kill()
            process.start()
            stage.control_plane.wait_until_ready()
        stage.writer.wait_for_writes(time.time())
    back = time.time()
    noted.recoveries.append(stage.recover(back))
    for server, offset in zip(stage.servers, offsets, strict=True):
        # The figures may be right before every watch has been refused: each is begun anew in its own time. Cut off
        # before it is, it would list when the next storm is over, and no watch of its would be refused there.
        kinds = wait_for(functools.partial(_expired, server.log, offset), "410 and a new list of nodes and of pods")
        noted.facts.append(f"410 on the watches of {', '.join(kinds)}")


def _expired(log: Path, offset: int) -> list[str]:
    """The kinds whose watches were answered 410 and that go on, as the log says from an offset; none if one lacks."""
    with log.open() as file:
        file.seek(offset)
        text = file.read()
    kinds = [
        kind
        for kind in ("gpuclasses", "nodes", "pods")
        if f" {kind}: going on at version " in text.partition(f" {kind}: 410 Expired: ")[2]
    ]
    return kinds if {"nodes", "pods"} <= {*kinds} else []


def expire_often(times: int) -> Callable[[Stage, Noted], None]:
    """A storm of them."""

    def run(stage: Stage, noted: Noted) -> None:
        for _ in range(times):
            expire(stage, noted)

    return run


@contextlib.contextmanager
def _cut_off(stage: Stage) -> Iterator[None]:
    stage.set_network(Mode.CUT)
    try:
        yield
    finally:
        stage.set_network(Mode.OPEN)


def _compact(stage: Stage) -> None:
    """Have etcd forget every version but the latest."""
    body = {"revision": str(stage.writer.latest_version), "physical": True}
    url = f"http://127.0.0.1:{stage.control_plane.etcd_port}/v3/kv/compaction"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        require(response.status == HTTPStatus.OK, f"etcd did not compact: {response.status}")


FROZEN: Final = Fault("kube-apiserver frozen (SIGSTOP)", freeze_kube_apiserver)
WATCHES_FROZEN: Final = Fault("watches frozen", freeze_watches_of_carefree)
CUT: Final = Fault("network cut (reset)", cut)
BLACKHOLE: Final = Fault("network cut (nothing passes)", blackhole)
