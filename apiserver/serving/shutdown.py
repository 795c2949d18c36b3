"""The end of a server, in steps: unready, after a while no longer listening, and at last gone.

Source: apiserver pkg/server/genericapiserver.go and pkg/server/filters/waitgroup.go of Kubernetes 1.37.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from apiserver.serving.answers import Answer
from apiserver.serving.responses import JSON_REPRESENTATION, respond
from apiserver.serving.status import ServiceUnavailable

if TYPE_CHECKING:
    from apiserver.serving.requests import Request

DRAIN_SECONDS: Final = 60
"""For how long requests that came in time may go on."""
_RETRY_AFTER_SECONDS: Final = 1


class Shutdown:
    """How far the end has come.

    Attributes:
        draining: the listener is closed; who has been let in is answered, and what comes late is refused.
    """

    def __init__(self) -> None:
        self.draining = False
        self._begun = asyncio.Event()

    def begin(self) -> None:
        """Report not ready from now on. Everything is still answered, for not everybody knows yet."""
        self._begun.set()

    async def wait(self) -> None:
        """Wait until it has begun."""
        await self._begun.wait()

    def problem(self) -> str | None:
        """What the check `shutdown` says."""
        return "process is shutting down" if self._begun.is_set() else None


def refuse_late(request: "Request") -> Answer:
    """Answer what comes when the listener is closed: another server may have time."""
    body = ServiceUnavailable("apiserver is shutting down").body()
    response = respond(request, body, JSON_REPRESENTATION, status=503)
    response.headers.update({"Retry-After": str(_RETRY_AFTER_SECONDS), "X-Content-Type-Options": "nosniff"})
    return response
