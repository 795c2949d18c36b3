"""Deliberate faults of the model, each a mistake that somebody could make; the oracle must notice every one."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from apiserver.cluster.objects import NodeObject, PodObject, to_node, to_pod
from apiserver.cluster.snapshot import Snapshot, parse_snapshot
from apiserver.gpu.capacity import NodeShare, Tally
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Container, ContainerResources, Pod, PodResources, weigh
from apiserver.gpu.quantity import MAX_VALUE, MalformedQuantityError, parse_milli
from apiserver.gpu.tolerations import EXISTS, NO_SCHEDULE, Taint, Toleration, is_blocking
from tests.cluster.client import Json
from tests.cluster.oracle.drafting import NAMESPACES

Mutant = Callable[[pytest.MonkeyPatch], None]

NODE_KEY_PREFIX = "node.kubernetes.io/"
WHOLE = 1000


def _weighing(change: Callable[[PodResources], PodResources]) -> Mutant:
    """Weigh another Pod than there is."""
    return _instead("apiserver.cluster.objects.weigh", lambda pod: weigh(change(pod)))


def _nodes(change: Callable[[Node], Node]) -> Mutant:
    """Take nodes for others than they are."""

    def mutated(raw: NodeObject) -> Node:
        return change(to_node(raw))

    return _instead("apiserver.cluster.snapshot.to_node", mutated)


def _pods(counts: Callable[[PodObject], bool]) -> Mutant:
    """Count only some Pods."""

    def mutated(raw: PodObject) -> Pod | None:
        return to_pod(raw) if counts(raw) else None

    return _instead("apiserver.cluster.snapshot.to_pod", mutated)


def _items(exists: Callable[[Json], bool]) -> Mutant:
    """See only some objects."""

    def mutated(text: str) -> Snapshot:
        dump = json.loads(text)
        return parse_snapshot(json.dumps({**dump, "items": list(filter(exists, dump["items"]))}))

    return _instead("tests.cluster.oracle.judging.parse_snapshot", mutated)


def _refusing(blocks: Callable[[Taint], bool], tolerates: Callable[[Toleration, Taint], bool]) -> Mutant:
    """Read taints and tolerations by other rules."""

    def mutated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> list[Taint]:
        return [taint for taint in taints if blocks(taint) and not any(tolerates(each, taint) for each in tolerations)]

    return _instead("apiserver.gpu.capacity.untolerated", mutated)


def _instead(target: str, mutated: object) -> Mutant:
    return lambda monkeypatch: monkeypatch.setattr(target, mutated)


def _property(owner: type, name: str, mutated: Callable[..., int]) -> Mutant:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, property(mutated))


def _init(change: Callable[[Sequence[Container]], Iterable[Container]]) -> Mutant:
    """Take the init containers for others than they are."""
    return _weighing(lambda pod: replace(pod, init_containers=list(change(pod.init_containers))))


def _statuses(change: Callable[[ContainerResources], ContainerResources]) -> Mutant:
    """Take what the kubelet says of containers for something else."""
    return _weighing(lambda pod: replace(pod, statuses={name: change(each) for name, each in pod.statuses.items()}))


def _rounded(container: Container) -> Container:
    return replace(container, requests={name: -(-milli // WHOLE) * WHOLE for name, milli in container.requests.items()})


def _rounded_down(container: Container) -> Container:
    return replace(container, requests={name: milli // WHOLE * WHOLE for name, milli in container.requests.items()})


def _first_digits(raw: object) -> int:
    """The number before the suffix."""
    digits = str(raw).lstrip("+").split(".")[0].rstrip("numkMGTPEKie")
    return int(digits) * WHOLE if digits.isdigit() else parse_milli(raw)


def _unbounded(raw: object) -> int:
    try:
        return parse_milli(raw)
    except MalformedQuantityError:
        return MAX_VALUE * WHOLE


def _placement(tally: Tally, upto: int) -> Iterator[tuple[int, int]]:
    return ((devices, tally.free // devices) for devices in range(1, upto + 1))


def _tolerates_but_for_effect(each: Toleration, taint: Taint) -> bool:
    return replace(each, effect="").tolerates(taint)


MUTANTS: Mapping[str, Mutant] = {
    # Pods.
    "sidecars are skipped": _init(lambda init: [each for each in init if not each.restartable]),
    "sidecars end like other init containers": _init(lambda init: [replace(each, restartable=False) for each in init]),
    "init containers are skipped": _init(lambda _: []),
    "init containers weigh nothing once they ended": _init(lambda init: [each for each in init if each.restartable]),
    "init containers are summed": _weighing(
        lambda pod: replace(pod, containers=[*pod.containers, *pod.init_containers], init_containers=())
    ),
    "init containers run beside later sidecars": _init(
        lambda init: sorted(init, key=lambda each: not each.restartable)
    ),
    "init containers run before earlier sidecars": _init(lambda init: sorted(init, key=lambda each: each.restartable)),
    "containers are rounded up one by one": _weighing(
        lambda pod: replace(
            pod,
            containers=list(map(_rounded, pod.containers)),
            init_containers=list(map(_rounded, pod.init_containers)),
        )
    ),
    "parts of a device are dropped": _weighing(
        lambda pod: replace(pod, containers=list(map(_rounded_down, pod.containers)))
    ),
    "only the first container counts": _weighing(lambda pod: replace(pod, containers=pod.containers[:1])),
    "overhead is ignored": _weighing(lambda pod: replace(pod, overhead={})),
    "overhead is only added to the containers": _weighing(
        lambda pod: replace(pod, containers=[*pod.containers, Container("", pod.overhead)], overhead={})
    ),
    "the status of resizes is ignored": _weighing(
        lambda pod: replace(pod, statuses={}, pod_allocated=None, pod_actuated=None, resize_infeasible=False)
    ),
    "what is allocated is ignored": _statuses(lambda each: replace(each, allocated=None)),
    "what is held is ignored": _statuses(lambda each: replace(each, actuated=None)),
    "the pod-level status is ignored": _weighing(lambda pod: replace(pod, pod_allocated=None, pod_actuated=None)),
    "infeasible resizes count": _weighing(lambda pod: replace(pod, resize_infeasible=False)),
    "the status replaces the spec": _weighing(lambda pod: replace(pod, resize_infeasible=bool(pod.statuses))),
    "ended Pods count": _instead("apiserver.cluster.objects.TERMINAL_PHASES", frozenset()),
    "failed Pods count": _instead("apiserver.cluster.objects.TERMINAL_PHASES", frozenset({"Succeeded"})),
    "only running Pods count": _pods(lambda raw: raw.status.phase == "Running"),
    "Pods that have not started do not count": _pods(lambda raw: raw.status.phase != "Pending"),
    "Pods of phase Unknown do not count": _pods(lambda raw: raw.status.phase != "Unknown"),
    "terminating Pods do not count": _items(lambda item: "deletionTimestamp" not in item["metadata"]),
    "Pods of one namespace count": _pods(lambda raw: raw.metadata.namespace == NAMESPACES[0]),
    # Nodes.
    "capacity is taken for allocatable": _nodes(lambda node: replace(node, allocatable=node.capacity)),
    "nothing is subtracted": _property(NodeShare, "free", lambda share: share.allocatable if share.eligible else 0),
    "names are compared without case": _instead(
        "tests.cluster.oracle.judging.parse_snapshot", lambda text: parse_snapshot(text.replace("/gpu-", "/GPU-"))
    ),
    "the node controller's taints are skipped": _nodes(
        lambda node: replace(
            node, taints=tuple(each for each in node.taints if not each.key.startswith(NODE_KEY_PREFIX))
        )
    ),
    "only the first taint counts": _nodes(lambda node: replace(node, taints=node.taints[:1])),
    "NoExecute is no reason": _refusing(lambda taint: taint.effect == NO_SCHEDULE, Toleration.tolerates),
    "PreferNoSchedule is a reason": _refusing(lambda _: True, Toleration.tolerates),
    "Exists tolerates everything": _refusing(
        is_blocking, lambda each, taint: each.operator == EXISTS or each.tolerates(taint)
    ),
    "an empty key tolerates nothing": _refusing(
        is_blocking, lambda each, taint: bool(each.key) and each.tolerates(taint)
    ),
    "the effect of a toleration is ignored": _refusing(is_blocking, _tolerates_but_for_effect),
    "an empty effect is NoSchedule": _refusing(
        is_blocking, lambda each, taint: replace(each, effect=each.effect or NO_SCHEDULE).tolerates(taint)
    ),
    "the value of a toleration is ignored": _refusing(
        is_blocking, lambda each, taint: replace(each, operator=EXISTS).tolerates(taint)
    ),
    "no operator tolerates nothing": _refusing(
        is_blocking, lambda each, taint: bool(each.operator) and each.tolerates(taint)
    ),
    "seconds tolerate nothing": _refusing(
        is_blocking, lambda each, taint: each.toleration_seconds is None and each.tolerates(taint)
    ),
    "taints are ignored": _refusing(lambda _: False, Toleration.tolerates),
    # Quantities and sums.
    "suffixes are ignored": _instead("apiserver.cluster.objects.parse_milli", _first_digits),
    "what is beyond int64 is taken as it stands": _instead("apiserver.cluster.objects.parse_milli", _unbounded),
    "nodes are summed before clamping": _property(
        Tally, "free", lambda tally: max(0, tally.allocatable - tally.requested)
    ),
    "nodes are not clamped": _property(
        NodeShare, "free", lambda share: share.allocatable - share.requested if share.eligible else 0
    ),
    "an instance may be spread over nodes": lambda monkeypatch: monkeypatch.setattr(Tally, "placement", _placement),
}
