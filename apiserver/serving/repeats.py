"""Answering again what was asked before in the same words.

Who polls sends the same bytes each time, and what kube-aggregator sends for them differs in the Audit-Id alone. What
these mean need not be found out again, which takes longer than everything else there is to do. Whether it may still be
answered is asked each time of all who can change their minds, and the answer is that of the moment. Whatever is not as
it was, a refusal above all, is left to those who answer in full.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion11

from apiserver.serving.answers import AUDIT_ID, UNWAITED_BYTES, Answer
from apiserver.serving.remembered import Remembered

if TYPE_CHECKING:
    from apiserver.serving.requests import Request

_REMEMBERED: Final = 1024
_REMEMBERED_LENGTH: Final = 4096
_OK: Final = 200
_AUDIT_ID_LINE: Final = f"\r\n{AUDIT_ID}: ".encode()
_UUID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_LENGTH: Final = 36

Make = Callable[[], bytes | None]
"""Makes the body of an answer as it is now; None where there is none, and what it raises says the same."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left to be done by a filter that has let a request pass, when the same request comes again.

    Attributes:
        stands: whether it would let it pass now, for the same caller; asking changes nothing. None where it always
            would.
        count: counts an answer that was let pass, and how many seconds it took. None where there is nothing to count.
    """

    stands: Callable[[], bool] | None = None
    count: Callable[[Answer, float], None] | None = None


class Repeat:
    """How one request is answered again.

    Args:
        answer: what it was answered with.
        standings: of every filter, the outermost first.
        make: makes the body.
    """

    __slots__ = ("_answer", "_counts", "_make", "_stands")

    def __init__(self, answer: Answer, standings: Iterable[Standing], make: Make) -> None:
        kept = list(standings)
        self._answer = answer.with_body(b"")
        self._stands = [each.stands for each in kept if each.stands is not None]
        self._counts = [each.count for each in kept if each.count is not None]
        self._make = make

    def answer(self) -> Answer | None:
        """The answer as it is now, counted, to be sent at once; None where it takes more than to repeat it."""
        began = time.perf_counter()
        try:
            for stands in self._stands:
                if not stands():
                    return None
            body = self._make()
        except Exception:  # noqa: BLE001 # a refusal or a bug, and whoever answers in full tells of either
            return None
        if body is None or len(body) > UNWAITED_BYTES:
            return None
        answer = self._answer.with_body(body)
        took = time.perf_counter() - began
        for count in self._counts:
            count(answer, took)
        return answer


class Repeats:
    """What was asked lately, by whom, and how it is answered again.

    Who asks for the second time may well ask for the third; who asks once, in words that never come again, is not to
    pay for what is prepared for others.

    Args:
        prepare: how a request is answered again that was answered like this; None where it cannot be.
    """

    def __init__(self, prepare: Callable[["Request", Answer], Repeat | None]) -> None:
        self._prepare = prepare
        self._heard: Remembered[int, None] = Remembered(_REMEMBERED)
        self._known: Remembered[tuple[object, bytes], Repeat] = Remembered(_REMEMBERED)

    def answer(self, shown: object, head: bytes) -> tuple[Answer, str] | None:
        """What to answer at once, and the Audit-Id that came with the request; None if the request has to be read.

        Args:
            shown: what the client showed in its handshake.
            head: all that came, at a time when nothing else was on its way.
        """
        words, audit_id = _split(head)
        repeat = self._known.get((shown, words))
        answer = None if repeat is None else repeat.answer()
        return None if answer is None else (answer, audit_id)

    def remember(self, shown: object, head: bytes, request: "Request", answer: Answer) -> None:
        """Take an answer that was given.

        Args:
            shown: as above.
            head: the whole request, and nothing else.
            request: what was read from it.
            answer: what it was answered with, at once.
        """
        if request.method != "GET" or request.version != HttpVersion11 or len(head) > _REMEMBERED_LENGTH:
            return
        if answer.status != _OK or not answer.keep_alive or len(answer.body) > UNWAITED_BYTES:
            return
        words, audit_id = _split(head)
        if request.headers.get(AUDIT_ID, "") != audit_id:  # not by the letter, so nobody has cut it out
            return
        heard = hash((shown, words))  # two that have the same are prepared for a little early
        if heard not in self._heard:
            self._heard[heard] = None
            return
        repeat = self._prepare(request, answer)
        if repeat is not None:
            self._known[shown, words] = repeat


def _split(head: bytes) -> tuple[bytes, str]:
    """The head of a request without its Audit-Id, and that; "" if there is none, or none as Kubernetes writes it."""
    at = head.find(_AUDIT_ID_LINE)
    if at < 0:
        return head, ""
    at += len(_AUDIT_ID_LINE)
    after = at + _UUID_LENGTH
    given = head[at:after]
    if not _UUID.fullmatch(given) or not head.startswith(b"\r\n", after):
        return head, ""
    return head[:at] + head[after:], given.decode()
