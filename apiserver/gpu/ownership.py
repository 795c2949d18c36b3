"""Who owns a resource name when several classes name the same one.

Another controller writes the records (`status.ownedResourceName`); we only read them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from apiserver.gpu.classes import GPUClass


class ResourceNames(Enum):
    """How many classes may sell one resource name.

    Attributes:
        EXCLUSIVE: one, the owner; the default.
        SHARED: any number, as StorageClasses share a provisioner.
    """

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Claim:
    """What one class may do with the resource name it names.

    Attributes:
        owns: the class may be offered.
        shares_with: the other classes naming it, sorted.
        rivals: the classes that keep this one from it: the owner, or all that hold a record. Empty when it owns.
    """

    owns: bool = True
    shares_with: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()


def resolve(classes: Iterable[GPUClass], mode: ResourceNames) -> dict[str, Claim]:
    """The claim of every class that names a resource, by class name."""
    by_resource: dict[str, list[GPUClass]] = defaultdict(list)
    for gpu_class in classes:
        if gpu_class.resource_name:
            by_resource[gpu_class.resource_name].append(gpu_class)
    claims: dict[str, Claim] = {}
    for claimants in by_resource.values():
        claims.update(_resolve_one(claimants, mode))
    return claims


def _resolve_one(claimants: list[GPUClass], mode: ResourceNames) -> dict[str, Claim]:
    names = sorted(claimant.name for claimant in claimants)
    holders = names if mode is ResourceNames.SHARED else _holders(claimants)
    claims = {}
    for name in names:
        owns = name in holders and (mode is ResourceNames.SHARED or len(holders) == 1)
        others = tuple(other for other in names if other != name)
        rivals = () if owns else tuple(holder for holder in holders if holder != name)
        claims[name] = Claim(owns=owns, shares_with=others, rivals=rivals)
    return claims


def _holders(claimants: list[GPUClass]) -> list[str]:
    """The recorded owners; without any record, the oldest class by creation and then by name."""
    recorded = sorted(claimant.name for claimant in claimants if claimant.records_ownership)
    if recorded:
        return recorded
    # A class without a creation time was never stored, so it is younger than any that was.
    oldest = min(claimants, key=lambda each: (not each.creation_timestamp, each.creation_timestamp, each.name))
    return [oldest.name]
