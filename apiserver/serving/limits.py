"""What one request may take: time, and its share of all that are answered at once.

Source: apiserver pkg/endpoints/filters/request_deadline.go, pkg/server/filters/timeout.go and maxinflight.go of
Kubernetes 1.37.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeGuard

import orjson

from apiserver.serving.answers import UNWAITED_BYTES, Answer
from apiserver.serving.durations import DurationError, parse_duration
from apiserver.serving.eager import Begun, in_task
from apiserver.serving.filters import Handler, Repeatable
from apiserver.serving.health import is_health_path
from apiserver.serving.repeats import Standing
from apiserver.serving.request_info import RequestInfo
from apiserver.serving.requests import Request, Response
from apiserver.serving.responses import respond_text
from apiserver.serving.status import BadRequest
from apiserver.serving.users import PRIVILEGED_GROUP

REQUEST_SECONDS: Final = 60.0
_RETRY_AFTER_SECONDS: Final = 1
_TIMED_OUT: Final = {
    "metadata": {},
    "status": "Failure",
    "message": "Timeout: request did not complete within the allotted timeout",
    "reason": "Timeout",
    "details": {},
    "code": 504,
}
"""Without kind and apiVersion, as upstream sends it: it is written past the encoder."""
_READ_ONLY_VERBS: Final = ("get", "list", "watch")


def is_long_running(info: RequestInfo) -> bool:
    """Whether a request lasts as long as its client likes."""
    return info.is_resource_request and info.verb == "watch"


# Time.


async def _end_in_time(handler: Handler, request: Request) -> Response:
    if is_long_running(request.info):
        return await handler(request)
    seconds = _seconds_for(request)
    begun = Begun(handler(request))
    if begun.done and not _may_wait_for_client(begun.result):
        return begun.result
    await in_task()  # what waits is timed; what does not is over already
    response: Response | None = None
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            response = await begun
            if _may_wait_for_client(response):
                await response.send(request)
            return response
    except TimeoutError:
        if not limit.expired():
            raise
    request.terminated = 504
    if not isinstance(response, Answer) or not response.is_sent:
        return _timed_out()
    if request.transport is not None:
        request.transport.abort()  # the client sees a broken answer, not a short one
    return response


ending_in_time: Final = Repeatable(_end_in_time, lambda _: Standing())
"""Gives a request 60 s, or the `timeout` it asks for if that is shorter; one that cannot be read is a BadRequest.

Watches have a time of their own, and what is only repeated takes none.
"""


def _may_wait_for_client(response: Response) -> TypeGuard[Answer]:
    """Whether sending it may have to wait for the client, and belongs to the time that a request may take."""
    return isinstance(response, Answer) and len(response.body) > UNWAITED_BYTES


def _seconds_for(request: Request) -> float:
    text = request.info.query.get("timeout", "")
    if not text:
        return REQUEST_SECONDS
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise BadRequest(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if 0 < seconds < REQUEST_SECONDS else REQUEST_SECONDS


def _timed_out() -> Answer:
    headers = {"Content-Type": "text/plain; charset=utf-8"}  # what Go guesses from the body, for want of a header
    return Answer(status=504, body=orjson.dumps(_TIMED_OUT) + b"\n", headers=headers)


# Number.


class HighWater:
    """The highest value of the last second or two.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._second = self._peak = self._peak_before = 0

    def grew(self, value: int) -> None:
        """Take the value, which has just grown by one; that it shrinks need not be told."""
        if int(self._clock()) != self._second:
            self._turn(value - 1)
        self._peak = max(self._peak, value)

    def highest(self, value: int) -> int:
        """The highest of this second and the one before.

        Args:
            value: as it is now.
        """
        self._turn(value)
        return max(self._peak, self._peak_before)

    def _turn(self, value: int) -> None:
        """Begin another second, if it is one, with the value that was carried into it."""
        second = int(self._clock())
        if second != self._second:
            self._peak_before = self._peak if second == self._second + 1 else value
            self._second, self._peak = second, value


class Inflight:
    """How many requests are being answered, of those that read and those that would write.

    Args:
        limit: of those that read; 0 for no limit.
        writing_limit: of the others. They are refused in the end, but asking whether they may be takes time.
        clock: seconds that only grow.

    Attributes:
        reading: how many now.
        writing: how many now.
    """

    def __init__(self, limit: int = 400, writing_limit: int = 200, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._writing_limit = writing_limit
        self.reading = 0
        self.writing = 0
        self._highest = {True: HighWater(clock), False: HighWater(clock)}

    def enter(self, *, reads: bool) -> bool:
        """Count one more, if there is room for it; whether there is."""
        now, limit = (self.reading, self._limit) if reads else (self.writing, self._writing_limit)
        if limit and now >= limit:
            return False
        now += 1
        if reads:
            self.reading = now
        else:
            self.writing = now
        self._highest[reads].grew(now)
        return True

    def has_room(self, *, reads: bool) -> bool:
        """Whether one more may enter."""
        now, limit = (self.reading, self._limit) if reads else (self.writing, self._writing_limit)
        return not limit or now < limit

    def pass_by(self, *, reads: bool) -> None:
        """Count one that entered and left at once."""
        self._highest[reads].grew((self.reading if reads else self.writing) + 1)

    def leave(self, *, reads: bool) -> None:
        """One that entered is over."""
        if reads:
            self.reading -= 1
        else:
            self.writing -= 1

    def highest(self, *, reads: bool) -> int:
        """The most that were answered at once of late."""
        return self._highest[reads].highest(self.reading if reads else self.writing)


def limiting(inflight: Inflight) -> Repeatable:
    """Refuse with 429 what is too much. Watches and `system:masters` are not counted.

    Health is not either, unlike upstream: a server that is only busy must not be killed for it.
    """

    def limit(handler: Handler, request: Request) -> Coroutine[Any, Any, Response]:
        info = request.info
        if is_long_running(info) or (not info.is_resource_request and is_health_path(info.path)):
            return handler(request)
        return count(handler, request, reads=info.verb in _READ_ONLY_VERBS)

    async def count(handler: Handler, request: Request, *, reads: bool) -> Response:
        if not inflight.enter(reads=reads):
            user = request.user
            if user is None or PRIVILEGED_GROUP not in user.groups:
                request.terminated = 429
                return _too_many()
            return await handler(request)
        try:
            return await handler(request)
        finally:
            inflight.leave(reads=reads)

    def again(request: Request) -> Standing | None:
        reads = request.info.verb in _READ_ONLY_VERBS

        def count(_: Answer, __: float) -> None:
            inflight.pass_by(reads=reads)

        return Standing(partial(inflight.has_room, reads=reads), count)

    return Repeatable(limit, again)


def _too_many() -> Answer:
    response = respond_text("Too many requests, please try again later.\n", 429)
    response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response
