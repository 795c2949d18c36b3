"""What a request asks for, read from its method and path, before anybody is asked whether it may.

Source: apiserver pkg/endpoints/request RequestInfoFactory.NewRequestInfo of Kubernetes 1.37.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_SUBRESOURCES: Final = ("status", "finalize")
_PARTS_BEFORE_RESOURCE: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class RequestInfo:
    """The attributes of one request.

    Attributes:
        query: the parameters; of a repeated one the first value counts.
        verb: a Kubernetes verb for a resource request, else the method in lower case; "" for an unknown method.
        path: as it was sent, decoded.
        is_resource_request: it lies below /apis/GROUP/VERSION/ (or /api/VERSION/).
        group: API group; the following are "" for other requests.
        version: API version.
        namespace: "" at the cluster scope.
        resource: plural name.
        subresource: "" for the object itself.
        name: "" for the collection.
        is_deprecated_watch: the path is the old form of a watch, /apis/GROUP/VERSION/watch/….
        parts: the path after the version, namespaces left out; more than three lead nowhere.
    """

    query: Mapping[str, str]
    verb: str
    path: str
    is_resource_request: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    is_deprecated_watch: bool = False
    parts: tuple[str, ...] = ()


def is_true_like(value: str) -> bool:
    """How a query parameter that is present is read as a boolean: all but 0 and false are true, the empty one too."""
    return value.lower() not in ("0", "false")


def read_request(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Read a request.

    Args:
        method: in upper case.
        path: decoded.
        query: the first value of each parameter.
    """
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis") or len(parts) < _PARTS_BEFORE_RESOURCE + (parts[0] == "apis"):
        return RequestInfo(query=query, verb=method.lower(), path=path)
    group = parts.pop(1) if parts[0] == "apis" else ""
    version = parts[1]
    rest = parts[2:]
    verb = _VERBS.get(method, "")
    is_deprecated_watch = rest[0] == "watch" and len(rest) > 1
    if is_deprecated_watch:
        verb, rest = "watch", rest[1:]
    namespace, rest = _split_namespace(rest)
    resource, name, subresource = (*rest[:3], "", "", "")[:3]
    if verb == "get" and not name:
        verb = "watch" if "watch" in query and is_true_like(query["watch"]) else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return RequestInfo(
        query=query,
        verb=verb,
        path=path,
        is_resource_request=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        subresource=subresource,
        name=name,
        is_deprecated_watch=is_deprecated_watch,
        parts=tuple(rest),
    )


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    if parts[0] != "namespaces" or len(parts) == 1:
        return "", parts
    if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:  # noqa: PLR2004 # namespaces, NAME, resource
        return parts[1], parts[2:]
    return parts[1], parts
