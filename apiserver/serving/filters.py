"""What every request passes before it is answered, from the outermost to the innermost.

Source: apiserver pkg/server/config.go DefaultBuildHandlerChain of Kubernetes 1.37: 401 is decided before 403, and 403
before 404 and 405.
"""

import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Coroutine
from functools import lru_cache
from typing import Any, Final, Protocol

from aiohttp import HttpVersion11, web

from apiserver.serving.answers import AUDIT_ID, Answer
from apiserver.serving.audit_ids import audit_id
from apiserver.serving.authentication import (
    KNOWN,
    Authenticator,
    ForeignPage,
    Unauthenticated,
    impersonation_requested,
    is_foreign_page,
)
from apiserver.serving.authorization import (
    ALLOWED,
    Attributes,
    AuthorizationError,
    Authorizer,
    Decision,
    Verdict,
    forbidden_message,
)
from apiserver.serving.certificates import Peer
from apiserver.serving.httplog import LOG, REQUESTS, log_request, values
from apiserver.serving.remembered import Remembered
from apiserver.serving.repeats import Standing
from apiserver.serving.request_info import RequestInfo, read_request
from apiserver.serving.requests import Request, Response
from apiserver.serving.responses import respond_status, respond_text
from apiserver.serving.selectors import Requirement, parse_field_selector, parse_label_selector, pinned_name
from apiserver.serving.shutdown import Shutdown, refuse_late
from apiserver.serving.status import Forbidden, ServiceUnavailable, StatusError, Unauthorized
from apiserver.serving.traffic import Traffic
from apiserver.serving.users import User

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Filter(Protocol):
    """Stands before a handler: answers by itself, or has the handler answer.

    One that has nothing to wait for, nor to do afterwards, is no coroutine but returns the handler's: each one less is
    felt in every short answer. It raises where it is called, then, and not where it is awaited.
    """

    def __call__(self, handler: Handler, request: Request, /) -> Coroutine[Any, Any, Response]:
        """Answer a request."""


class Repeatable:
    """A filter that need not be passed again by a request that has passed it, if what it says of that still stands.

    Args:
        answer: the filter.
        again: what it says of a request that has passed and was answered just now, and None of one that has to pass
            each time.
    """

    def __init__(self, answer: Filter, again: Callable[[Request], Standing | None]) -> None:
        self.answer = answer
        self.again = again

    def __call__(self, handler: Handler, request: Request, /) -> Coroutine[Any, Any, Response]:
        """Answer a request."""
        return self.answer(handler, request)


_NO_PEER: Final = Peer(None, (), was_asked=False)
_REMEMBERED_TARGETS: Final = 1024
_REMEMBERED_LENGTH: Final = 1024
_SELECTIVE_VERBS: Final = ("list", "watch", "deletecollection")
_PANIC: Final = "This request caused apiserver to panic. Look in the logs for details.\n"
_FOREIGN_PAGE: Final = "forbidden: a WebSocket may only be opened by a page of this server"
_log = logging.getLogger(__name__)


def measuring(traffic: Traffic) -> Repeatable:
    """Count every request once it is over, however it ends, and log it if that is asked for."""

    async def measure(handler: Handler, request: Request) -> Response:
        began = time.perf_counter()
        response = None
        try:
            response = await handler(request)
            return response
        finally:
            traffic.count(request, request.info, response, time.perf_counter() - began)
            if LOG.isEnabledFor(REQUESTS):
                verb = traffic.of(request.method, request.info)[0].verb
                log_request(request, response, verb=verb, audit_id=request.audit_id, began=began)

    def again(request: Request) -> Standing | None:
        return None if LOG.isEnabledFor(REQUESTS) else Standing(count=traffic.counter(request, request.info))

    return Repeatable(measure, again)


def answering(shutdown: Shutdown) -> Repeatable:
    """Make sure that every request gets an answer: a StatusError its Status, a bug a 500, logged with the audit id."""
    read = _RememberedTargets().read

    async def answer(handler: Handler, request: Request) -> Response:
        request.audit_id = audit_id(request.headers.get(AUDIT_ID, ""))
        request.info = read(request)
        peer = request.peer
        try:
            if "Expect" in request.headers:
                await _expect(request)
            response = refuse_late(request) if shutdown.draining else await handler(request)
        except StatusError as error:
            response = respond_status(request, error)
        except web.HTTPClientError as error:  # by aiohttp: a WebSocket's handshake that is none
            response = respond_text(f"{error.text}\n", error.status)
        except Exception:  # noqa: BLE001 # the one place where a bug becomes an answer; it is logged in full
            _log.exception("%s %s failed", request.method, request.path, extra=values(audit_ID=request.audit_id))
            response = respond_text(_PANIC, 500)
            if request.begun is not None and request.transport is not None:
                request.transport.abort()  # an answer has begun: the client must see that it is broken
        if shutdown.draining or (peer and not peer.was_asked):
            response.force_close()
        return response

    return Repeatable(answer, lambda _: Standing(lambda: not shutdown.draining))


async def _expect(request: Request) -> None:
    """Let a client send its body that asks whether to; other expectations are none of HTTP.

    Raises:
        HTTPExpectationFailed: it expects something else.
    """
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="unknown Expect")
    if request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun


class _RememberedTargets:
    """What requests ask for, read once for each method and target: most clients ask the same again and again."""

    def __init__(self) -> None:
        self._known: Remembered[tuple[str, str], RequestInfo] = Remembered(_REMEMBERED_TARGETS)

    def read(self, request: Request) -> RequestInfo:
        """What a request asks for."""
        key = request.method, request.raw_path
        info = self._known.get(key)
        if info is None:
            info = read_request(request.method, request.path, request.query)
            if len(request.raw_path) <= _REMEMBERED_LENGTH:
                self._known[key] = info
        return info


def _adding(counts: Counter[str], name: str) -> Callable[[Answer, float], None]:
    """Counts an answer by a name."""

    def add(_: Answer, __: float) -> None:
        counts[name] += 1

    return add


def only_loopback(handler: Handler, request: Request) -> Coroutine[Any, Any, Response]:
    """Refuse a Host that is no loopback name: a page on the web could otherwise read this server by DNS rebinding."""
    if not is_loopback(_host_name(request.host)):
        raise Forbidden("forbidden: this server answers only to loopback names, such as localhost or 127.0.0.1")
    if is_foreign_page(request.headers, "http"):
        raise Forbidden(_FOREIGN_PAGE)
    return handler(request)


def authenticating(authenticator: Authenticator, open_paths: Container[str]) -> Repeatable:
    """Find out who asks, or refuse with 401. Identity headers count only from the front proxy.

    Args:
        authenticator: says who asks.
        open_paths: answered also while it is not known yet whom to trust; everything else is 503 then.
    """

    def authenticate(handler: Handler, request: Request) -> Coroutine[Any, Any, Response]:
        peer, info = request.peer, request.info
        if not _can_tell(authenticator, peer) and (info.is_resource_request or info.path not in open_paths):
            raise ServiceUnavailable("the server does not know yet which callers to trust", retry_after_seconds=1)
        peer = peer or _NO_PEER
        user = request.user = authenticator.recall(peer.certificate, request.headers, peer.intermediates)
        return find_out(handler, request, peer) if user is None else let_pass(handler, request)

    async def find_out(handler: Handler, request: Request, peer: Peer) -> Response:
        try:
            request.user = await authenticator.authenticate(
                peer_certificate=peer.certificate, headers=request.headers, intermediates=peer.intermediates
            )
        except Unauthenticated as error:
            _log.info("unable to authenticate the request: %s", error, extra=values(audit_ID=request.audit_id))
            raise Unauthorized from error
        except ForeignPage as error:
            _log.info("refused: %s", error, extra=values(audit_ID=request.audit_id))
            raise Forbidden(_FOREIGN_PAGE) from error
        return await let_pass(handler, request)

    def let_pass(handler: Handler, request: Request) -> Coroutine[Any, Any, Response]:
        if impersonation_requested(request.headers):
            raise Forbidden("impersonation is not supported here: send the request through kube-apiserver")
        return handler(request)

    def again(request: Request) -> Standing | None:
        peer = request.peer
        if peer is None or peer.certificate is None:
            return None
        stands = authenticator.lasting(peer.certificate, request.headers, peer.intermediates)
        return None if stands is None else Standing(stands, _adding(authenticator.attempts, KNOWN))

    return Repeatable(authenticate, again)


def _can_tell(authenticator: Authenticator, peer: Peer | None) -> bool:
    """Whether it is known whom to trust, and was when the connection began: else its certificate was not asked for."""
    if authenticator.config is None:
        return False
    return peer is None or peer.was_asked or not authenticator.config.verifiers


def authorizing(authorizer: Authorizer) -> Repeatable:
    """Let pass what the caller may do, and refuse the rest with 403. A failing review is never an allowance."""

    def authorize(handler: Handler, request: Request) -> Coroutine[Any, Any, Response]:
        attributes = _attributes(request.info, request.user)
        verdict = authorizer.recall(attributes)
        return ask(handler, request, attributes) if verdict is None else decide(handler, request, attributes, verdict)

    async def ask(handler: Handler, request: Request, attributes: Attributes) -> Response:
        try:
            verdict = await authorizer.authorize(attributes)
        except AuthorizationError as error:
            _log.warning("%s", error, extra=values(audit_ID=request.audit_id))
            return respond_text(f'Internal Server Error: "{request.path_qs}": {error}\n', 500)
        return await decide(handler, request, attributes, verdict)

    def decide(
        handler: Handler, request: Request, attributes: Attributes, verdict: Verdict
    ) -> Coroutine[Any, Any, Response]:
        if verdict.decision is Decision.ALLOW:
            return handler(request)
        details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
        raise Forbidden(
            forbidden_message(attributes, verdict.reason), details={key: text for key, text in details.items() if text}
        )

    def again(request: Request) -> Standing | None:
        stands = authorizer.lasting(_attributes(request.info, request.user))
        return None if stands is None else Standing(stands, _adding(authorizer.attempts, ALLOWED))

    return Repeatable(authorize, again)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(maxsize=512)  # a client that asks again and again is the same, and what it asks is read once
def _attributes(info: RequestInfo, user: User) -> Attributes:
    """What is asked about in a review. Selectors count for collections, and only those that can be read."""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    query = info.query
    if query and info.verb in _SELECTIVE_VERBS:
        labels = _readable(parse_label_selector, query.get("labelSelector", ""))
        fields = _readable(parse_field_selector, query.get("fieldSelector", ""))
    return Attributes(
        user=user,
        verb=info.verb,
        resource_request=info.is_resource_request,
        path=info.path,
        namespace=info.namespace,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource,
        name=info.name or pinned_name(fields),
        label_requirements=tuple((term.key, term.operator, term.values) for term in labels),
        field_requirements=tuple((term.key, term.operator, term.values) for term in fields),
    )


def _readable(parse: Callable[[str], tuple[Requirement, ...]], text: str) -> tuple[Requirement, ...]:
    try:
        return parse(text)
    except StatusError:
        return ()  # the handler will refuse it
