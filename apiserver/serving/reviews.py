"""Remembering reviews: what was asked of kube-apiserver about a token or a permission need not be asked again at once.

Source: k8s.io/apiserver pkg/authentication/token/cache and plugin/pkg/authorizer/webhook (1.37): 8192 answers, 10 s.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

_REMEMBER_SECONDS: Final = 10.0
_REMEMBERED_ANSWERS: Final = 8192
_SHARED_LOOKUP_SECONDS: Final = 30.0

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class ReviewCache(Generic[_Question, _Answer]):
    """Answers of somebody who is slow to ask: remembered for ten seconds, and each question asked once at a time.

    A question that failed is not remembered. Asking belongs to none of those who wait for the answer: one that is
    cancelled leaves it going for the others. Beyond its size the cache forgets what was longest not asked for.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._remembered: OrderedDict[_Question, tuple[float, _Answer]] = OrderedDict()
        self._asking: dict[_Question, asyncio.Task[_Answer]] = {}

    def recall(self, question: _Question) -> _Answer | None:
        """The answer if it is remembered and still counts, without a turn of the event loop."""
        entry = self._entry(question)
        return None if entry is None else entry[1]

    def lasting(self, question: _Question) -> Callable[[], bool]:
        """Says for how long the answer counts that is remembered now."""
        entry, clock = self._entry(question), self._clock
        until = -math.inf if entry is None else entry[0]
        return lambda: clock() < until

    async def get(
        self, question: _Question, ask: Callable[[], Coroutine[Any, Any, _Answer]], *, remember: bool = True
    ) -> _Answer:
        """Return the answer, asking only if it is neither remembered nor being asked for.

        Raises:
            TimeoutError: no answer within 30 seconds.
            Exception: whatever asking raised.
        """
        entry = self._entry(question)
        if entry is not None:
            return entry[1]
        asking = self._asking.get(question)
        if asking is None:
            asking = self._asking[question] = asyncio.create_task(self._ask(question, ask, remember=remember))
            asking.add_done_callback(lambda task: self._finish(question, task))
        return await asyncio.shield(asking)

    def _entry(self, question: _Question) -> tuple[float, _Answer] | None:
        entry = self._remembered.get(question)
        if entry is None or self._clock() >= entry[0]:
            return None
        self._remembered.move_to_end(question)
        return entry

    async def _ask(
        self, question: _Question, ask: Callable[[], Coroutine[Any, Any, _Answer]], *, remember: bool
    ) -> _Answer:
        async with asyncio.timeout(_SHARED_LOOKUP_SECONDS):
            answer = await ask()
        if remember:
            self._remembered[question] = (self._clock() + _REMEMBER_SECONDS, answer)
            self._remembered.move_to_end(question)
            if len(self._remembered) > _REMEMBERED_ANSWERS:
                self._remembered.popitem(last=False)
        return answer

    def _finish(self, question: _Question, task: asyncio.Task[_Answer]) -> None:
        del self._asking[question]
        if not task.cancelled():
            task.exception()  # seen, even if everybody who waited has left
