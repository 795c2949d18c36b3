"""Resource names: which ones the scheduler counts as devices.

Source: v1helper.IsExtendedResourceName and scheduler util.IsScalarResourceName of Kubernetes 1.37.
"""

import re
from functools import lru_cache
from typing import Final

_NATIVE_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."
_NAME_PART: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_MAX_SUBDOMAIN: Final = 253


def is_qualified_name(name: str) -> bool:
    """Whether the name is an optional DNS subdomain, a slash, and a name part of at most 63 characters."""
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > _MAX_SUBDOMAIN or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    return _NAME_PART.fullmatch(part) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether the name may name most Kubernetes objects."""
    return len(name) <= _MAX_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def is_extended_resource_name(name: str) -> bool:
    """Whether a device plugin may advertise the name: qualified, with a domain that is not Kubernetes' own."""
    return (
        "/" in name
        and _NATIVE_DOMAIN not in name
        and not name.startswith(_QUOTA_PREFIX)
        and is_qualified_name(_QUOTA_PREFIX + name)
    )


@lru_cache(maxsize=4096)
def is_counted(name: str) -> bool:
    """Whether the scheduler counts the name on both sides, node and pod; any other weighs nothing.

    Native resources without a domain (cpu, memory, hugepages) are counted by Kubernetes, never by a GPU class.
    """
    return is_extended_resource_name(name) or ("/" in name and _NATIVE_DOMAIN in name)
