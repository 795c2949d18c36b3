"""Whether a class is offered, and the one reason for it."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from apiserver.gpu.capacity import Tally
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.ownership import Claim

_STALE: Final = "KubeVirt's table cannot be read at present; what was last known of it was used."


class ClassReason(StrEnum):
    """Why a class is offered or not, in the order in which the first that applies decides."""

    TERMINATING = "Terminating"
    INVALID = "Invalid"
    UNSUPPORTED_SOURCE = "UnsupportedSource"
    RESOURCE_NAME_CONFLICT = "ResourceNameConflict"
    NOT_PERMITTED = "NotPermitted"
    OFFERED = "Offered"


@dataclass(frozen=True, slots=True)
class Permits:
    """The resource names that KubeVirt lets VMs ask for.

    Attributes:
        names: the table; None for "not checked", which differs from an empty table.
        stale: the table could not be read lately, so names is what was last known of it.
    """

    names: AbstractSet[str] | None = None
    stale: bool = False


NOT_CHECKED: Final = Permits()


@dataclass(frozen=True, slots=True)
class Offer:
    """The verdict on one class."""

    reason: ClassReason
    message: str

    @property
    def offered(self) -> bool:
        """Whether the class can be ordered."""
        return self.reason is ClassReason.OFFERED


def judge(gpu_class: GPUClass, claim: Claim, tally: Tally, *, advertised: bool, permits: Permits) -> Offer:
    """The first reason that applies.

    Args:
        gpu_class: the class.
        claim: what ownership resolved for it.
        tally: its totals.
        advertised: some node carries the resource name.
        permits: what KubeVirt permits.
    """
    if gpu_class.terminating:
        return Offer(ClassReason.TERMINATING, "The class is being deleted.")
    if gpu_class.violations:
        return Offer(ClassReason.INVALID, "; ".join(gpu_class.violations) + ".")
    if gpu_class.unsupported_source:
        return Offer(ClassReason.UNSUPPORTED_SOURCE, "spec.source.dra is reserved: only devicePlugin is counted.")
    if not claim.owns:
        rivals = ", ".join(claim.rivals)
        return Offer(ClassReason.RESOURCE_NAME_CONFLICT, f"{gpu_class.resource_name} is owned by {rivals}.")
    offer = _permitted_offer(gpu_class.resource_name, tally, advertised=advertised, permits=permits)
    return replace(offer, message=f"{offer.message} {_STALE}") if permits.stale else offer


def _permitted_offer(name: str, tally: Tally, *, advertised: bool, permits: Permits) -> Offer:
    if permits.names is not None and name not in permits.names:
        return Offer(ClassReason.NOT_PERMITTED, f"KubeVirt does not permit {name} (permittedHostDevices).")
    if not advertised:
        return Offer(ClassReason.OFFERED, f"No node advertises {name}.")
    return Offer(ClassReason.OFFERED, f"{tally.free} of {tally.allocatable} allocatable devices are free.")
