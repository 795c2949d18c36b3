"""Answering requests: discovery, version, health, and the declared resources.

Source: apiserver pkg/server (handler.go, routes/) and pkg/endpoints/handlers/get.go of Kubernetes 1.37.
"""

import platform
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from apiserver.serving.answers import Answer
from apiserver.serving.discovery import AGGREGATED_TYPE, Discovery, wants_aggregated
from apiserver.serving.documents import Documents, answer_document
from apiserver.serving.health import Health
from apiserver.serving.negotiation import Representation, negotiate
from apiserver.serving.reading import Reading
from apiserver.serving.repeats import Make
from apiserver.serving.request_info import RequestInfo
from apiserver.serving.requests import Request, Response
from apiserver.serving.resources import GroupVersion
from apiserver.serving.responses import JSON_REPRESENTATION, respond, respond_text
from apiserver.serving.status import MethodNotAllowed, ServiceUnavailable
from apiserver.serving.traffic import Traffic

_OPENAPI_RETRY_SECONDS = 60
_METRICS: Final = "/metrics"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Handlers:
    """Answers for one group and version.

    Args:
        served: what is declared.
        health: the checks behind the health endpoints.
        version: of the program, for /version.
        traffic: counts the requests.
        metrics: makes what /metrics answers; without it there is no such path.
        documents: static documents by their paths.
    """

    def __init__(
        self,
        served: GroupVersion,
        health: Health,
        version: str,
        *,
        traffic: Traffic | None = None,
        metrics: Callable[[], Awaitable[bytes]] | None = None,
        documents: Documents | None = None,
    ) -> None:
        self._served = served
        self._health = health
        self._version = version
        self._discovery = Discovery(served)
        self.traffic = traffic or Traffic(served)
        self._metrics = metrics
        self._documents = documents or {}
        self._reading = Reading(served, self.traffic)

    def answer(self, request: Request) -> Coroutine[Any, Any, Response]:
        """Answer one authorized request.

        Raises:
            StatusError: it cannot be answered; the caller renders it.
        """
        info = request.info
        if info.is_resource_request and info.group == self._served.group and info.version == self._served.version:
            return self._reading.answer(request, info)
        return self._answer_other(request, info)

    def make_again(self, request: Request) -> Make | None:
        """What makes the body of the answer again that was just given; None where it takes more than that."""
        info = request.info
        if info.is_resource_request and info.group == self._served.group and info.version == self._served.version:
            return self._reading.make_again(request, info)
        return None

    async def _answer_other(self, request: Request, info: RequestInfo) -> Response:
        if self._metrics is not None and info.path == _METRICS:
            if request.method != "GET":
                raise MethodNotAllowed
            return Answer(body=await self._metrics(), headers={"Content-Type": _METRICS_TYPE})
        document = answer_document(self._documents, request, info.path)
        return self._other_request(request, info) if document is None else document

    def close(self) -> None:
        """End what would go on for ever: the watches."""
        self._reading.close()

    def _other_request(self, request: Request, info: RequestInfo) -> Answer:
        path = info.path.rstrip("/")
        group_path = f"/apis/{self._served.group}"
        is_discovery = path in ("/apis", group_path, f"{group_path}/{self._served.version}")
        health = self._health.answer(path, request.query, request.query.getall("exclude", []))
        is_index = path in ("", "/index.html")
        if not (is_index or is_discovery or health or path == "/version" or path.startswith("/openapi/v")):
            return respond_text("404 page not found\n", 404)
        if request.method != "GET":
            raise MethodNotAllowed
        if is_index:
            return respond(request, {"paths": self._paths()}, Representation(pretty=True))
        if health is not None:
            return respond_text(health.text, health.code)
        if path == "/version":
            return respond(request, self._version_info(), Representation(pretty=True))
        if path.startswith("/openapi/v"):
            if self._served.openapi is not None:
                return self._served.openapi.answer(request)
            # Never 404: kube-aggregator would take it for an old server until it is itself started anew.
            raise ServiceUnavailable(
                "the OpenAPI documents are not available", retry_after_seconds=_OPENAPI_RETRY_SECONDS
            )
        return self._discovery_request(request, path)

    def _discovery_request(self, request: Request, path: str) -> Answer:
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

    def _aggregated_discovery(self, request: Request) -> Answer:
        headers = {"Etag": self._discovery.aggregated_etag, "Vary": "Accept", "Cache-Control": "public"}
        if request.headers.get("If-None-Match") == self._discovery.aggregated_etag:
            return Answer(status=304, headers=headers)
        response = respond(request, self._discovery.aggregated, JSON_REPRESENTATION)
        response.headers.update(headers | {"Content-Type": AGGREGATED_TYPE})
        return response

    def _paths(self) -> list[str]:
        """What / lists: every path outside the objects, sorted."""
        group = f"/apis/{self._served.group}"
        paths = ["/apis", group, f"{group}/{self._served.version}", "/version"]
        for endpoint in ("healthz", "livez", "readyz"):
            checks = [*self._health.live, *(self._health.ready if endpoint == "readyz" else ())]
            paths += [f"/{endpoint}", *(f"/{endpoint}/{name}" for name in checks)]
        if self._served.openapi is not None:
            paths += ["/openapi/v2", "/openapi/v3"]
        if self._metrics is not None:
            paths.append(_METRICS)
        return sorted([*paths, *self._documents])

    def _version_info(self) -> dict[str, Any]:
        major, minor, *_ = self._version.split(".")
        return {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{self._version}",
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
