"""Writing answers: JSON or YAML, indented or not, compressed when large.

Source: apiserver pkg/endpoints/handlers/responsewriters (writers.go) of Kubernetes 1.37.
"""

import gzip
from collections.abc import Mapping
from typing import Any, Final

import orjson
import yaml
from aiohttp import web

from apiserver.serving.negotiation import JSON, YAML, Representation, negotiate, wants_pretty
from apiserver.serving.status import NotAcceptable, StatusError

_GZIP_THRESHOLD: Final = 128 * 1024
_GZIP_LEVEL: Final = 1
_PLAIN: Final = "text/plain; charset=utf-8"


def respond(
    request: web.BaseRequest, content: bytes | Mapping[str, Any], representation: Representation, *, status: int = 200
) -> web.Response:
    """Answer with one object.

    Args:
        request: the request.
        content: the object, or, when that exists already, its compact JSON with the newline that ends it.
        representation: what was negotiated.
        status: HTTP status.
    """
    body = _encode(content, representation, request)
    response = web.Response(status=status, body=body, headers={"Content-Type": representation.media_type})
    if len(body) > _GZIP_THRESHOLD and _accepts_gzip(request):
        response.body = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        response.headers.update({"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return response


def respond_text(text: str, status: int = 200) -> web.Response:
    """Answer in plain text, as health endpoints and refusals before the API do."""
    headers = {"Content-Type": _PLAIN, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, body=text.encode(), headers=headers)


def respond_status(request: web.BaseRequest, error: StatusError) -> web.Response:
    """Answer with the Status of a failure; in JSON when nothing else was agreed on."""
    try:
        agreed = negotiate(request.headers.get("Accept", ""))
        representation = Representation(agreed.media_type, pretty=agreed.pretty)
    except NotAcceptable:
        representation = Representation(pretty=True)
    response = respond(request, error.body(), representation, status=error.code)
    if error.retry_after_seconds:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def _accepts_gzip(request: web.BaseRequest) -> bool:
    return "gzip" in (token.strip() for token in request.headers.get("Accept-Encoding", "").split(","))


def _encode(content: bytes | Mapping[str, Any], representation: Representation, request: web.BaseRequest) -> bytes:
    pretty = wants_pretty(representation, request.query, request.headers.get("User-Agent", ""))
    if representation.media_type == YAML:
        tree = orjson.loads(content) if isinstance(content, bytes) else content
        return str(yaml.safe_dump(dict(tree), sort_keys=True, allow_unicode=True)).encode()
    if pretty:
        tree = orjson.loads(content) if isinstance(content, bytes) else content
        return orjson.dumps(tree, option=orjson.OPT_INDENT_2)  # without a newline at its end, as in Go
    return content if isinstance(content, bytes) else orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


JSON_REPRESENTATION: Final = Representation(JSON)
"""For documents that come in JSON only, such as discovery."""
