"""A client that lists at one replica and watches at another, while the cluster changes and replicas come and go."""

import contextlib
import http.client
import itertools
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final, Self

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json, NotFoundError
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.waiting import wait_for
from tests.cluster.workload import create_pod, pod, pod_path
from tests.conformance.checks import Check, require
from tests.conformance.stage import CARD, CLASSES, STORED, Stage, gpu_class

CHURN_STEPS: Final = 60
CHURN_PAUSE_SECONDS: Final = 0.05
WATCH_SECONDS: Final = 1
TIMEOUT_SECONDS: Final = 10
IDLE_LISTS, IDLE_WATCHES = 4, 8
RELIST_SECONDS: Final = 1
RETRY_SECONDS: Final = 0.2
AGREE_SECONDS: Final = 20


class Follower:
    """Keeps a copy of all classes for as long as a `with` block lasts, by list and watch as the API convention has it.

    Attributes:
        lists: how often it listed.
        watches: how many watches it began.
        expired: how many of them were answered with 410.
        failure: what it could not understand, if anything.
    """

    def __init__(self, stage: Stage, list_at: CatalogServer, watch_at: Iterator[CatalogServer]) -> None:
        """Prepare it; entering the block starts it.

        Args:
            stage: where the replicas are.
            list_at: the replica to list at.
            watch_at: the replica for each watch in turn.
        """
        self.lists = self.watches = self.expired = 0
        self.failure = ""
        self._list_at, self._watch_at = list_at, watch_at
        self._certificate = stage.control_plane.authority.client(ADMIN, ADMIN_GROUPS)
        self._state: dict[str, Json] = {}
        self._version = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._thread.join(timeout=30)

    @property
    def state(self) -> dict[str, Json]:
        """The copy, without resourceVersions: each replica counts its own."""
        return {name: _without_version(item) for name, item in list(self._state.items())}

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch(next(self._watch_at))
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_SECONDS)  # that replica is away
            except (KeyError, ValueError, AssertionError) as error:
                self.failure = f"{type(error).__name__}: {error}"
                return

    def _list(self) -> None:
        with self._list_at.client() as client:
            answer = client.request("GET", CLASSES)
        if answer.code == HTTPStatus.SERVICE_UNAVAILABLE:
            raise ConnectionError
        require(answer.code == HTTPStatus.OK, f"a list was answered with {answer.code}")
        self.lists += 1
        self._state = {item["metadata"]["name"]: item for item in answer.json()["items"]}
        self._version = answer.json()["metadata"]["resourceVersion"]

    def _watch(self, replica: CatalogServer) -> None:
        options = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={self._version}"
        context = ssl.create_default_context(cafile=replica.authority)
        context.load_cert_chain(self._certificate.certificate, self._certificate.key)
        connection = http.client.HTTPSConnection("127.0.0.1", replica.port, context=context, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"{CLASSES}?{options}")
            response = connection.getresponse()
            if response.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
                raise ConnectionError
            require(response.status == HTTPStatus.OK, f"a watch was answered with {response.status}")
            self.watches += 1
            for line in response:
                self._take(json.loads(line))
                if not self._version:
                    return

    def _take(self, event: Json) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            require(item["code"] == HTTPStatus.GONE, f"a watch ended with {item}")
            self.expired += 1
            self._version = ""
            time.sleep(RELIST_SECONDS)  # as client-go does, more or less
            return
        name = item["metadata"].get("name")
        if kind == "DELETED":
            self._state.pop(name, None)
        elif kind != "BOOKMARK":
            self._state[name] = item
        self._version = str(max(int(self._version), int(item["metadata"]["resourceVersion"])))


def _without_version(item: Json) -> Json:
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return {**item, "metadata": metadata}


def churn(stage: Stage, seed: int) -> None:
    """Make, change and delete classes and Pods, at random but the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 # no secret
    with stage.control_plane.user_client(ADMIN, ADMIN_GROUPS) as client:
        for step in range(CHURN_STEPS):
            number = chance.randrange(6)
            chance.choice((_toggle_class, _toggle_class, _toggle_pod, _label))(client, number, step)
            time.sleep(CHURN_PAUSE_SECONDS)


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
def _tidied(stage: Stage) -> Iterator[None]:
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


def _require_agreement(stage: Stage, follower: Follower) -> None:
    """The copy becomes what both replicas list."""
    for replica in stage.replicas:
        with replica.client() as client:

            def agrees(client: Client = client) -> bool:
                return follower.state == {
                    item["metadata"]["name"]: _without_version(item) for item in client.items(CLASSES)
                }

            wait_for(agrees, "the follower to agree with a replica's list", timeout_seconds=AGREE_SECONDS)
    require(not follower.failure, follower.failure)


def _follow(stage: Stage, list_at: int, watch_at: Iterator[int], seed: int) -> None:
    """No watch is refused, nothing is listed twice, and nothing is missed."""
    replicas = stage.replicas
    with _tidied(stage), Follower(stage, replicas[list_at], (replicas[index] for index in watch_at)) as follower:
        wait_for(lambda: follower.watches, "the first watch")
        churn(stage, seed)
        _require_agreement(stage, follower)
        require(follower.lists == 1, f"listed {follower.lists} times, {follower.expired} watches were refused")
        require(follower.watches > 1, "no watch was taken up")


def _restart(stage: Stage, watch_at: Iterator[int]) -> None:
    """A replica that is started anew takes the watch up or answers 410, and the follower recovers."""
    replicas = stage.replicas
    with _tidied(stage), Follower(stage, replicas[0], (replicas[index] for index in watch_at)) as follower:
        wait_for(lambda: follower.watches, "the first watch")
        changing = threading.Thread(target=churn, args=(stage, 3))
        changing.start()
        replicas[0].stop()
        replicas[0].start()
        changing.join(timeout=60)
        _require_agreement(stage, follower)


def _idle(stage: Stage) -> None:
    """Nothing changes, and the replica to watch at is younger than the last change: the follower must not list forever.

    For the first seconds it may be told that its version is too old.
    """
    stage.replicas[1].stop()
    stage.replicas[1].start()
    with Follower(stage, stage.replicas[0], itertools.repeat(stage.replicas[1])) as follower:
        wait_for(lambda: follower.watches > IDLE_WATCHES or follower.lists > IDLE_LISTS, "watches without a change")
        require(follower.lists <= IDLE_LISTS, f"{follower.lists} lists, {follower.expired} of the watches expired")
        _require_agreement(stage, follower)


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
    _check("A is away", _one_away),
)
