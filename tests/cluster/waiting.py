"""Waiting, with an end."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(check: Callable[[], T | None], what: str, *, timeout_seconds: float = 30, poll_seconds: float = 0.05) -> T:
    """Call check until it answers something truthy, and return that answer.

    Args:
        check: asked again and again; what it raises ends the wait.
        what: the thing waited for, as a noun phrase for the error.
        timeout_seconds: how long to go on asking.
        poll_seconds: the pause between two questions.

    Raises:
        TimeoutError: it did not come in time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s in vain for {what}; last answer: {answer!r}")
        time.sleep(poll_seconds)
