"""Static documents beside the API: bytes that are made once and answered as they are."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from apiserver.serving.answers import Answer
from apiserver.serving.status import MethodNotAllowed

if TYPE_CHECKING:
    from apiserver.serving.requests import Request

_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Document:
    """One static document.

    Attributes:
        body: what is answered.
        content_type: with its charset, where it is text.
        policy: its Content-Security-Policy.
    """

    body: bytes
    content_type: str
    policy: str
    _etag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_etag", f'"{hashlib.sha256(self.body).hexdigest()[:32]}"')

    def answer(self, request: "Request") -> Answer:
        """The document, or 304 to who has it.

        Raises:
            MethodNotAllowed: it can only be read.
        """
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed
        headers = {**_SAFE, "Content-Security-Policy": self.policy, "Etag": self._etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == self._etag:
            return Answer(status=304, headers=headers)
        return Answer(body=self.body, headers={**headers, "Content-Type": self.content_type})


Documents = Mapping[str, Document]
"""Path to what is there. One that ends with / is a directory's: without the / it redirects there."""


def answer_document(documents: Documents, request: "Request", path: str) -> Answer | None:
    """The document at a path, or None when none is there.

    Raises:
        MethodNotAllowed: a document can only be read.
    """
    document = documents.get(path)
    if document is not None:
        return document.answer(request)
    if f"{path}/" in documents:
        return Answer(status=301, headers={"Location": f"{path}/"})
    return None
