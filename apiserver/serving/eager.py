"""Beginning a coroutine at once, where it is called: most answers are made without ever waiting for anything.

To make a task for each request and to wait for the turns of the event loop in which it is begun, and its end noticed,
takes longer than to make a short answer.

Source: eager tasks of Python 3.12 (asyncio.tasks), for 3.11 as well, and without any task for what does not wait.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Begun(Generator[Any, Any, _Result]):
    """A coroutine that has run up to where it first waits, or to its end; what is left is awaited, or made a task.

    There may be no current task when it is begun. What needs one, such as `asyncio.timeout`, first awaits `in_task()`.

    Args:
        coroutine: not begun yet.
        context: in which it runs from beginning to end; None for that of whoever lets it run.

    Attributes:
        done: whether it has ended already.
        result: what it returned, if it has.

    Raises:
        Exception: whatever it raises before it first waits.
    """

    __slots__ = ("_context", "_coroutine", "_is_future", "_is_told", "_waits_for", "done", "result")

    result: _Result

    def __init__(self, coroutine: Coroutine[Any, Any, _Result], context: Context | None = None) -> None:
        self.done = False
        self._coroutine = coroutine
        try:
            waits_for = coroutine.send(None) if context is None else context.run(coroutine.send, None)
        except StopIteration as end:
            self.done = True
            self.result = end.value
            return
        self._context = context
        self._waits_for: Any = waits_for
        self._is_told = False
        # A future that is handed on says so to the task, once. Others may be handed the same one before.
        self._is_future = getattr(self._waits_for, "_asyncio_future_blocking", None) is not None
        if self._is_future:
            self._waits_for._asyncio_future_blocking = False  # noqa: SLF001 # part of the protocol of tasks

    def __await__(self) -> Generator[Any, Any, _Result]:
        """What is left of it."""
        return self

    def send(self, value: Any) -> Any:  # noqa: ANN401 # as the base class has it
        """Go on: the first time only by saying what it waits for."""
        if self.done:
            raise StopIteration(self.result)
        if not self._is_told:
            self._is_told = True
            if self._is_future:
                self._waits_for._asyncio_future_blocking = True  # noqa: SLF001 # part of the protocol of tasks
            return self._waits_for
        return self._run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 # as above
        """Go on with an exception where it waits."""
        self._is_told = True
        return self._run(self._coroutine.throw, *error)

    def close(self) -> None:
        """End it where it waits."""
        self._coroutine.close()

    def _run(self, step: Callable[..., Any], *value: Any) -> Any:  # noqa: ANN401 # as above
        return step(*value) if self._context is None else self._context.run(step, *value)


async def in_task() -> None:
    """Go on within a task, which can be ended when its time is up."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
