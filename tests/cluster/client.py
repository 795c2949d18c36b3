"""A small synchronous Kubernetes client: one connection, JSON in and out.

kubectl takes a tenth of a second per call; this takes a millisecond, and a test makes hundreds of objects.
"""

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from tests.cluster.pki import KeyPair

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
BUSY_ATTEMPTS = 20
BUSY_SECONDS = 0.25
TIMEOUT_SECONDS = 30


class ApiError(Exception):
    """The server refused: the code and reason of its Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """The server knows no such object, or no such resource."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP response, read to its end."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """The body as a JSON object."""
        answer: Json = json.loads(self.body)
        return answer

    def raise_for_status(self) -> None:
        """Raise unless the code is a success.

        Raises:
            NotFoundError: for the code 404.
            ApiError: for any other; both with the Status in the body, or the body's beginning if it is none.
        """
        if self.code < HTTPStatus.BAD_REQUEST:
            return
        try:
            status = self.json()
        except ValueError:
            status = {"message": self.body[:256].decode(errors="replace")}
        error = NotFoundError if self.code == HTTPStatus.NOT_FOUND else ApiError
        raise error(self.code, status.get("reason", ""), status.get("message", ""))


class Client:
    """One user's connection to one server; not to be shared between threads."""

    def __init__(
        self,
        port: int,
        *,
        authority: Path,
        certificate: KeyPair | None = None,
        address: str = "127.0.0.1",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        self._connection = http.client.HTTPSConnection(address, port, context=context, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._connection.close()

    def request(
        self, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request and return whatever the server answers, refusals included."""
        content = None if body is None else json.dumps(body).encode()
        fields = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        is_reused = self._connection.sock is not None
        try:
            return self._exchange(method, path, content, fields)
        except (ConnectionError, ssl.SSLEOFError):
            if not is_reused:
                raise
        # The server had closed the idle connection: nothing was answered, nothing was done.
        return self._exchange(method, path, content, fields)

    def get(self, path: str) -> Json:
        """Read an object or a list."""
        return self._ask("GET", path)

    def items(self, path: str) -> list[Json]:
        """The objects of a list."""
        items: list[Json] = self.get(path)["items"]
        return items

    def post(self, path: str, body: Json) -> Json:
        """Create an object, or call a creating subresource."""
        return self._ask("POST", path, body)

    def put(self, path: str, body: Json) -> Json:
        """Replace an object."""
        return self._ask("PUT", path, body)

    def patch(self, path: str, body: Json, *, content_type: str = MERGE_PATCH) -> Json:
        """Change an object; the body is a merge patch unless the content type says otherwise."""
        return self._ask("PATCH", path, body, {"Content-Type": content_type})

    def delete(self, path: str) -> Json:
        """Delete an object at once, without a grace period: there is no kubelet that would confirm the end."""
        return self._ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})

    def _ask(self, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None) -> Json:
        answer = self.request(method, path, body, headers)
        for _ in range(BUSY_ATTEMPTS):
            if answer.code != HTTPStatus.TOO_MANY_REQUESTS:
                break
            time.sleep(BUSY_SECONDS)  # a kind whose CRD has just come or changed is not served for a moment
            answer = self.request(method, path, body, headers)
        answer.raise_for_status()
        return answer.json()

    def _exchange(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        try:
            self._connection.request(method, path, content, dict(headers))
            response = self._connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())
        except (OSError, http.client.HTTPException):
            self.close()
            raise
