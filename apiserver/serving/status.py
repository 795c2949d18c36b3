"""The Status object: how an API server says no.

    StatusError
    ├── BadRequest            400
    ├── Unauthorized          401
    ├── Forbidden             403
    ├── NotFound              404
    ├── MethodNotAllowed      405
    ├── NotAcceptable         406
    ├── Expired               410
    ├── Invalid               422
    ├── TooManyRequests       429
    ├── ServiceUnavailable    503
    └── TooLargeVersion       504

Source: apimachinery pkg/api/errors (errors.go) of Kubernetes 1.37.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar


class StatusError(Exception):
    """A request that failed in a way the client is told about.

    Args:
        message: what happened, for a person.
        details: the parts of it for a program; empty when there are none.
        retry_after_seconds: when to try again; only where trying again helps. Clients retry by themselves on it.
    """

    code: ClassVar[HTTPStatus]
    reason: ClassVar[str]

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def body(self) -> dict[str, Any]:
        """The Status object as it is sent."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = int(self.code)
        return status


class BadRequest(StatusError):
    """The request cannot be understood."""

    code = HTTPStatus.BAD_REQUEST
    reason = "BadRequest"


class Unauthorized(StatusError):
    """Nobody vouches for the caller. The cause is only logged."""

    code = HTTPStatus.UNAUTHORIZED
    reason = "Unauthorized"

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(StatusError):
    """The caller may not do this."""

    code = HTTPStatus.FORBIDDEN
    reason = "Forbidden"


class NotFound(StatusError):
    """There is no such object, or no such resource."""

    code = HTTPStatus.NOT_FOUND
    reason = "NotFound"

    @classmethod
    def object(cls, group: str, resource: str, name: str) -> "NotFound":
        """The resource is served, but nothing of that name."""
        qualified = f"{resource}.{group}" if group else resource
        return cls(f'{qualified} "{name}" not found', details={"name": name, "group": group, "kind": resource})

    @classmethod
    def resource(cls) -> "NotFound":
        """A path below a served version that leads nowhere."""
        return cls("the server could not find the requested resource")


class MethodNotAllowed(StatusError):
    """The path exists, the method on it does not."""

    code = HTTPStatus.METHOD_NOT_ALLOWED
    reason = "MethodNotAllowed"

    def __init__(self, message: str = "the server does not allow this method on the requested resource") -> None:
        super().__init__(message)


class NotAcceptable(StatusError):
    """Nothing the client accepts can be made."""

    code = HTTPStatus.NOT_ACCEPTABLE
    reason = "NotAcceptable"


class ServiceUnavailable(StatusError):
    """An answer cannot be given now; a later one can."""

    code = HTTPStatus.SERVICE_UNAVAILABLE
    reason = "ServiceUnavailable"


class Expired(StatusError):
    """A version or a token that is no longer kept. Clients list anew."""

    code = HTTPStatus.GONE
    reason = "Expired"


class Invalid(StatusError):
    """Options that do not go together.

    Args:
        causes: for each wrong field its name, the kind of cause, and what is wrong.
    """

    code = HTTPStatus.UNPROCESSABLE_ENTITY
    reason = "Invalid"

    def __init__(self, causes: Sequence[tuple[str, str, str]]) -> None:
        problems = [f"{field}: {message}" for field, _, message in causes]
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        details = {
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": kind, "message": message, "field": field} for field, kind, message in causes],
        }
        super().__init__(f'ListOptions.meta.k8s.io "" is invalid: {listed}', details=details)


class TooManyRequests(StatusError):
    """The server is busy with as many such requests as it takes on at once."""

    code = HTTPStatus.TOO_MANY_REQUESTS
    reason = "TooManyRequests"


class TooLargeVersion(StatusError):
    """A version that has not come yet, and did not come within the time a request may wait. Clients list anew."""

    code = HTTPStatus.GATEWAY_TIMEOUT
    reason = "Timeout"

    def __init__(self, asked: int, current: int) -> None:
        message = f"Too large resource version: {asked}, current: {current}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        super().__init__(f"Timeout: {message}", details={"causes": causes}, retry_after_seconds=1)
