"""Ownership: who may sell a resource name, and the order of reasons."""

from dataclasses import replace

import pytest

from apiserver.gpu.capacity import Tally
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.offers import NOT_CHECKED, ClassReason, Permits, judge
from apiserver.gpu.ownership import Claim, ResourceNames, resolve

R = "nvidia.com/gpu"


def named(name: str, created: str = "2026-01-01T00:00:00Z", *, owned: str = "", resource: str = R) -> GPUClass:
    """A class that names the resource, made at a time, with a recorded ownership or none."""
    return GPUClass(name, {"creationTimestamp": created}, resource_name=resource, owned_resource_name=owned)


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("classes", "owners"),
    [
        pytest.param([named("a")], {"a"}, id="alone"),
        pytest.param([named("a", LATE, owned=R), named("b", EARLY)], {"a"}, id="the recorded owner, though younger"),
        pytest.param([named("a", EARLY), named("b", LATE, owned=R)], {"b"}, id="an edit to a taken name takes nothing"),
        pytest.param([named("a", LATE), named("b", EARLY)], {"b"}, id="without records the oldest"),
        pytest.param([named("b", EARLY), named("a", EARLY)], {"a"}, id="made in the same second, the first name"),
        pytest.param([named("a", ""), named("b", LATE)], {"b"}, id="one that was never stored is youngest"),
        pytest.param([named("a", owned=R), named("b", owned=R)], set(), id="two records, and neither is offered"),
        pytest.param([named("a", owned=R), named("b", owned=R), named("c")], set(), id="nor is a third"),
        pytest.param([named("a", LATE, owned="amd.com/gpu"), named("b", EARLY)], {"b"}, id="a record of another name"),
        pytest.param([named("a", owned=R.upper()), named("b", LATE)], {"a"}, id="a record is compared byte for byte"),
        pytest.param(
            [named("a", owned=R, resource="amd.com/gpu"), named("b", LATE)], {"a", "b"}, id="an edit releases the name"
        ),
        pytest.param(
            [replace(named("a", LATE, owned=R), violations=("spec",)), named("b")],
            {"a"},
            id="an invalid owner keeps it",
        ),
        pytest.param([named("a", resource=""), named("b", resource="")], set(), id="no name, no claim"),
    ],
)
def test_exclusive(classes: list[GPUClass], owners: set[str]) -> None:
    """At most one class owns a name, whatever the order they are listed in."""
    for order in (classes, classes[::-1]):
        claims = resolve(order, ResourceNames.EXCLUSIVE)
        assert {name for name, claim in claims.items() if claim.owns} == owners


def test_shared() -> None:
    """With shared names every class is offered and says with whom it shares."""
    claims = resolve([named("b", owned=R), named("a"), named("c", resource="amd.com/gpu")], ResourceNames.SHARED)
    assert claims == {"a": Claim(True, ("b",)), "b": Claim(True, ("a",)), "c": Claim()}


def test_rivals() -> None:
    """Who loses is told to whom."""
    assert resolve([named("a"), named("b", LATE)], ResourceNames.EXCLUSIVE)["b"] == Claim(False, ("a",), ("a",))
    both = resolve([named("a", owned=R), named("b", owned=R)], ResourceNames.EXCLUSIVE)
    assert both["a"].rivals == ("b",)


LOST = Claim(False, ("o",), ("o",))
DYING = {"deletionTimestamp": LATE}


@pytest.mark.parametrize(
    ("gpu_class", "claim", "permitted", "reason"),
    [
        pytest.param(
            replace(named("a"), metadata=DYING, violations=("v",)), LOST, set(), ClassReason.TERMINATING, id="first"
        ),
        pytest.param(
            replace(named("a"), violations=("v",), unsupported_source=True), LOST, set(), ClassReason.INVALID, id="then"
        ),
        pytest.param(
            replace(named("a"), unsupported_source=True), LOST, set(), ClassReason.UNSUPPORTED_SOURCE, id="the source"
        ),
        pytest.param(named("a"), LOST, set(), ClassReason.RESOURCE_NAME_CONFLICT, id="the owner"),
        pytest.param(named("a"), Claim(), set(), ClassReason.NOT_PERMITTED, id="an empty table permits nothing"),
        pytest.param(named("a"), Claim(), {R}, ClassReason.OFFERED, id="a table that has the name"),
        pytest.param(named("a"), Claim(), None, ClassReason.OFFERED, id="no table is not an empty one"),
    ],
)
def test_order_of_reasons(gpu_class: GPUClass, claim: Claim, permitted: set[str] | None, reason: ClassReason) -> None:
    """The first reason that applies is the one that is told, and only Offered is offered."""
    offer = judge(gpu_class, claim, Tally(), advertised=True, permits=Permits(permitted))
    assert (offer.reason, offer.offered) == (reason, reason is ClassReason.OFFERED)


def test_nobody_advertises() -> None:
    """A class that no node advertises stays offered and says so."""
    told = {
        advertised: judge(named("a"), Claim(), Tally(), advertised=advertised, permits=NOT_CHECKED)
        for advertised in (True, False)
    }
    assert told[True].reason is told[False].reason is ClassReason.OFFERED
    assert told[True].message != told[False].message
