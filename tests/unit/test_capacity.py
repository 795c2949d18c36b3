"""Capacity: what a node contributes, why it does not, and the totals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.gpu.capacity import MAX_PLACEMENT, NodeReason, NodeShare, Tally, explain, node_share
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Node
from apiserver.gpu.tolerations import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration

R = "nvidia.com/gpu"
CLASS = GPUClass("gpu", resource_name=R)
TOLERANT = GPUClass(
    "gpu",
    resource_name=R,
    tolerations=(Toleration("t", "Exists", effect=NO_EXECUTE, toleration_seconds=60), Toleration(operator="Exists")),
)


def node(devices: int = 8, **fields: Any) -> Node:  # noqa: ANN401 # any field of Node
    """A node with so many devices, all of them healthy unless a field says otherwise."""
    return Node(**{"name": "n1", "capacity": {R: devices}, "allocatable": {R: devices}, **fields})


@pytest.mark.parametrize(
    ("gpu_class", "fields", "reasons"),
    [
        pytest.param(CLASS, {}, [], id="nothing is wrong"),
        pytest.param(CLASS, {"ready": False}, [NodeReason.NOT_READY], id="not ready"),
        pytest.param(CLASS, {"unschedulable": True}, [NodeReason.CORDONED], id="cordoned"),
        pytest.param(CLASS, {"labels": {"pool": "b"}}, [NodeReason.NOT_SELECTED], id="outside the selector"),
        pytest.param(CLASS, {"taints": (Taint("t", "", NO_SCHEDULE),)}, [NodeReason.UNTOLERATED_TAINT], id="tainted"),
        pytest.param(
            CLASS,
            {"taints": (Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE),)},
            [NodeReason.UNTOLERATED_TAINT],
            id="a taint of the cordon that was left over",
        ),
        pytest.param(
            TOLERANT, {"taints": (Taint("t", "", NO_EXECUTE),)}, [NodeReason.TEMPORARILY_TOLERATED], id="soon evicted"
        ),
        pytest.param(TOLERANT, {"taints": (Taint("u", "", NO_EXECUTE),)}, [], id="tolerated for ever"),
        pytest.param(
            TOLERANT, {"ready": False, "unschedulable": True}, [NodeReason.NOT_READY, NodeReason.CORDONED], id="policy"
        ),
        pytest.param(CLASS, {"malformed": {R: "many"}}, [NodeReason.MALFORMED_QUANTITY], id="unreadable"),
    ],
)
def test_eligibility(gpu_class: GPUClass, fields: dict[str, Any], reasons: list[NodeReason]) -> None:
    """A node is left out exactly when there is a reason, and every reason is told."""
    selector = {"pool": "a"}
    subject = node(**{"labels": {"pool": "a"}, **fields})
    share = node_share(gpu_class, subject, 3, selector)
    assert [each.reason for each in explain(gpu_class, subject, share, selector)] == reasons
    assert share.eligible is (not reasons)
    assert share.free == (0 if reasons else 5)


def test_explanations_of_an_eligible_node() -> None:
    """Sick and over-committed devices are explained without leaving the node out."""
    subject = node(allocatable={R: 6})
    share = node_share(CLASS, subject, 7, {})
    explained = explain(CLASS, subject, share, {}, ["ns/pod"])
    assert [each.reason for each in explained] == [
        NodeReason.UNHEALTHY_DEVICES,
        NodeReason.OVERCOMMITTED,
        NodeReason.MALFORMED_QUANTITY,
    ]
    assert (share.eligible, share.free) == (True, 0)


DEVICES = st.integers(0, 2**63 - 1) | st.integers(0, 16)


@st.composite
def shares(draw: st.DrawFn) -> NodeShare:
    """A share as a node can give one: capacity covers allocatable where the node is counted."""
    allocatable = draw(DEVICES)
    sick = draw(st.integers(0, 4))
    return NodeShare(allocatable + sick, allocatable, draw(DEVICES), draw(st.booleans()), sick)


@given(st.lists(shares()))
def test_identities(nodes: list[NodeShare]) -> None:
    """Whatever the nodes, the two identities hold, for the class and against a sum node by node."""
    tally = Tally()
    for share in nodes:
        tally.add(share)
    assert tally.free == tally.allocatable - tally.requested + tally.overcommitted
    assert tally.free == sum(share.free for share in nodes)
    assert tally.max_free_per_node == max((share.free for share in nodes), default=0)
    assert tally.unavailable == tally.capacity - tally.allocatable >= 0
    assert tally.unhealthy == sum(share.unhealthy for share in nodes)
    assert 0 <= tally.free <= tally.allocatable


@given(st.lists(shares()), st.randoms())
def test_order_and_removal(nodes: list[NodeShare], random: Any) -> None:  # noqa: ANN401 # hypothesis' Random
    """The order of nodes does not matter, and a node that was added and taken back leaves no trace."""
    once, again = Tally(), Tally()
    for share in nodes:
        once.add(share)
    shuffled = list(nodes)
    random.shuffle(shuffled)
    for share in shuffled:
        again.add(share)
        again.remove(share)
        again.add(share)
    assert once == again


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 100))
def test_more_requested_never_frees(allocatable: int, requested: int, more: int) -> None:
    """Another pod never raises what is free."""
    assert NodeShare(0, allocatable, requested + more, True).free <= NodeShare(0, allocatable, requested, True).free


def test_placement() -> None:
    """Instances of k devices are counted node by node: devices of two nodes do not make one instance."""
    tally = Tally()
    for free in (3, 3, 2, 0):
        tally.add(NodeShare(free, free, 0, eligible=True))
    assert list(tally.placement(3)) == [(1, 8), (2, 3), (3, 2)]
    assert len(list(tally.placement(10**9))) == MAX_PLACEMENT
