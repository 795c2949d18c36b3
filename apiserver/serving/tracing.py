"""Traces of requests for OpenTelemetry, sent by OTLP over HTTP. Imported only when they are asked for.

Source: apiserver pkg/endpoints/filters/traces.go of Kubernetes 1.37 for names and attributes, and its default that only
what the caller samples is told; OTEL_TRACES_SAMPLER says otherwise. As there, who asks is known before, and a trace of
somebody's own goes on only for members of BELIEVED: others begin one, with a link to theirs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanKind, StatusCode, Tracer, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from apiserver.serving.filters import Filter, Handler
from apiserver.serving.httplog import told_uri
from apiserver.serving.request_info import RequestInfo
from apiserver.serving.requests import Request, Response
from apiserver.serving.status import StatusError

BELIEVED: Final = frozenset({"system:masters", "system:monitoring"})
"""Source: notSystemPrivilegedGroup."""

_ABANDONED = 0
_FAILED = 500


@contextmanager
def exporting(endpoint: str, *, service: str, version: str) -> Iterator[Tracer]:
    """What makes spans; those that are not sent yet are sent when the context is left.

    Args:
        endpoint: URL of the collector, to which /v1/traces is added; "" for that of OTEL_EXPORTER_OTLP_….
        service: service.name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say another.
        version: service.version.
    """
    named = Resource.create({"service.name": service, "service.version": version})
    resource = named.merge(OTELResourceDetector().detect())
    # Without the argument the SDK reads OTEL_TRACES_SAMPLER.
    sampler: Sampler | None = None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBased(ALWAYS_OFF)
    provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer(service, version)
    finally:
        provider.shutdown()


def tracing(tracer: Tracer) -> Filter:
    """Make a span of each request, in the trace of its caller; a watch's ends with the watch."""
    propagator = TraceContextTextMapPropagator()

    async def trace(handler: Handler, request: Request) -> Response:
        carrier = {key: request.headers[key] for key in ("traceparent", "tracestate") if key in request.headers}
        told = propagator.extract(carrier, context=Context())
        links = []
        if not _is_believed(request):
            links = [Link(each)] if (each := get_current_span(told).get_span_context()).is_valid else []
            told = Context()
        span = tracer.start_span(request.method, context=told, kind=SpanKind.SERVER, links=links)
        if isinstance(span, NonRecordingSpan):
            return await handler(request)
        with use_span(span, end_on_exit=True, record_exception=False):
            code = _ABANDONED
            try:
                response = await handler(request)
            except StatusError as error:
                code = error.code
                raise
            except Exception:
                code = _FAILED
                raise
            else:
                code = response.status
                return response
            finally:
                _describe(span, request, request.begun or code)

    return trace


def _is_believed(request: Request) -> bool:
    """Whether the trace of a request goes on here. On loopback nobody is authenticated: it is the person's own."""
    user = request.user
    return user is None or not BELIEVED.isdisjoint(user.groups)


def _describe(span: Span, request: Request, code: int) -> None:
    """Name a span, and say of it what the log may say."""
    info = request.info
    span.update_name(f"{request.method} {_route(info)}" if info.is_resource_request else request.method)
    uri = told_uri(request.raw_path)
    path, _, query = uri.partition("?")
    span.set_attributes({"http.request.method": request.method, "url.path": path, "audit-id": request.audit_id})
    if query:
        span.set_attribute("url.query", query)
    if "User-Agent" in request.headers:
        span.set_attribute("user_agent.original", request.headers["User-Agent"])
    if code != _ABANDONED:
        span.set_attribute("http.response.status_code", code)
    if code >= _FAILED:
        span.set_status(StatusCode.ERROR)


def _route(info: RequestInfo) -> str:
    """The path without names. Source: getSpanNameFromRequestInfo."""
    parts = [f"/apis/{info.group}" if info.group else "/api", info.version]
    parts += ["namespaces/{:namespace}"] if info.namespace else []
    parts += [info.resource, *(["{:name}"] if info.name else []), *([info.subresource] if info.subresource else [])]
    return "/".join(parts)
