"""Deliberate faults in counting cpu, memory and pod slots, each a mistake that somebody could make.

The faults of `mutants` that concern a Pod as a whole are tried here too: what they break is broken for these as well.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from apiserver.cluster.loads import Load
from apiserver.cluster.objects import NodeObject, PodObject, to_load, to_node, to_pod
from apiserver.cluster.view import View
from apiserver.gpu.fit import Room, Shape, most_on
from apiserver.gpu.nodes import Compute, Node
from apiserver.gpu.pods import Container, PodResources, weigh_compute
from tests.cluster.oracle.mutants import MUTANTS, Mutant

PLENTY = 2**62


def _weighing(change: Callable[[PodResources], PodResources]) -> Mutant:
    """Weigh another Pod than there is."""
    return _instead("apiserver.cluster.objects.weigh_compute", lambda pod: weigh_compute(change(pod)))


def _loads(counts: Callable[[PodObject], bool]) -> Mutant:
    """Count only some Pods."""

    def mutated(raw: PodObject) -> Load | None:
        return to_load(raw) if counts(raw) else None

    return _instead("apiserver.cluster.snapshot.to_load", mutated)


def _asking(change: Callable[[Room, Shape], tuple[Room, Shape]]) -> Mutant:
    """Fit another shape into another room than there is."""
    mutated: Callable[[Room, Shape], int] = lambda room, shape: most_on(*change(room, shape))  # noqa: E731
    return _both(
        _instead("apiserver.gpu.fit.most_on", mutated), _instead("tests.cluster.oracle.judging.most_on", mutated)
    )


def _allocatable(change: Callable[[Compute], Compute]) -> Mutant:
    """Take nodes for larger or smaller than they are."""
    return _asking(lambda room, shape: (room._replace(allocatable=change(room.allocatable)), shape))


def _requested(change: Callable[[Compute], Compute]) -> Mutant:
    """Take nodes for fuller or emptier than they are."""
    return _asking(lambda room, shape: (room._replace(requested=change(room.requested)), shape))


def _both(*mutants: Mutant) -> Mutant:
    def mutate(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in mutants:
            each(monkeypatch)

    return mutate


def _instead(target: str, mutated: object) -> Mutant:
    return lambda monkeypatch: monkeypatch.setattr(target, mutated)


def _has_cpu_or_memory(raw: PodObject) -> bool:
    load = to_load(raw)
    return load is not None and (load[1] > 0 or load[2] > 0)


def _capacity_as_allocatable(raw: NodeObject) -> Node:
    quantities = raw.status.capacity
    status = NodeObject(raw.metadata, raw.spec, type(raw.status)(capacity=quantities, allocatable=quantities))
    return replace(to_node(raw), compute=to_node(status).compute)


def _nodes_of_one_room(view: View, name: str) -> Iterator[Room]:
    """As if pods could be spread over nodes."""
    rooms = list(View_rooms(view, name))
    if rooms:
        allocatable, requested = (Compute(*map(sum, zip(*each, strict=True))) for each in _columns(rooms))
        yield Room(rooms[0].node, sum(room.devices for room in rooms), allocatable, requested)


def _columns(rooms: list[Room]) -> tuple[list[Compute], list[Compute]]:
    return [room.allocatable for room in rooms], [room.requested for room in rooms]


View_rooms = View.rooms
"""As it is before any mutant."""

FIT_MUTANTS: Mapping[str, Mutant] = {
    "overhead is forgotten": _weighing(lambda pod: replace(pod, overhead={})),
    "overhead goes to the containers": _weighing(
        lambda pod: replace(pod, containers=[*pod.containers, Container("", pod.overhead)], overhead={})
    ),
    "init containers are forgotten": _weighing(
        lambda pod: replace(pod, init_containers=[each for each in pod.init_containers if each.restartable])
    ),
    "init containers are summed": _weighing(
        lambda pod: replace(pod, containers=[*pod.containers, *pod.init_containers], init_containers=())
    ),
    "sidecars end": _weighing(
        lambda pod: replace(pod, init_containers=[replace(each, restartable=False) for each in pod.init_containers])
    ),
    "sidecars are forgotten": _weighing(
        lambda pod: replace(pod, init_containers=[each for each in pod.init_containers if not each.restartable])
    ),
    "only the first container counts": _both(
        _instead("apiserver.cluster.objects._plain_compute", lambda _: None),
        _weighing(lambda pod: replace(pod, containers=pod.containers[:1])),
    ),
    "pod-level requests are forgotten": _weighing(lambda pod: replace(pod, level=None)),
    "pod-level requests are added to those of containers": _weighing(
        lambda pod: replace(pod, level=None, containers=[*pod.containers, Container("", pod.level or {})])
    ),
    "pod-level resizes are forgotten": _weighing(lambda pod: replace(pod, has_level_status=False)),
    "infeasible pod-level resizes count": _weighing(
        lambda pod: replace(pod, resize_infeasible=False) if pod.level is not None else pod
    ),
    "the status of resizes is forgotten": _weighing(
        lambda pod: replace(pod, statuses={}, pod_allocated=None, pod_actuated=None, resize_infeasible=False)
    ),
    "the pod-level status is forgotten": _weighing(
        lambda pod: replace(pod, pod_allocated=None, pod_actuated=None) if pod.level is None else pod
    ),
    "the status replaces the spec": _weighing(lambda pod: replace(pod, resize_infeasible=True)),
    "only Pods with devices count": _loads(lambda raw: to_pod(raw) is not None),
    "only Pods without devices count": _loads(lambda raw: to_pod(raw) is None),
    "Pods that ask for nothing take no slot": _loads(_has_cpu_or_memory),
    "only running Pods count": _loads(lambda raw: raw.status.phase == "Running"),
    "ended Pods count": MUTANTS["ended Pods count"],
    "failed Pods count": MUTANTS["failed Pods count"],
    "terminating Pods do not count": MUTANTS["terminating Pods do not count"],
    "suffixes are ignored": MUTANTS["suffixes are ignored"],
    "taints are ignored": MUTANTS["taints are ignored"],
    "slots are forgotten": _allocatable(lambda compute: compute._replace(pods=PLENTY)),
    "slots that are taken are forgotten": _requested(lambda compute: compute._replace(pods=0)),
    "cpu is forgotten": _allocatable(lambda compute: compute._replace(cpu_milli=PLENTY)),
    "memory is forgotten": _allocatable(lambda compute: compute._replace(memory_bytes=PLENTY)),
    "cpu that is taken is forgotten": _requested(lambda compute: compute._replace(cpu_milli=0)),
    "memory that is taken is forgotten": _requested(lambda compute: compute._replace(memory_bytes=0)),
    "a key that is missing means plenty": _allocatable(lambda compute: Compute(*(each or PLENTY for each in compute))),
    "capacity is taken for allocatable": _instead("apiserver.cluster.snapshot.to_node", _capacity_as_allocatable),
    "devices are not multiplied": _asking(lambda room, shape: (room, replace(shape, devices=1))),
    "devices are forgotten": _asking(lambda room, shape: (room._replace(devices=PLENTY), shape)),
    "what is not asked for limits": _asking(
        lambda room, shape: (
            room,
            replace(shape, cpu_milli=shape.cpu_milli or 1, memory_bytes=shape.memory_bytes or 1),
        )
    ),
    "a pod may be spread over nodes": lambda monkeypatch: monkeypatch.setattr(View, "rooms", _nodes_of_one_room),
    "one more is placed when a part of it fits": _both(
        _instead("apiserver.gpu.fit.most_on", lambda room, shape: most_on(room, shape) + 1),
    ),
}
