"""Writing answers: JSON or YAML, indented or not, compressed when large.

Source: apiserver pkg/endpoints/handlers/responsewriters (writers.go) of Kubernetes 1.37.
"""

import gzip
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from apiserver.serving.answers import Answer
from apiserver.serving.negotiation import JSON, YAML, Representation, negotiate, wants_pretty
from apiserver.serving.status import NotAcceptable, StatusError

if TYPE_CHECKING:
    from apiserver.serving.requests import Request

_GZIP_THRESHOLD: Final = 128 * 1024
_GZIP_LEVEL: Final = 1
_YAML_ITEMS: Final = 50
_PLAIN: Final = "text/plain; charset=utf-8"


def respond(
    request: "Request", content: bytes | Mapping[str, Any], representation: Representation, *, status: int = 200
) -> Answer:
    """Answer with one object.

    Args:
        request: the request.
        content: the object, or, when that exists already, its compact JSON with the newline that ends it.
        representation: what was negotiated.
        status: HTTP status.
    """
    body = _encode(content, representation, request)
    response = Answer(status=status, body=body, headers={"Content-Type": representation.media_type})
    if len(body) > _GZIP_THRESHOLD and _accepts_gzip(request):
        response.body = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        response.headers.update({"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return response


def respond_text(text: str, status: int = 200) -> Answer:
    """Answer in plain text, as health endpoints and refusals before the API do."""
    headers = {"Content-Type": _PLAIN, "X-Content-Type-Options": "nosniff"}
    return Answer(status=status, body=text.encode(), headers=headers)


def respond_status(request: "Request", error: StatusError) -> Answer:
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


def _accepts_gzip(request: "Request") -> bool:
    """By the word alone, as objects are compressed upstream; for OpenAPI documents weights count too."""
    return "gzip" in (token.strip() for token in request.headers.get("Accept-Encoding", "").split(","))


def _encode(content: bytes | Mapping[str, Any], representation: Representation, request: "Request") -> bytes:
    pretty = wants_pretty(representation, request.info.query, request.headers.get("User-Agent", ""))
    if representation.media_type == YAML:
        tree = orjson.loads(content) if isinstance(content, bytes) else content
        return "".join(_yaml_parts(tree)).encode()
    if pretty:
        tree = orjson.loads(content) if isinstance(content, bytes) else content
        return orjson.dumps(tree, option=orjson.OPT_INDENT_2)  # without a newline at its end, as in Go
    return content if isinstance(content, bytes) else orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def _yaml_parts(tree: Mapping[str, Any]) -> Iterator[str]:
    """An object as YAML, by sorted key, and a long list some items at a time.

    As a whole, a list of thousands would be as many nodes of PyYAML at once, and the collector of garbage would stop
    everybody to walk through them.
    """
    for key in sorted(tree):
        value = tree[key]
        if not isinstance(value, list) or len(value) <= _YAML_ITEMS:
            yield _yaml({key: value})
            continue
        yield _yaml({key: []}).replace(" []", "")
        for first in range(0, len(value), _YAML_ITEMS):
            yield _yaml(value[first : first + _YAML_ITEMS])


def _yaml(tree: object) -> str:
    return str(yaml.safe_dump(tree, sort_keys=True, allow_unicode=True))


JSON_REPRESENTATION: Final = Representation(JSON)
"""For documents that come in JSON only, such as discovery."""
