"""Whether a class is offered, and the one reason for it."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from apiserver.gpu.capacity import Tally
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.ownership import Claim


class ClassReason(StrEnum):
    """Why a class is offered or not, in the order in which the first that applies decides."""

    TERMINATING = "Terminating"
    INVALID = "Invalid"
    UNSUPPORTED_SOURCE = "UnsupportedSource"
    RESOURCE_NAME_CONFLICT = "ResourceNameConflict"
    NOT_PERMITTED = "NotPermitted"
    OFFERED = "Offered"


@dataclass(frozen=True, slots=True)
class Offer:
    """The verdict on one class."""

    reason: ClassReason
    message: str

    @property
    def offered(self) -> bool:
        """Whether the class can be ordered."""
        return self.reason is ClassReason.OFFERED


def judge(
    gpu_class: GPUClass, claim: Claim, tally: Tally, *, advertised: bool, permitted: AbstractSet[str] | None
) -> Offer:
    """The first reason that applies.

    Args:
        gpu_class: the class.
        claim: what ownership resolved for it.
        tally: its totals.
        advertised: some node carries the resource name.
        permitted: the resource names KubeVirt's table permits; None when it is not checked, which differs from empty.
    """
    if gpu_class.terminating:
        return Offer(ClassReason.TERMINATING, "The class is being deleted.")
    if gpu_class.violations:
        return Offer(ClassReason.INVALID, "; ".join(gpu_class.violations) + ".")
    if gpu_class.unsupported_source:
        return Offer(ClassReason.UNSUPPORTED_SOURCE, "spec.source.dra is reserved: only devicePlugin is counted.")
    name = gpu_class.resource_name
    if not claim.owns:
        rivals = ", ".join(claim.rivals)
        return Offer(ClassReason.RESOURCE_NAME_CONFLICT, f"{name} is owned by {rivals}.")
    if permitted is not None and name not in permitted:
        message = f"KubeVirt does not permit {name} (permittedHostDevices)."
        return Offer(ClassReason.NOT_PERMITTED, message)
    if not advertised:
        return Offer(ClassReason.OFFERED, f"No node advertises {name}.")
    return Offer(ClassReason.OFFERED, f"{tally.free} of {tally.allocatable} allocatable devices are free.")
