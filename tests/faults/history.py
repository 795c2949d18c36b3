"""The true history: every state the cluster went through, in order, and between which times each came to be.

The versions of all objects stand in one order, that of etcd. Which versions there were is told by the informer and by
the answers to the writer; an informer that had to list anew has missed what came and went meanwhile, and a writer whose
answer was lost does not know what became of its request. A version whose time nobody noted came to be between its
neighbours in that order.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.faults.figures import Figures, Json, requests, resource_of, true_figures

KINDS: Final = ("nodes", "pods", "gpuclasses")
GONE: Final = frozenset({"delete", "lost"})
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Written:
    """One request of the writer that was answered with success.

    Attributes:
        kind: nodes, pods or gpuclasses.
        name: of the object.
        version: the resourceVersion it got; for a deletion without one the last version known before, and a half.
        asked: when it was sent, in seconds.
        answered: when the answer was there.
        object: the object as it then was, None once deleted.
    """

    kind: str
    name: str
    version: float
    asked: float
    answered: float
    object: Json | None


@dataclass(frozen=True, slots=True)
class Version:
    """One step of the cluster: an object as it was from a version on, None for its end; the span in which it came."""

    version: float
    kind: str
    name: str
    object: Json | None
    came: Span


def merge(lines: Iterable[Json], written: Iterable[Written], began: float, ended: float) -> list[Version]:
    """All versions in their order, from what the informer told and what the writer was answered."""
    notes = sorted(written, key=lambda each: each.version)
    found: dict[tuple[str, str, float], Json | None] = {}
    lost: set[tuple[str, str]] = set()
    for line in lines:
        if line["type"] == "synced":
            continue
        kind, name = line["resource"], line["object"]["metadata"]["name"]
        if line["type"] == "lost":
            lost.add((kind, name))
        else:
            found[kind, name, float(line["resourceVersion"])] = None if line["type"] in GONE else line["object"]
    ends = {(kind, name): version for (kind, name, version), obj in found.items() if obj is None}
    exact = [
        replace(note, version=ends.get((note.kind, note.name), note.version)) if note.object is None else note
        for note in notes
    ]
    for note in notes:
        # Names are never used twice, so the informer's word about an end, which has a version, goes before ours.
        if note.object is None and (note.kind, note.name) in ends:
            continue
        found.setdefault((note.kind, note.name, note.version), note.object)
        if note.object is None:
            lost.discard((note.kind, note.name))
    found |= _unseen_ends(lost, found)
    times = _Times(exact, began, ended)
    ordered = sorted(found.items(), key=lambda each: each[0][2])
    return [Version(version, kind, name, obj, times.of(kind, name, version)) for (kind, name, version), obj in ordered]


def _unseen_ends(
    lost: Iterable[tuple[str, str]], found: Mapping[tuple[str, str, float], Json | None]
) -> dict[tuple[str, str, float], Json | None]:
    """Deletions that neither was told in time: right after the last version, which is when the answer was lost."""
    ends: dict[tuple[str, str, float], Json | None] = {}
    for kind, name in lost:
        last = max((version for known, other, version in found if (known, other) == (kind, name)), default=0.0)
        if found.get((kind, name, last)) is not None:
            ends[kind, name, last + 0.25] = None
    return ends


class _Times:
    """When versions came to be.

    A deletion whose version nobody knows says nothing of its neighbours: a change whose answer was lost may have come
    before it and have a later version than the one it was given. Nor is that version its own: two deletions with
    nothing between them are given the same.
    """

    def __init__(self, notes: Sequence[Written], began: float, ended: float) -> None:
        self._noted = {(note.kind, note.name, note.version): (note.asked, note.answered) for note in notes}
        self._notes = sorted((each for each in notes if each.version % 1 == 0), key=lambda each: each.version)
        self._versions = [note.version for note in self._notes]
        self._began, self._ended = began, ended

    def of(self, kind: str, name: str, version: float) -> Span:
        if (kind, name, version) in self._noted:
            return self._noted[kind, name, version]
        index = bisect_left(self._versions, version)
        before = self._notes[index - 1].asked if index else self._began
        after = self._notes[index].answered if index < len(self._notes) else self._ended
        return before, after


@dataclass(slots=True)
class Track:
    """The states of one kind of object, one after the other.

    Attributes:
        states: for each, all objects by name, and the span in which it was or may have been so.
    """

    states: list[tuple[dict[str, Json], Span]] = field(default_factory=list)


class History:
    """What can be asked of the truth.

    Args:
        versions: as `merge` gives them.
        ended: when the last was still so.
    """

    def __init__(self, versions: Sequence[Version], ended: float) -> None:
        self.versions = versions
        self.resources: dict[str, str] = {}
        for each in versions:
            if each.kind == "gpuclasses" and each.object is not None:
                self.resources[each.name] = resource_of(each.object)
        self.tracks = {kind: _track(versions, kind, ended) for kind in KINDS}
        self._whole: dict[str, dict[Figures | None, list[Span]]] = {name: {} for name in self.resources}
        self._held: dict[tuple[str, int], dict[str, int]] = {}
        self._walk(ended)

    def spans(self, name: str, figures: Figures | None) -> list[Span]:
        """When a class had these figures, None for no such class: from the earliest it may to the latest."""
        return self._whole[name].get(figures, []) if name in self._whole else []

    def held(self, resource: str, pods: int) -> dict[str, int]:
        """What Pods hold of a resource in one state of them, by Node."""
        if (resource, pods) not in self._held:
            self._held[resource, pods] = requests(self.tracks["pods"].states[pods][0].values(), resource)
        return self._held[resource, pods]

    def _walk(self, ended: float) -> None:
        state: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        first = self.versions[0].came[1] if self.versions else ended
        for spans in self._whole.values():
            spans[None] = [(0.0, first)]
        for index, step in enumerate(self.versions):
            _apply(state[step.kind], step)
            until = self.versions[index + 1].came[1] if index + 1 < len(self.versions) else ended
            for name, resource in self.resources.items():
                figures = None
                if name in state["gpuclasses"]:
                    held = requests(state["pods"].values(), resource)
                    figures = true_figures(resource, state["nodes"], held)
                _extend(self._whole[name].setdefault(figures, []), (step.came[0], until))


def _track(versions: Iterable[Version], kind: str, ended: float) -> Track:
    track = Track([({}, (0.0, ended))])
    for step in versions:
        if step.kind == kind:
            before, (since, _) = track.states[-1]
            track.states[-1] = (before, (since, step.came[1]))
            after = dict(before)
            _apply(after, step)
            track.states.append((after, (step.came[0], ended)))
    return track


def _apply(state: dict[str, Json], step: Version) -> None:
    if step.object is None:
        state.pop(step.name, None)
    else:
        state[step.name] = step.object


def _extend(spans: list[Span], span: Span) -> None:
    if spans and spans[-1][1] >= span[0]:
        spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
    else:
        spans.append(span)
