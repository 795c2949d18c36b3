"""One line of the log for each request, for whoever asks for that much.

Source: apiserver pkg/server/httplog/httplog.go of Kubernetes 1.37, which writes it from `-v 3` on.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from apiserver.serving.traffic import ABANDONED

if TYPE_CHECKING:
    from apiserver.serving.requests import Request, Response

REQUESTS: Final = 5
"""The level of these lines: below DEBUG."""

VALUES: Final = "values"
"""The attribute of a record that holds what belongs to it by name."""

LOG: Final = logging.getLogger(__name__)

_MAX_LENGTH: Final = 1024
# fmt: off
_TOLD: Final = frozenset((
    "allowWatchBookmarks", "continue", "dryRun", "exclude", "fieldManager", "fieldSelector", "fieldValidation",
    "includeObject", "labelSelector", "limit", "pretty", "propagationPolicy", "resourceVersion", "resourceVersionMatch",
    "sendInitialEvents", "timeout", "timeoutSeconds", "verbose", "watch",
))
# fmt: on
_PARAMETER: Final = re.compile(r"([^&=]*)=([^&]*)")


def values(**named: object) -> dict[str, Mapping[str, object]]:
    """What `extra` of a logging call takes; `audit_ID` is written `audit-ID`, as Kubernetes spells it."""
    return {VALUES: {key.replace("_", "-"): value for key, value in named.items()}}


def log_request(request: "Request", response: "Response | None", *, verb: str, audit_id: str, began: float) -> None:
    """Write the line of a request that is over.

    No header is told but these, for one may be a token; nor the value of a parameter that Kubernetes does not know.

    Args:
        request: the request.
        response: the answer, or None when the client left before its end.
        verb: as in metrics.
        audit_id: of the request.
        began: when, by time.perf_counter.
    """
    peer = request.transport.get_extra_info("peername") if request.transport else None
    named = {
        "verb": verb,
        "URI": told_uri(request.raw_path)[:_MAX_LENGTH],
        "latency": f"{(time.perf_counter() - began) * 1000:.6g}ms",
        "userAgent": request.headers.get("User-Agent", "")[:_MAX_LENGTH],
        "audit_ID": audit_id,
        "srcIP": f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "",
        "resp": (request.begun or ABANDONED) if response is None else response.status,
    }
    LOG.log(REQUESTS, "HTTP", extra=values(**named))


def told_uri(target: str) -> str:
    """A request's target with a dash for each value of a parameter that Kubernetes does not know.

    Nobody should send a secret there, and some do: a log is read by more people than may use it.
    """
    path, mark, query = target.partition("?")
    tell: Callable[[re.Match[str]], str] = lambda found: found[0] if found[1] in _TOLD else f"{found[1]}=-"  # noqa: E731
    return path + mark + _PARAMETER.sub(tell, query)
