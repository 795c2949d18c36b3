"""What one tenant can order of one class now, and the one reason for it.

Everything here is said to the tenant, so no sentence names anything of the host: no node, no resource name, no other
class, and not why a class is not offered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from apiserver.gpu.quota import Budget


class OrderReason(StrEnum):
    """Why a class can be ordered or not, in the order in which the first that applies decides.

    What is certain comes before what is not known: nothing can be ordered of a class without capacity, whatever is left
    of a budget that nobody has counted. Among what is certain, what the tenant cannot wait for comes first: an offer
    and a right have to be given, a budget has to be raised or freed, and only capacity comes back by itself.
    """

    NOT_OFFERED = "NotOffered"
    NOT_ENTITLED = "NotEntitled"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    NO_CAPACITY = "NoCapacity"
    BUDGET_UNKNOWN = "BudgetUnknown"
    ORDERABLE = "Orderable"


@dataclass(frozen=True, slots=True)
class Order:
    """The verdict, in whole devices.

    Two things hold: orderable is known unless the reason is BudgetUnknown, and it is positive if and only if the reason
    is Orderable.

    Attributes:
        reason: in one word.
        message: in a sentence.
        orderable: what can be ordered; None when it is not known.
        at_most: what can be ordered at the most; always known.
        max_per_instance: the most that one instance can get, so far as is known.
    """

    reason: OrderReason
    message: str
    orderable: int | None
    at_most: int
    max_per_instance: int


def judge_order(
    *, offered: bool, terminating: bool, entitled: bool, budgets: Sequence[Budget], free: int, max_per_instance: int
) -> Order:
    """The first reason that applies, and the smallest of what applies.

    Args:
        offered: whether the class is offered to anybody.
        terminating: whether the tenant's namespace is being deleted.
        entitled: whether the tenant has the right to the class.
        budgets: every budget that an order would count against.
        free: devices of the class that are free.
        max_per_instance: the most that one instance of the class can get, whoever orders it.
    """
    if terminating:
        return _nothing(OrderReason.NOT_OFFERED, "The namespace is being deleted.")
    if not offered:
        return _nothing(OrderReason.NOT_OFFERED, "The class is not offered at present.")
    if not entitled:
        return _nothing(OrderReason.NOT_ENTITLED, "The namespace is not entitled to vGPUs.")
    for budget in budgets:
        if budget.remaining == 0:
            return _nothing(OrderReason.BUDGET_EXHAUSTED, _exhausted(budget))
    if free <= 0:
        return _nothing(OrderReason.NO_CAPACITY, "No device of the class is free at present.")
    at_most = min([free, *(budget.at_most for budget in budgets if budget.at_most is not None)])
    largest = min(max_per_instance, at_most)
    for budget in budgets:
        if budget.remaining is None:
            return Order(OrderReason.BUDGET_UNKNOWN, budget.problem, None, at_most, largest)
    devices = "1 device" if at_most == 1 else f"{at_most} devices"
    return Order(OrderReason.ORDERABLE, f"{devices} can be ordered.", at_most, at_most, largest)


def _nothing(reason: OrderReason, message: str) -> Order:
    return Order(reason, message, 0, 0, 0)


def _exhausted(budget: Budget) -> str:
    used = "" if budget.used is None else f", and {budget.used} are used"
    return f"ResourceQuota {budget.quota} leaves nothing of {budget.key}: it allows {budget.hard}{used}."
