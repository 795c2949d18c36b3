"""A check: something that a real client must be able to do, and the words for when it is not."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.stage import Stage


class SkippedError(Exception):
    """What a check needs is not on this machine; the message says what."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        name: what the client is and what it does.
        run: does it; whatever it raises is the reason of the failure, except `SkippedError`.
        is_short: whether it is also part of `make test`.
        needs_splitter: whether it waits for its watches to reach a replica, which only the splitter tells.
    """

    name: str
    run: Callable[[Stage], None]
    is_short: bool = False
    needs_splitter: bool = False


def require(condition: object, why: str) -> None:
    """Fail unless the condition is met.

    Raises:
        AssertionError: with the reason.
    """
    if not condition:
        raise AssertionError(why)


def require_equal(found: object, expected: object, what: str) -> None:
    """Fail unless both are equal.

    Raises:
        AssertionError: with both.
    """
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def require_contains(text: str, part: str, what: str) -> None:
    """Fail unless the text contains the part.

    Raises:
        AssertionError: with both.
    """
    if part not in text:
        raise AssertionError(f"{what}: {part!r} is not in {text[:600]!r}")
