"""Coroutines that are begun where they are called."""

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from apiserver.serving.eager import Begun, in_task

WORD = ContextVar("WORD", default="outside")


async def immediate() -> str:
    """End without waiting."""
    return "done"


async def waiting(future: asyncio.Future[str], heard: list[str]) -> str:
    """Wait, and say what came of it."""
    try:
        return await future
    except asyncio.CancelledError:
        heard.append("cancelled")
        raise


async def test_what_does_not_wait_has_ended() -> None:
    """Its result is there, and may be awaited all the same."""
    begun = Begun(immediate())
    assert begun.done
    assert begun.result == await begun == "done"


def test_what_fails_at_once_raises_at_once() -> None:
    """The exception is the caller's."""

    async def fail() -> None:
        raise LookupError("at once")

    with pytest.raises(LookupError, match="at once"):
        assert Begun(fail()) is None


@pytest.mark.parametrize("is_set_before", [False, True], ids=["set later", "set before it is awaited"])
async def test_what_waits_goes_on(*, is_set_before: bool) -> None:
    """In a task or awaited, with what it waits for."""
    future = asyncio.get_running_loop().create_future()
    one, other = Begun(waiting(future, [])), Begun(waiting(future, []))
    assert not one.done
    if is_set_before:
        future.set_result("news")
    task = asyncio.create_task(other)
    await asyncio.sleep(0)
    if not is_set_before:
        future.set_result("news")
    assert await one == await task == "news"


async def test_a_task_ended_before_its_first_turn_ends_it_too() -> None:
    """What was begun hears of it, although the task was never run."""
    heard: list[str] = []
    task = asyncio.create_task(Begun(waiting(asyncio.get_running_loop().create_future(), heard)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled"]


async def test_it_keeps_its_context() -> None:
    """What it sets there lasts over its waiting, and is seen nowhere else."""

    async def speak() -> tuple[str, str]:
        token = WORD.set("inside")
        await asyncio.sleep(0)
        said = WORD.get()
        WORD.reset(token)
        return said, WORD.get()

    begun = Begun(speak(), copy_context())
    assert WORD.get() == "outside"
    assert await begun == ("inside", "outside")


async def test_time_can_be_limited_in_what_was_begun_outside_a_task() -> None:
    """It first goes on in a task."""

    async def hurry() -> None:
        await in_task()
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    made: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: made.append(loop.create_task(Begun(hurry()))))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await made[0]
