"""The OpenAPI documents on the wire: version 2, the index of version 3, and the document of our group and version.

They are there from the start and never 404: kube-aggregator would take that for an old server until it is itself
started anew. They are never a redirect either, which kube-apiserver does not pass on.
Source: kube-openapi pkg/handler (handler.go) and pkg/handler3 (handler.go) of Kubernetes 1.37.
"""

import gzip
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

import orjson

from apiserver.serving.answers import Answer
from apiserver.serving.negotiation import JSON, parse_accept
from apiserver.serving.responses import respond_text

if TYPE_CHECKING:
    from apiserver.serving.requests import Request

ROOT: Final = "/openapi/"
_V2: Final = "/openapi/v2"
_V3: Final = "/openapi/v3"
_CACHE_FOR: Final = timedelta(days=365)


class OpenAPI:
    """Answers for everything below /openapi/.

    Args:
        api_version: the group and version that the documents describe.
        v2: the Swagger 2.0 document in JSON.
        v3: the OpenAPI 3.0 document in JSON.
    """

    def __init__(self, api_version: str, *, v2: bytes, v3: bytes) -> None:
        since = datetime.now(UTC).replace(microsecond=0)
        path = f"{_V3}/apis/{api_version}"
        group_version = _Document(v3, since)
        index = {"paths": {f"apis/{api_version}": {"serverRelativeURL": f"{path}?hash={group_version.hash}"}}}
        self._documents = {_V2: _Document(v2, since), _V3: _Document(orjson.dumps(index), since), path: group_version}

    def answer(self, request: "Request") -> Answer:
        """Answer a GET."""
        path = request.path.rstrip("/")
        document = self._documents.get(path)
        if document is None:
            return respond_text("404 page not found\n", 404)
        if path != _V3 and not _accepts_json(request):
            return Answer(status=406, headers={"Vary": "Accept"})
        response = document.response(request)
        if path not in (_V2, _V3) and request.query.get("hash") == document.hash:
            # What the hash names never changes. A wrong one is answered all the same, not to be kept.
            expires = format_datetime(datetime.now(UTC) + _CACHE_FOR, usegmt=True)
            response.headers.update({"Cache-Control": "public, immutable", "Expires": expires})
        return response


class _Document:
    """One document, ready to be sent.

    Attributes:
        hash: SHA-512 of it in capitals; also its entity tag.
    """

    def __init__(self, text: bytes, since: datetime) -> None:
        self._body = orjson.dumps(orjson.loads(text))
        self._compressed = gzip.compress(self._body, mtime=0)
        self._since = since
        self.hash = hashlib.sha512(self._body).hexdigest().upper()

    def response(self, request: "Request") -> Answer:
        """The document; or that the client has it already."""
        headers = {"Etag": f'"{self.hash}"', "Vary": "Accept, Accept-Encoding"}
        headers["Last-Modified"] = format_datetime(self._since, usegmt=True)
        if self._is_known(request):
            return Answer(status=304, headers=headers)
        headers["Content-Type"] = JSON
        if _accepts_gzip(request):
            return Answer(body=self._compressed, headers={**headers, "Content-Encoding": "gzip"})
        return Answer(body=self._body, headers=headers)

    def _is_known(self, request: "Request") -> bool:
        """Whether the client has the document; its entity tag goes before its date, as RFC 9110 has it."""
        tags = request.if_none_match
        if tags is not None:
            return any(tag.value in (self.hash, "*") for tag in tags)
        since = request.if_modified_since
        return since is not None and since >= self._since


def without_resource(text: bytes, plural: str) -> bytes:
    """A document, of either version, without one resource: its paths, and the definitions that only they refer to."""
    document = orjson.loads(text)
    document["paths"] = {path: item for path, item in document["paths"].items() if plural not in path.split("/")}
    holder, key = (document, "definitions") if "definitions" in document else (document["components"], "schemas")
    wanted, found = list(_references(document["paths"])), set[str]()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += _references(holder[key][name])
    holder[key] = {name: schema for name, schema in holder[key].items() if name in found}
    return orjson.dumps(document)


def _references(value: object) -> Iterator[str]:
    """The names of the definitions that something refers to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield str(inner).rpartition("/")[2]
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _accepts_json(request: "Request") -> bool:
    return any(clause.matches(JSON) for clause in parse_accept(request.headers.get("Accept") or "*/*"))


def _accepts_gzip(request: "Request") -> bool:
    codings = (token.partition(";") for token in request.headers.get("Accept-Encoding", "").split(","))
    return any(name.strip() == "gzip" and weight.replace(" ", "") != "q=0" for name, _, weight in codings)
