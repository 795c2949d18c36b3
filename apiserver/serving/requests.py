"""A request, with what was found out about it on its way to the handler."""

from typing import TYPE_CHECKING

from aiohttp import web

from apiserver.serving.answers import AUDIT_ID, NOT_CACHED, Answer

if TYPE_CHECKING:
    from apiserver.serving.certificates import Peer
    from apiserver.serving.request_info import RequestInfo
    from apiserver.serving.users import User


class Request(web.BaseRequest):
    """A request.

    Attributes:
        audit_id: by which it is logged; "" until that is known.
        info: what it asks for.
        peer: what the client showed of itself; None where the connection is plain.
        user: who asks; None until somebody has found out, or where nobody does.
        begun: HTTP status of a watch that has begun, which counts also if the client leaves it.
        terminated: HTTP status by which the server ended it in self-defence.
    """

    ATTRS = web.BaseRequest.ATTRS | frozenset({"audit_id", "info", "peer", "user", "begun", "terminated"})

    info: "RequestInfo"
    audit_id: str = ""
    peer: "Peer | None" = None
    user: "User | None" = None
    begun: int | None = None
    terminated: int | None = None

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Give the framework's responses the headers of every Answer; no Kubernetes server says what it is made of."""
        if self.audit_id:
            response.headers[AUDIT_ID] = self.audit_id
        response.headers.setdefault("Cache-Control", NOT_CACHED)
        response.headers.pop("Server", None)


Response = Answer | web.StreamResponse
"""What a handler returns: an answer that is whole, or a stream that it has sent already."""
