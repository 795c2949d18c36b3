"""client-go: a dynamic and a metadata informer, each with WatchList and without, whose watches end again and again."""

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.cluster.binaries import Module, find_program
from tests.cluster.catalog import API
from tests.cluster.client import Json
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED
from tests.conformance.checks import Check, require, require_equal
from tests.conformance.follower import PROCESS_TAG
from tests.conformance.replicas import start_late, with_clocks
from tests.conformance.stage import CLASSES, FREE, Stage

MODULE: Final = Module("informer", Path(__file__).parent)
WATCH_SECONDS: Final = 3
STOP_SECONDS: Final = 10
LEAST_TURNS, MOST_TURNS = 3, 15
"""A Service chooses at random: once in 16,000 times all the watches reach one replica."""


def find_informer(announce: Callable[[str], None]) -> Path:
    """The Go program, built first if it is not there.

    Raises:
        UnavailableError: it cannot be built.
    """
    return find_program("informer", MODULE, ".", announce)


@dataclass(frozen=True, slots=True)
class Followed:
    """What an informer follows, and how.

    Attributes:
        client: dynamic or metadata.
        path: of its list.
        figure: of an object; None if the informer sees none.
        has_labels: whether the labels of a class can be seen.
        arguments: of the Go program.
    """

    client: str
    path: str = CLASSES
    figure: Callable[[Json], int | None] | None = None
    has_labels: bool = True
    arguments: tuple[str, ...] = ()


DYNAMIC: Final = Followed("dynamic", figure=lambda item: item["status"]["free"])
METADATA: Final = Followed("metadata")
OFFERS: Final = Followed(
    "dynamic",
    path=f"{API}/namespaces/default/gpuoffers",
    figure=lambda item: item.get("orderable"),
    has_labels=False,
    arguments=("-resource=gpuoffers", "-namespace=default"),
)


class Informer:
    """The running Go program, and what it has told so far."""

    def __init__(self, log: Path, popen: subprocess.Popen[bytes]) -> None:
        self._log = log
        self._popen = popen

    def told(self, kind: str) -> list[Json]:
        """The lines of one type: request, synced, add, update, delete, stored or end."""
        whole = self._log.read_text().rpartition("\n")[0]
        lines: list[Json] = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["type"] == kind]

    def wait_for(self, kind: str, name: str, figure: int | None = None) -> None:
        """Wait until it has told of an object, with a figure if one is given."""
        wait_for(
            lambda: any(
                line["name"] == name and (figure is None or line.get("figure") == figure) for line in self.told(kind)
            ),
            f"the informer to {kind} {name}" + ("" if figure is None else f" with the figure {figure}"),
        )

    def end(self) -> dict[str, Json]:
        """End it, and return what its store then held, by name."""
        self._popen.communicate(timeout=STOP_SECONDS)
        require_equal(self._popen.returncode, 0, "exit code of the informer")
        require(self.told("end"), "the informer did not come to its end")
        return {line["name"]: line for line in self.told("stored")}


@contextmanager
def running(stage: Stage, followed: Followed, *, watch_list: bool) -> Iterator[Informer]:
    """Run the Go program for as long as the block lasts, if it is not ended before."""
    directory = stage.scratch("informer")
    log = directory / "told.jsonl"
    command = [
        str(find_informer(lambda _: None)),
        f"-kubeconfig={stage.control_plane.kubeconfig}",
        f"-client={followed.client}",
        f"-watch-seconds={WATCH_SECONDS}",
        *followed.arguments,
    ]
    environment = {**os.environ, "KUBE_FEATURE_WatchListClient": str(watch_list).lower()}
    with log.open("wb") as output, (directory / "errors").open("wb") as errors:
        popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environment)
    try:
        yield Informer(log, popen)
    finally:
        popen.terminate()
        popen.communicate(timeout=STOP_SECONDS)


def _follow(stage: Stage, followed: Followed, *, watch_list: bool) -> None:
    """It syncs, sees everything, and takes up each watch at the other replica without listing anew."""
    stage.splitter.for_watches = itertools.cycle((1, 0))
    try:
        with running(stage, followed, watch_list=watch_list) as informer:
            wait_for(lambda: informer.told("synced"), "the informer to sync")
            require_equal(informer.told("synced")[0].get("watchList", False), watch_list, "WatchListClient")
            require_equal({line["name"] for line in informer.told("add")}, set(FREE), "objects at first")
            for turn in range(MOST_TURNS):
                _change(stage, informer, turn, followed)
                wait_for(lambda turn=turn: len(_taken_up(informer)) > turn, "a watch to be taken up")  # type: ignore[misc]
                if turn >= LEAST_TURNS - 1 and len(_watched_replicas(informer)) == len(stage.replicas):
                    break
            _require_no_relist(informer, watch_list=watch_list)
            _require_same(stage, informer.end(), followed)
            require_equal(len(_watched_replicas(informer)), len(stage.replicas), "replicas that were watched")
    finally:
        stage.splitter.for_watches = itertools.repeat(1)


def _follow_late(stage: Stage) -> None:
    """A learns the time from a kube-apiserver that is a minute late: B's versions are 504 there; nothing is lost."""
    with with_clocks(stage):
        start_late(stage.replicas[0])
        stage.splitter.for_watches, stage.splitter.for_others = itertools.cycle((1, 0)), itertools.repeat(1)
        try:
            with running(stage, DYNAMIC, watch_list=True) as informer:
                wait_for(lambda: informer.told("synced"), "the informer to sync")
                for turn in range(LEAST_TURNS):
                    _change(stage, informer, turn, DYNAMIC)
                    wait_for(lambda turn=turn: len(_taken_up(informer)) > turn, "a watch to be taken up")  # type: ignore[misc]
                codes = {request.get("code") for request in informer.told("request")}
                require_equal(codes, {HTTPStatus.OK, HTTPStatus.GATEWAY_TIMEOUT}, "codes of all answers")
                _require_same(stage, informer.end(), DYNAMIC)
        finally:
            stage.splitter.for_watches, stage.splitter.for_others = itertools.repeat(1), itertools.repeat(0)


def _change(stage: Stage, informer: Informer, turn: int, followed: Followed) -> None:
    """Change a figure, a label and the set of classes; the informer must tell of each."""
    count = 1 + turn % LEAST_TURNS  # a node has four
    with stage.sold(f"informed-{turn}", count):
        if followed.figure is not None:
            informer.wait_for("update", "l40s", FREE["l40s"] - count)
    if followed.has_labels:
        stage.client.patch(f"{STORED}/l40s-24c", {"metadata": {"labels": {"turn": str(turn)}}})
        wait_for(
            lambda: any(line.get("labels", {}).get("turn") == str(turn) for line in informer.told("update")),
            "the informer to tell of a label",
        )
    stage.add_class(f"informed-{turn}")
    informer.wait_for("add", f"informed-{turn}")
    stage.remove_class(f"informed-{turn}")
    informer.wait_for("delete", f"informed-{turn}")


def _is_watch(request: Json) -> bool:
    return bool(request["query"].get("watch") == "true")


def _taken_up(informer: Informer) -> list[Json]:
    """The watches from a version, after the first."""
    watches = [request for request in informer.told("request") if _is_watch(request)]
    return watches[1:]


def _watched_replicas(informer: Informer) -> set[int]:
    """The tags of the processes whose versions watches were taken up from: each watch ends with a bookmark."""
    return {int(request["query"]["resourceVersion"]) & PROCESS_TAG for request in _taken_up(informer)}


def _require_no_relist(informer: Informer, *, watch_list: bool) -> None:
    requests = informer.told("request")
    require_equal({request.get("code") for request in requests}, {200}, "codes of all answers")
    lists = [request for request in requests if not _is_watch(request)]
    require_equal(len(lists), 0 if watch_list else 1, "lists")
    starts = [request for request in requests if request["query"].get("sendInitialEvents") == "true"]
    require_equal(len(starts), 1 if watch_list else 0, "watches with initial events")
    require(
        all(int(request["query"]["resourceVersion"]) > 0 for request in _taken_up(informer)),
        "a watch was taken up without a version",
    )


def _require_same(stage: Stage, stored: dict[str, Json], followed: Followed) -> None:
    """The store of the informer holds what the server lists."""
    listed = {item["metadata"]["name"]: item for item in stage.client.items(followed.path)}
    require_equal(set(stored), set(listed), "names in the store")
    for name, item in listed.items():
        require_equal(stored[name].get("labels", {}), item["metadata"].get("labels", {}), f"labels of {name}")
        if followed.figure is not None:
            require_equal(stored[name].get("figure"), followed.figure(item), f"figure of {name}")


def _check(what: str, followed: Followed, *, watch_list: bool, is_short: bool = False) -> Check:
    name = f"client-go {what}, WatchList {'on' if watch_list else 'off'}"
    return Check(name, lambda stage: _follow(stage, followed, watch_list=watch_list), is_short=is_short)


CHECKS: Final = (
    _check("dynamic informer", DYNAMIC, watch_list=True, is_short=True),
    _check("dynamic informer", DYNAMIC, watch_list=False),
    _check("metadata informer", METADATA, watch_list=True),
    _check("metadata informer", METADATA, watch_list=False, is_short=True),
    _check("dynamic informer of one namespace's offers", OFFERS, watch_list=True),
    _check("dynamic informer of one namespace's offers", OFFERS, watch_list=False, is_short=True),
    Check("client-go informer, kube-apiserver's clock a minute late for A", _follow_late, needs_splitter=True),
)
