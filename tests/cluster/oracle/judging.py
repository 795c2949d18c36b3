"""Holding the model against what the scheduler did, node by node."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apiserver.catalog.gpufit import fit_object
from apiserver.cluster.snapshot import Snapshot, parse_snapshot
from apiserver.cluster.view import ClassReport, NodeReport, View
from apiserver.gpu.capacity import NodeReason
from apiserver.gpu.fit import MAX_COUNT, Room, Shape, most_on
from apiserver.gpu.nodes import CPU, MEMORY
from apiserver.gpu.quantity import parse_milli, whole

REASON = "node reason"
VERDICT = "verdict"
ELIGIBLE, REFUSED, POLICY, WITHOUT = (
    "eligible",
    "refused by the scheduler",
    "left out by policy",
    "without the resource",
)
KINDS = (ELIGIBLE, REFUSED, POLICY, WITHOUT)
WHOLE_CLASS = "the whole class"
WHOLE_FIT = "the whole class: fit"
ENDLESS = "the whole cluster: no probe was refused"


@dataclass(frozen=True, slots=True)
class Observation:
    """What there was on a cluster before the probes, and how many of them the scheduler then placed.

    Attributes:
        cluster: its name.
        devices: how many each probe asked for.
        selector: the node selector to ask the model with.
        snapshot: class, Nodes and Pods as a dump, read back from kube-apiserver.
        placed: the probes on each node; a node without any may be missing.
        refused: the probes for which there was no node.
        beside: the cpu and memory that each probe asked for as well; None where it asked for devices alone, and
            nothing else was scarce.
    """

    cluster: str
    devices: int
    selector: Mapping[str, str]
    snapshot: str
    placed: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    beside: Mapping[str, str | int] | None = None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The scheduler placed another number of probes than the model says."""

    cluster: str
    where: str
    predicted: int
    placed: int
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Verdict:
    """What came of one observation, or of many.

    Attributes:
        disagreements: each place where model and scheduler part.
        counted: how often each reason and each kind of comparison occurred.
        placed_on_left_out: nodes left out by policy on which the scheduler placed something.
    """

    disagreements: list[Disagreement] = field(default_factory=list)
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    placed_on_left_out: int = 0

    def add(self, other: "Verdict") -> None:
        """Count another one in."""
        self.disagreements += other.disagreements
        self.counted += other.counted
        self.placed_on_left_out += other.placed_on_left_out


class _Asked:
    """The model, filled with the dump of an observation and asked about its only class."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        parsed: Snapshot = parse_snapshot(observation.snapshot)
        if parsed.rejected:
            raise ValueError(f"the dump is not read whole: {parsed.rejected}")
        self._view = view = View(selector=observation.selector)
        parsed.fill(view)
        (name,) = view.names()
        report = view.report(name)
        if report is None:
            raise ValueError(f"the class {name} has no report")
        self.report: ClassReport = report
        self.nodes = {node.name: node for node in parsed.nodes}
        self._by_name = {each.name: each for each in view.nodes(name)}

    def takes(self, said: NodeReport) -> int:
        """How many probes go onto a node that is eligible, or is left out by nothing but policy."""
        devices = max(0, said.share.allocatable - said.share.requested)
        beside = self._observation.beside
        if beside is None:
            return devices // self._observation.devices
        room = Room(said.name, devices, self.nodes[said.name].compute, self._view.loads.on(said.name))
        cpu_milli, memory_milli = (parse_milli(beside.get(name)) for name in (CPU, MEMORY))
        return most_on(room, Shape(self._observation.devices, cpu_milli, whole(memory_milli)))

    def served_fit(self) -> tuple[int, dict[str, int]]:
        """What `gpuclasses/fit` answers to the shape of the probes: how many in all, and the most on each node."""
        beside = self._observation.beside or {}
        asked = {"devices": self._observation.devices, CPU: 0, MEMORY: 0, **beside, "count": MAX_COUNT}
        parameters = {name: [str(value)] for name, value in asked.items()}
        page = asyncio.run(fit_object(self._view, self.report.gpu_class.name, parameters, 0))
        if page is None:
            raise ValueError("the class is gone")
        return page["fits"], {each["name"]: each["count"] for each in page["nodes"]}

    def comparisons(self) -> Iterator[tuple[str, str, NodeReport | None]]:
        """Each node with what is to be compared there, and what the model says of it."""
        resource = self.report.gpu_class.resource_name
        for name, node in self.nodes.items():
            said = self._by_name.get(name)
            if said is None:
                yield name, WITHOUT, None
            elif said.share.eligible:
                yield name, ELIGIBLE, said
            elif resource in node.malformed or NodeReason.UNTOLERATED_TAINT in _reasons(said):
                yield name, REFUSED, said
            else:
                yield name, POLICY, said


def judge(observation: Observation) -> Verdict:
    """Ask the model on the dump, and compare."""
    asked = _Asked(observation)
    verdict = Verdict()
    on_eligible = {}
    for name, kind, said in asked.comparisons():
        placed = observation.placed.get(name, 0)
        reasons = _reasons(said)
        verdict.counted[VERDICT, kind] += 1
        verdict.counted.update((REASON, reason) for reason in set(reasons))
        if kind == POLICY:
            verdict.placed_on_left_out += placed > 0
            continue
        predicted = asked.takes(said) if said and kind == ELIGIBLE else 0
        if kind == ELIGIBLE:
            on_eligible[name] = placed
        if placed != predicted:
            verdict.disagreements.append(Disagreement(observation.cluster, name, predicted, placed, (kind, *reasons)))
    if observation.beside is None:
        verdict.disagreements += _of_whole_class(observation, asked.report, list(on_eligible.values()))
    else:
        verdict.disagreements += _of_fit(observation, asked, on_eligible)
    if not observation.refused:
        total = sum(observation.placed.values())
        verdict.disagreements.append(Disagreement(observation.cluster, ENDLESS, probes_needed(observation) - 1, total))
    return verdict


def probes_needed(observation: Observation) -> int:
    """About how many probes fill the cluster and leave one over; nodes left out by policy may take some too."""
    asked = _Asked(observation)
    takes = (
        asked.takes(said) for _, kind, said in asked.comparisons() if said is not None and kind in (ELIGIBLE, POLICY)
    )
    return 1 + sum(takes)


def _reasons(said: NodeReport | None) -> tuple[str, ...]:
    return tuple(each.reason.value for each in said.reasons) if said else ()


def _of_fit(observation: Observation, asked: _Asked, placed: Mapping[str, int]) -> Iterator[Disagreement]:
    """What is served: how many fit in all, and the nodes that are named with the most they take."""
    total, said = asked.served_fit()
    compared = {name: (said.get(name, 0), placed.get(name, 0)) for name in {*said, *placed}}
    compared[WHOLE_FIT] = (total, sum(placed.values()))
    for where, (predicted, found) in sorted(compared.items()):
        if predicted != found:
            yield Disagreement(observation.cluster, where, predicted, found, ("gpuclasses/fit",))


def _of_whole_class(observation: Observation, report: ClassReport, placed: list[int]) -> Iterator[Disagreement]:
    """The totals: what fits in one-device pods and the most on one node, or how many larger instances fit."""
    tally = report.tally
    compared = {"instances": (dict(tally.placement(observation.devices))[observation.devices], sum(placed))}
    if observation.devices == 1:
        compared["free"] = (tally.free, sum(placed))
        compared["maxFreePerNode"] = (tally.max_free_per_node, max(placed, default=0))
    for what, (predicted, found) in compared.items():
        if predicted != found:
            yield Disagreement(observation.cluster, f"{WHOLE_CLASS}: {what}", predicted, found)
