"""Discovery: how clients and kube-aggregator learn what is served. It depends on nothing but the declarations.

Source: apiserver pkg/endpoints/discovery (root.go, group.go, version.go, aggregated/) of Kubernetes 1.37.
"""

import hashlib
from typing import Any, Final

import orjson

from apiserver.serving.negotiation import parse_accept
from apiserver.serving.resources import GroupVersion, Resource, Subresource

AGGREGATED_GROUP: Final = "apidiscovery.k8s.io"
AGGREGATED_VERSION: Final = "v2"
AGGREGATED_KIND: Final = "APIGroupDiscoveryList"
AGGREGATED_TYPE: Final = f"application/json;g={AGGREGATED_GROUP};v={AGGREGATED_VERSION};as={AGGREGATED_KIND}"


def wants_aggregated(accept: str) -> bool:
    """Whether the client prefers the one document of everything over the plain list."""
    for clause in parse_accept(accept):
        if not clause.matches("application/json"):
            continue
        parameters = clause.parameters
        if "as" not in parameters:
            return False
        asked = (parameters.get("g"), parameters.get("v"), parameters["as"])
        if asked == (AGGREGATED_GROUP, AGGREGATED_VERSION, AGGREGATED_KIND):
            return True
    return False


def etag(body: bytes) -> str:
    """The entity tag of a document, as Kubernetes makes it: SHA-512 in capitals, quoted."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


class Discovery:
    """Every discovery document of one group and version.

    Args:
        served: what is declared.
    """

    def __init__(self, served: GroupVersion) -> None:
        self._served = served
        self.aggregated: bytes = orjson.dumps(self._aggregated())
        self.aggregated_etag: str = etag(self.aggregated)

    def groups(self, host: str) -> dict[str, Any]:
        """The APIGroupList of /apis; without apiVersion on the wire, as Kubernetes has it."""
        group = {key: value for key, value in self.group(host).items() if key not in ("kind", "apiVersion")}
        return {"kind": "APIGroupList", "groups": [group]}

    def group(self, host: str) -> dict[str, Any]:
        """The APIGroup of /apis/GROUP."""
        version = {"groupVersion": self._served.api_version, "version": self._served.version}
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": self._served.group,
            "versions": [version],
            "preferredVersion": version,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
        }

    def resources(self) -> dict[str, Any]:
        """The APIResourceList of /apis/GROUP/VERSION, which is also kube-aggregator's probe."""
        entries = []
        for resource in self._served.resources:
            entries.append(_legacy_resource(resource))
            entries += [_legacy_subresource(resource, each) for each in resource.subresources]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": self._served.api_version,
            "resources": sorted(entries, key=lambda entry: str(entry["name"])),
        }

    def _aggregated(self) -> dict[str, Any]:
        version = {
            "version": self._served.version,
            "freshness": "Current",
            "resources": [self._aggregated_resource(each) for each in self._served.resources],
        }
        return {
            "kind": AGGREGATED_KIND,
            "apiVersion": f"{AGGREGATED_GROUP}/{AGGREGATED_VERSION}",
            "metadata": {},
            "items": [{"metadata": {"name": self._served.group}, "versions": [version]}],
        }

    def _aggregated_resource(self, resource: Resource) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "resource": resource.plural,
            "responseKind": self._kind(resource.kind),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": sorted(resource.verbs),
        }
        _add_names(entry, resource)
        if resource.subresources:
            entry["subresources"] = [
                {"subresource": each.name, "responseKind": self._kind(each.kind), "verbs": sorted(each.verbs)}
                for each in resource.subresources
            ]
        return entry

    def _kind(self, kind: str) -> dict[str, str]:
        return {"group": self._served.group, "version": self._served.version, "kind": kind}


def _legacy_resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    _add_names(entry, resource)
    return entry


def _legacy_subresource(parent: Resource, subresource: Subresource) -> dict[str, Any]:
    return {
        "name": f"{parent.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": parent.namespaced,
        "kind": subresource.kind,
        "verbs": sorted(subresource.verbs),
    }


def _add_names(entry: dict[str, Any], resource: Resource) -> None:
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
