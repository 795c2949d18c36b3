"""Following a cluster for a person: until everything is listed once, or until it is clear that it never will be."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from apiserver.cluster.client import ConfigurationError, connect
from apiserver.cluster.live import CLASSES, Live
from apiserver.cluster.reflector import FAILURES, Reflector
from apiserver.cluster.view import View
from apiserver.inputs import USER_AGENT, InputError, Source
from apiserver.settings import Settings

_SILENCE_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.02
_TRIES: Final = 2
"""Failed attempts after which a person is told that nobody answers, instead of waiting on."""

_FIXES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the cluster does not know you: log in again; `kubectl config view` shows the credentials",
    HTTPStatus.NOT_FOUND: "the cluster does not have this kind",
}


@asynccontextmanager
async def following(settings: Settings, live: Live) -> AsyncIterator[asyncio.Task[None]]:
    """Follow the cluster of a kubeconfig, the person's own by default, for as long as the block lasts.

    It is entered when everything has been listed once. What follows is given, so that its failure can be noticed.

    Raises:
        InputError: there is no such cluster, it refuses, or it does not answer.
    """
    if not settings.verbosity:
        logging.getLogger(FAILURES).setLevel(logging.ERROR)  # the message that ends it, or the screen, says the same
    try:
        client = await connect(settings.kubeconfig, context=settings.context or None, user_agent=USER_AGENT, local=True)
    except ConfigurationError as error:
        raise InputError(str(error)) from error
    async with client:
        task = asyncio.create_task(live.run(client), name="live")
        try:
            await _first_sync(live, task, client.url)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _first_sync(live: Live, task: asyncio.Task[None], url: str) -> None:
    loop = asyncio.get_running_loop()
    seen, deadline = 0, loop.time() + _SILENCE_SECONDS
    while not live.complete():
        await asyncio.wait([task], timeout=_POLL_SECONDS)
        if task.done():
            task.result()
        problem = next(_hopeless(live), None)
        if problem is not None:
            raise InputError(f"the cluster at {url}: {problem}")
        listed = sum(each.counters.listed for each in live.needed())
        if listed > seen:
            seen, deadline = listed, loop.time() + _SILENCE_SECONDS
        if loop.time() > deadline:
            raise InputError(f"the cluster at {url}: nothing came for {_SILENCE_SECONDS} s: {live.unsynced()}")


def _hopeless(live: Live) -> Iterator[str]:
    """What waiting will not help against."""
    for reflector in live.needed():
        if reflector.synced or reflector.last_status is None:
            continue
        if reflector.last_status == HTTPStatus.FORBIDDEN:
            yield f"{reflector.last_error}\n{_missing_rule(reflector)}"
        elif reflector.last_status in _FIXES:
            yield f"{reflector.collection.name}: {reflector.last_error}\n{_fix(reflector)}"
        elif reflector.last_status == 0 and reflector.counters.failures >= _TRIES:
            yield f"nobody answers: {str(reflector.last_error).partition(': ')[2]}"


def _fix(reflector: Reflector[Any]) -> str:
    if reflector.last_status == HTTPStatus.NOT_FOUND and reflector.collection is CLASSES:
        return "the stored kind GPUClass is not installed: kubectl apply -k manifests/crd"
    return _FIXES[reflector.last_status or 0]


def _missing_rule(reflector: Reflector[Any]) -> str:
    """The rule of a ClusterRole that gives the right to follow a collection."""
    _, *prefix, _, resource = reflector.collection.path.split("/")
    group = prefix[1] if prefix[0] == "apis" else ""
    return (
        "a ClusterRole bound to you has to hold the rule "
        f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["list", "watch"]}}'
    )


def reading(live: Live) -> str:
    """What is being read, for a person who waits."""
    followed = live.needed()
    if not followed:
        return "connecting to the cluster ..."
    said = []
    for each in followed:
        name, listed, failed = each.collection.name, each.counters.listed, each.last_error
        if each.synced or listed:
            said.append(f"{listed:,} {name}" + ("" if each.synced else " so far"))
        elif each.counters.lists:
            said.append(f"{name} ({failed or 'asked'})")
    return f"reading the cluster: {', '.join(said)} ..."


class Followed(Source):
    """A cluster as it is followed.

    Args:
        view: what is told of it.
        live: what tells it.
        task: what runs that.
    """

    def __init__(self, view: View, live: Live, task: asyncio.Task[None]) -> None:
        super().__init__(view)
        self._live = live
        self._task = task

    def untold(self) -> str | None:
        """See Source."""
        if self._task.done():  # only by a fault of this program, which is to be seen
            self._task.result()
        return self._live.untold()

    def lagging(self) -> str | None:
        """See Source."""
        failing = [f"{each.collection.name}: {each.last_error}" for each in self._live.needed() if each.last_error]
        return "; ".join(failing) or None
