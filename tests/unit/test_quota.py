"""Budgets: their keys, what one ResourceQuota says, and what several leave together."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.gpu.quota import TOTAL, Budget, Limit, budget_key, budgeted_class, read_limits, tightest

KEY = "l40s.gpuclass.cozystack.io/devices"
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
CLASS_NAMES = st.lists(LABELS, max_size=4).map(".".join)


@given(CLASS_NAMES)
def test_keys_round_trip(class_name: str) -> None:
    """What is built is read back as the same class, dots in its name included."""
    assert budgeted_class(budget_key(class_name)) == class_name


def test_keys_are_spelt() -> None:
    """The spelling that hosters write into a ResourceQuota."""
    assert (budget_key("l40s"), budget_key(TOTAL)) == (KEY, "gpuclass.cozystack.io/devices")
    assert budgeted_class("gpuclass.cozystack.io.gpuclass.cozystack.io/devices") == "gpuclass.cozystack.io"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "devices",
        "/devices",
        "cpu",
        "requests.nvidia.com/gpu",
        "gpuclass.cozystack.io",
        "gpuclass.cozystack.io/memory",
        "gpuclass.cozystack.io/devices/x",
        ".gpuclass.cozystack.io/devices",
        "a..gpuclass.cozystack.io/devices",
        "L40S.gpuclass.cozystack.io/devices",
        "xgpuclass.cozystack.io/devices",
        "l40s.gpuclass.cozystack.io.example.org/devices",
        "l40s.deviceclass.resource.k8s.io/devices",
        "a" * 240 + ".gpuclass.cozystack.io/devices",
    ],
)
def test_foreign_keys(key: str) -> None:
    """A key that is not of this form is no budget of devices."""
    assert budgeted_class(key) is None


@pytest.mark.parametrize("name", ["L40S", "a b", ".", "a.", "a/b", "a" * 240])
def test_no_key_for_such_a_class(name: str) -> None:
    """A name that no ResourceQuota can hold is refused, never cut or escaped."""
    with pytest.raises(ValueError, match="DNS subdomain"):
        budget_key(name)


@pytest.mark.parametrize(
    ("hard", "used", "limit"),
    [
        pytest.param("5", "2", (5, 2, 3), id="counted"),
        pytest.param(5, 0, (5, 0, 5), id="JSON numbers"),
        pytest.param("1k", "1e2", (1000, 100, 900), id="any spelling of a quantity"),
        pytest.param("3", "5", (3, 5, -2), id="lowered below what is used"),
        pytest.param("5", None, (5, None, None), id="nobody has counted: unknown, never 0"),
        pytest.param("5", "x", (5, None, None), id="used malformed"),
        pytest.param("5", "-1", (5, None, None), id="used negative"),
        pytest.param("5", "500m", (5, None, None), id="used half a device"),
        pytest.param("x", "2", (None, 2, None), id="hard malformed"),
        pytest.param(None, "2", (None, 2, None), id="hard null"),
        pytest.param(True, [], (None, None, None), id="no quantities at all"),
        pytest.param("0", None, (0, None, 0), id="of nothing, nothing is left"),
    ],
)
def test_read_limits(hard: Any, used: Any, limit: tuple[int | None, ...]) -> None:  # noqa: ANN401 # JSON
    """What is not known is told apart from 0, with the reason."""
    found = read_limits("q", {KEY: hard, "requests.cpu": "x"}, {} if used is None else {KEY: used})
    assert list(found) == ["l40s"]
    read = found["l40s"]
    assert (read.hard, read.used, read.remaining) == limit
    assert (read.problem == "") == (read.hard is not None and read.used is not None)
    assert "q" in read.problem or not read.problem


def test_both_keys() -> None:
    """One ResourceQuota may limit a class and all of them together."""
    found = read_limits("q", {KEY: 2, budget_key(TOTAL): 3}, {budget_key(TOTAL): 1})
    assert {name: limit.remaining for name, limit in found.items()} == {"l40s": None, TOTAL: 2}


LOOSE, TIGHT = Limit("a", 9, 1), Limit("b", 4, 1)
UNKNOWN, UNREADABLE = Limit("c", 2, None, "c is not counted"), Limit("d", None, 1, "d is no number")
SPENT, EXCEEDED = Limit("e", 1, 1), Limit("f", 1, 3)


@pytest.mark.parametrize(
    ("limits", "budget"),
    [
        pytest.param([LOOSE], Budget(KEY, "a", 9, 1, 8, 8), id="alone"),
        pytest.param([LOOSE, TIGHT], Budget(KEY, "b", 4, 1, 3, 3), id="the least is left by the tightest"),
        pytest.param(
            [TIGHT, UNKNOWN],
            Budget(KEY, "c", 2, None, None, 2, "c is not counted"),
            id="one not known: the remainder is not, but no more than all of it",
        ),
        pytest.param(
            [TIGHT, UNREADABLE],
            Budget(KEY, "d", None, 1, None, 3, "d is no number"),
            id="one not readable bounds nothing, the others do",
        ),
        pytest.param(
            [UNREADABLE], Budget(KEY, "d", None, 1, None, None, "d is no number"), id="nothing known, no bound"
        ),
        pytest.param([UNKNOWN, SPENT], Budget(KEY, "e", 1, 1, 0, 0), id="used up, whatever is not known"),
        pytest.param([SPENT, EXCEEDED], Budget(KEY, "f", 1, 3, 0, 0), id="exceeded: nothing left, and by how much"),
    ],
)
def test_tightest(limits: list[Limit], budget: Budget) -> None:
    """The tightest of several decides, in whatever order they come."""
    for order in itertools.permutations(limits):
        assert tightest("l40s", order) == budget


LIMITS = st.builds(Limit, st.sampled_from("abc"), st.none() | st.integers(0, 5), st.none() | st.integers(0, 7))


@given(st.lists(LIMITS, min_size=1, max_size=4))
def test_tightest_is_true_of_every_possible_truth(limits: list[Limit]) -> None:
    """Whatever the unknown numbers are, a remainder that is told is right, and the bound is never too low."""
    budget = tightest(TOTAL, limits)
    truths = [
        min(
            max(0, (limit.hard if limit.hard is not None else hard) - (limit.used if limit.used is not None else used))
            for limit, hard, used in zip(limits, hards, useds, strict=True)
        )
        for hards in itertools.product((0, 20), repeat=len(limits))
        for useds in itertools.product((0, 20), repeat=len(limits))
    ]
    if budget.remaining is not None:
        assert set(truths) == {budget.remaining}
    assert max(truths) <= (20 if budget.at_most is None else budget.at_most)
