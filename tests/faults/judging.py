"""The judge: is what was answered true, and new enough.

Each kind of object comes to a server by a stream of its own, so what it knows may have the Nodes of one moment and the
Pods of another. Such figures are *mixed*: true of Nodes and Pods that there were within the time allowed, each by
itself. They are counted apart. *Wrong* is what no Nodes and Pods within or before that time give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tests.faults.figures import Figures, true_figures
from tests.faults.history import History, Span

SAMPLES: Final = 20


class Verdict(Enum):
    """What becomes of an answer; the worst of its classes counts."""

    TRUE = 0
    MIXED = 1
    STALE = 2
    WRONG = 3


@dataclass(frozen=True, slots=True)
class Told:
    """What a reader was answered with 200, or a watcher was told in an event.

    Attributes:
        by: who was told.
        server: which server told it.
        asked: when it was asked; for an event, when it came.
        answered: when the answer was there.
        figures: of each class that was named.
        is_list: whether what is not named is said not to exist.
    """

    by: str
    server: str
    asked: float
    answered: float
    figures: Mapping[str, Figures]
    is_list: bool = True


class Judge:
    """Judges by a history.

    Args:
        history: the truth.
        max_staleness: in seconds, how old an answer may be.

    Attributes:
        history: the truth.
    """

    def __init__(self, history: History, max_staleness: float) -> None:
        self.history = history
        self._max_staleness = max_staleness

    def verdict(self, told: Told) -> Verdict:
        """The worst of what an answer says of each class."""
        names = set(told.figures) | (set(self.history.resources) if told.is_list else set())
        window = (told.asked - self._max_staleness, told.answered)
        verdicts = [self._of(name, told.figures.get(name), window) for name in names]
        return max(verdicts, key=lambda each: each.value, default=Verdict.TRUE)

    def _of(self, name: str, figures: Figures | None, window: Span) -> Verdict:
        spans = self.history.spans(name, figures)
        if any(_overlap(span, window) for span in spans):
            return Verdict.TRUE
        if figures is not None and self._is_mixed(name, figures, window):
            return Verdict.MIXED
        past = (0.0, window[1])
        if any(_overlap(span, past) for span in spans):
            return Verdict.STALE
        return Verdict.STALE if figures is not None and self._is_mixed(name, figures, past) else Verdict.WRONG

    def _is_mixed(self, name: str, figures: Figures, window: Span) -> bool:
        """Whether Nodes of one time and Pods of another, both within the window, have these figures."""
        resource = self.history.resources.get(name)
        classes = self.history.tracks["gpuclasses"].states
        if resource is None or not any(name in state and _overlap(span, window) for state, span in classes):
            return False
        pods = [index for index, (_, span) in enumerate(self.history.tracks["pods"].states) if _overlap(span, window)]
        for nodes, span in self.history.tracks["nodes"].states:
            if not _overlap(span, window):
                continue
            idle = true_figures(resource, nodes, {})
            if (idle.capacity, idle.allocatable) != (figures.capacity, figures.allocatable):
                continue
            if any(true_figures(resource, nodes, self.history.held(resource, index)) == figures for index in pods):
                return True
        return False


def doubt(judge: Judge, answers: Sequence[Told], max_staleness: float) -> str:
    """Have the judge look at real answers made false: with a device more, and as if told long after.

    Args:
        judge: who judged them.
        answers: in the order of their time.
        max_staleness: the judge's.

    Returns:
        What it noticed, for people.

    Raises:
        AssertionError: it did not notice.
    """
    lists = [each for each in answers if each.is_list and each.figures]
    chosen = lists[:: max(1, len(lists) // SAMPLES)]
    after = answers[-1].answered + max_staleness + 1 if answers else 0
    wrong = stale = 0
    for each in chosen:
        name = min(each.figures)
        more = each.figures[name]._replace(free=each.figures[name].free + 1)
        wrong += judge.verdict(replace(each, figures={**each.figures, name: more})) is Verdict.WRONG
        stale += judge.verdict(replace(each, asked=after, answered=after)) is Verdict.STALE
    noticed = f"of {len(chosen)} answers the judge finds {wrong} wrong with a device more, {stale} stale if told later"
    if not chosen or wrong < len(chosen) or not stale:
        raise AssertionError(noticed)
    return noticed


def _overlap(span: Span, window: Span) -> bool:
    return span[0] <= window[1] and window[0] <= span[1]
