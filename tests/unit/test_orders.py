"""What a tenant can order: rights, the order of reasons, and what is said of what is not known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.gpu.classes import MODE_PASSTHROUGH, MODE_VGPU, GPUClass
from apiserver.gpu.orders import OrderReason, judge_order
from apiserver.gpu.quota import TOTAL, Budget, Limit, tightest
from apiserver.gpu.tenants import Namespace, Tenant, TenantRules


def left(remaining: int | None, at_most: int | None = None) -> Budget:
    """A budget with so much left."""
    if remaining is not None:
        return tightest("c", [Limit("q", remaining + 1, 1)])
    return tightest("c", [Limit("q", at_most, None, "not counted")])


GOOD: dict[str, Any] = {
    "offered": True,
    "terminating": False,
    "entitled": True,
    "budgets": (),
    "free": 5,
    "max_per_instance": 3,
}


@pytest.mark.parametrize(
    ("changes", "reason", "figures"),
    [
        pytest.param({}, "Orderable", (5, 5, 3), id="no budget is no limit"),
        pytest.param({"budgets": [left(4), left(2)]}, "Orderable", (2, 2, 2), id="the smallest of what applies"),
        pytest.param({"budgets": [left(9)]}, "Orderable", (5, 5, 3), id="capacity is the smallest"),
        pytest.param({"budgets": [left(None, 4)]}, "BudgetUnknown", (None, 4, 3), id="hard stands in for the unknown"),
        pytest.param({"budgets": [left(None, 9)]}, "BudgetUnknown", (None, 5, 3), id="never more than is free"),
        pytest.param({"budgets": [left(None, None)]}, "BudgetUnknown", (None, 5, 3), id="not even hard is known"),
        pytest.param({"budgets": [left(None, 4), left(1)]}, "BudgetUnknown", (None, 1, 1), id="one known, one not"),
        pytest.param({"budgets": [left(None, 4)], "free": 0}, "NoCapacity", (0, 0, 0), id="0 free is certain"),
        pytest.param(
            {"budgets": [left(None, 4), left(0)]}, "BudgetExhausted", (0, 0, 0), id="and so is a spent budget"
        ),
        pytest.param({"budgets": [left(None, 0)]}, "BudgetExhausted", (0, 0, 0), id="a budget of nothing"),
        pytest.param({"budgets": [left(0)], "free": 0}, "BudgetExhausted", (0, 0, 0), id="the budget before capacity"),
        pytest.param({"budgets": [left(0)], "entitled": False}, "NotEntitled", (0, 0, 0), id="the right before it"),
        pytest.param({"entitled": False, "offered": False}, "NotOffered", (0, 0, 0), id="the offer before the right"),
        pytest.param({"terminating": True}, "NotOffered", (0, 0, 0), id="nothing for a namespace that ends"),
    ],
)
def test_first_reason(changes: dict[str, Any], reason: str, figures: tuple[int | None, int, int]) -> None:
    """The first reason that applies decides, and what is certain goes before what is not known."""
    order = judge_order(**{**GOOD, **changes})
    assert (order.reason, (order.orderable, order.at_most, order.max_per_instance)) == (reason, figures)
    assert order.message.endswith((".", "not counted"))


def test_order_of_reasons() -> None:
    """The documented order is the one of the enumeration."""
    assert list(OrderReason) == [
        "NotOffered",
        "NotEntitled",
        "BudgetExhausted",
        "NoCapacity",
        "BudgetUnknown",
        "Orderable",
    ]


BUDGETS = st.builds(left, st.none() | st.integers(0, 6), st.none() | st.integers(0, 6))


@given(st.booleans(), st.booleans(), st.booleans(), st.lists(BUDGETS, max_size=2), st.integers(0, 6), st.integers(1, 6))
def test_verdict_holds_together(
    offered: bool, terminating: bool, entitled: bool, budgets: list[Budget], free: int, largest: int
) -> None:
    """A figure is known unless the reason says so, positive only if Orderable, and never above its bound."""
    order = judge_order(
        offered=offered,
        terminating=terminating,
        entitled=entitled,
        budgets=budgets,
        free=free,
        max_per_instance=min(free, largest),
    )
    assert (order.orderable is None) == (order.reason is OrderReason.BUDGET_UNKNOWN)
    assert bool(order.orderable) == (order.reason is OrderReason.ORDERABLE)
    assert order.orderable in (None, order.at_most)
    assert 0 <= order.max_per_instance <= order.at_most <= free


@pytest.mark.parametrize(
    ("mode", "labels", "entitled"),
    [
        pytest.param(MODE_VGPU, {"gpuclass.cozystack.io/vgpu": "true"}, True, id="labelled"),
        pytest.param(MODE_VGPU, {"gpuclass.cozystack.io/vgpu": "false"}, False, id="another value"),
        pytest.param(MODE_VGPU, {"gpuclass.cozystack.io/vgpu": ""}, False, id="an empty value"),
        pytest.param(MODE_VGPU, {}, False, id="no label"),
        pytest.param(MODE_PASSTHROUGH, {}, True, id="a whole card needs none"),
    ],
)
def test_entitlement(mode: str, labels: dict[str, str], entitled: bool) -> None:
    """Only vGPUs need the entitlement."""
    assert TenantRules().is_entitled(GPUClass("c", spec={"mode": mode}), Namespace("ns", labels=labels)) is entitled


def test_rules_are_settings() -> None:
    """Label and Secret are what the settings say."""
    rules = TenantRules(("a/b", ""), "x-{class}-y")
    vgpu = GPUClass("c", spec={"mode": MODE_VGPU})
    assert rules.is_entitled(vgpu, Namespace("ns", labels={"a/b": ""}))
    assert not rules.is_entitled(vgpu, Namespace("ns"))
    assert (rules.secret_of("l40s.a"), TenantRules().secret_of("l40s")) == ("x-l40s.a-y", "gpuclass-license-l40s")


def test_budgets_of_a_class() -> None:
    """An order counts against the budget of its class and that of all; another class's is none of its business."""
    own, total = left(1), left(2)
    assert Tenant(Namespace("ns"), {"c": own, "d": left(3)}).budgets_of("c") == (own, None)
    assert Tenant(Namespace("ns"), {TOTAL: total}).budgets_of("c") == (None, total)
