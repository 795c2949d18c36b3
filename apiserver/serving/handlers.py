"""Answering requests: discovery, version, health, and the declared resources.

Source: apiserver pkg/server (handler.go, routes/) and pkg/endpoints/handlers/get.go of Kubernetes 1.37.
"""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from apiserver.serving.discovery import AGGREGATED_TYPE, Discovery, wants_aggregated
from apiserver.serving.health import Health
from apiserver.serving.negotiation import META_GROUP, PARTIAL, PARTIAL_LIST, TABLE, Representation, negotiate
from apiserver.serving.request_info import RequestInfo
from apiserver.serving.resources import GroupVersion, Resource, Subresource
from apiserver.serving.responses import JSON_REPRESENTATION, respond, respond_text
from apiserver.serving.status import BadRequest, MethodNotAllowed, NotAcceptable, NotFound, ServiceUnavailable
from apiserver.serving.store import Listing
from apiserver.serving.tables import Layout, Object, make_table, partial, read_include

_MAX_PARTS = 3
_OPENAPI_RETRY_SECONDS = 60


class Handlers:
    """Answers for one group and version.

    Args:
        served: what is declared.
        health: the checks behind the health endpoints.
        version: of the program, for /version.
    """

    def __init__(self, served: GroupVersion, health: Health, version: str) -> None:
        self._served = served
        self._health = health
        self._version = version
        self._discovery = Discovery(served)

    def answer(self, request: web.Request, info: RequestInfo) -> web.Response:
        """Answer one authorized request.

        Raises:
            StatusError: it cannot be answered; the caller renders it.
        """
        if info.is_resource_request and (info.group, info.version) == (self._served.group, self._served.version):
            return self._resource_request(request, info)
        return self._other_request(request, info)

    def _other_request(self, request: web.Request, info: RequestInfo) -> web.Response:
        path = info.path.rstrip("/")
        group_path = f"/apis/{self._served.group}"
        is_discovery = path in ("/apis", group_path, f"{group_path}/{self._served.version}")
        health = self._health.answer(path, request.query, request.query.getall("exclude", []))
        if not (is_discovery or health or path == "/version" or path.startswith("/openapi/v")):
            return respond_text("404 page not found\n", 404)
        if request.method != "GET":
            raise MethodNotAllowed
        if health is not None:
            return respond_text(health.text, health.code)
        if path == "/version":
            return respond(request, self._version_info(), Representation(pretty=True))
        if path.startswith("/openapi/v"):
            # Never 404: kube-aggregator would take it for an old server until it is itself started anew.
            raise ServiceUnavailable(
                "the OpenAPI documents are not available", retry_after_seconds=_OPENAPI_RETRY_SECONDS
            )
        return self._discovery_request(request, path)

    def _discovery_request(self, request: web.Request, path: str) -> web.Response:
        accept = request.headers.get("Accept", "")
        if path == "/apis" and wants_aggregated(accept):
            return self._aggregated_discovery(request)
        representation = negotiate(accept)
        if path == "/apis":
            document = self._discovery.groups(request.host)
        elif path == f"/apis/{self._served.group}":
            document = self._discovery.group(request.host)
        else:
            document = self._discovery.resources()
        return respond(request, document, Representation(representation.media_type, pretty=representation.pretty))

    def _aggregated_discovery(self, request: web.Request) -> web.Response:
        headers = {"Etag": self._discovery.aggregated_etag, "Vary": "Accept", "Cache-Control": "public"}
        if request.headers.get("If-None-Match") == self._discovery.aggregated_etag:
            return web.Response(status=304, headers=headers)
        response = respond(request, self._discovery.aggregated, JSON_REPRESENTATION)
        response.headers.update(headers | {"Content-Type": AGGREGATED_TYPE})
        return response

    def _version_info(self) -> dict[str, Any]:
        major, minor, *_ = self._version.split(".")
        return {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{self._version}",
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }

    def _resource_request(self, request: web.Request, info: RequestInfo) -> web.Response:
        resource = self._served.resource(info.resource)
        subresource = resource.subresource(info.subresource) if resource and info.subresource else None
        misplaced = resource is not None and not resource.namespaced and info.namespace
        if resource is None or misplaced or len(info.parts) > _MAX_PARTS or (info.subresource and not subresource):
            raise NotFound.resource()
        if request.method != "GET" or (info.verb not in resource.verbs):
            raise MethodNotAllowed
        representation = negotiate(request.headers.get("Accept", ""))
        if subresource is not None:
            return self._get_subresource(request, info, subresource, representation)
        if info.name:
            return self._get(request, info, resource, representation)
        return self._list(request, info, resource, representation)

    def _get(
        self, request: web.Request, info: RequestInfo, resource: Resource, representation: Representation
    ) -> web.Response:
        found = resource.store.get((info.namespace, info.name))
        if found is None:
            raise NotFound.object(info.group, info.resource, info.name)
        if representation.convert_to:
            return self._converted(request, found.object, resource.layout, representation)
        return respond(request, found.body, representation)

    def _get_subresource(
        self, request: web.Request, info: RequestInfo, subresource: Subresource, representation: Representation
    ) -> web.Response:
        found = subresource.read(info.namespace, info.name)
        if found is None:
            raise NotFound.object(info.group, info.resource, info.name)
        if representation.convert_to:
            return self._converted(request, found, subresource.layout, representation)
        return respond(request, found, representation)

    def _converted(
        self, request: web.Request, found: Object, layout: Layout, representation: Representation
    ) -> web.Response:
        if representation.convert_to == PARTIAL_LIST:
            kind = f"{self._served.api_version}, Kind={found['kind']}"
            raise NotAcceptable(
                f"you requested PartialObjectMetadataList, but the requested object is not a list ({kind})"
            )
        if representation.convert_to == PARTIAL:
            return respond(request, partial(found, representation.convert_version), representation)
        metadata = {key: found["metadata"][key] for key in ("resourceVersion",) if key in found["metadata"]}
        return self._table(request, [found], layout, metadata, representation)

    def _list(
        self, request: web.Request, info: RequestInfo, resource: Resource, representation: Representation
    ) -> web.Response:
        _refuse_unserved(request.query)
        listing = resource.store.list(info.namespace)
        metadata = {"resourceVersion": listing.version}
        objects = (item.object for item in listing.items)
        if not representation.convert_to:
            return respond(request, list_body(self._served, resource, listing), representation)
        if representation.convert_to == TABLE:
            return self._table(request, list(objects), resource.layout, metadata, representation)
        if representation.convert_to == PARTIAL_LIST:
            version = representation.convert_version
            items = [partial(item, version) for item in objects]
            api_version = f"{META_GROUP}/{version}"
            body = {"kind": PARTIAL_LIST, "apiVersion": api_version, "metadata": metadata, "items": items}
            return respond(request, body, representation)
        kind = f"{self._served.api_version}, Kind={resource.kind}List"
        raise NotAcceptable(f"you requested PartialObjectMetadata, but the requested object is a list ({kind})")

    def _table(
        self,
        request: web.Request,
        items: list[Object],
        layout: Layout,
        metadata: Object,
        representation: Representation,
    ) -> web.Response:
        table = make_table(
            layout,
            items,
            metadata=metadata,
            include=read_include(request.query),
            version=representation.convert_version,
            now=datetime.now(UTC),
        )
        return respond(request, table, Representation(representation.media_type, TABLE, pretty=representation.pretty))


def _refuse_unserved(query: Mapping[str, str]) -> None:
    """Refuse what would change the answer and is not served; silently leaving it out would be a wrong answer."""
    for selector in ("labelSelector", "fieldSelector"):
        if query.get(selector):
            raise BadRequest(f"{selector} is not supported by this server")
    if query.get("continue"):
        raise BadRequest("invalid continue token: continue key is not valid: every list here is whole")


def list_body(served: GroupVersion, resource: Resource, listing: Listing) -> bytes:
    """A list as compact JSON, joined from the bytes of its items."""
    head = {
        "kind": f"{resource.kind}List",
        "apiVersion": served.api_version,
        "metadata": {"resourceVersion": listing.version},
    }
    items = b",".join(item.body for item in listing.items)
    return orjson.dumps(head)[:-1] + b',"items":[' + items + b"]}"
