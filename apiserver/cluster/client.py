"""The connection to kube-apiserver: bytes in and out, and the only place that knows kubernetes_asyncio.

kubernetes_asyncio reads configuration and keeps credentials; the bytes travel over a session of our own, so that lists
and watches are decoded once, into the types that want them. It is imported when `connect` is first awaited, in a
thread: that takes seconds, and our listener must answer meanwhile.

    ClusterError                 kube-apiserver answered, and not with 2xx
    └── ClusterUnreachableError  it did not answer
        ├── ConnectionLostError  it hung up in the middle
        └── SilenceError         a stream is open, nothing comes
"""

import asyncio
import contextlib
import email.utils
import errno
import ipaddress
import logging
import os
import secrets
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import yaml
from yarl import URL

from apiserver.cluster.collection import JSON
from apiserver.cluster.sockets import open_socket

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


CONNECT_SECONDS = 4.0
"""Where packets are dropped a SYN is sent again after 1 and 3 s; waiting longer only delays the return."""

GET_SECONDS = 90.0
"""Beyond the 60 s in which kube-apiserver itself ends a request."""

POST_SECONDS = 10.0
POST_PAUSES = (0.5, 0.75, 1.125, 1.6875)
"""Source: k8s.io/apiserver pkg/util/webhook DefaultRetryBackoffWithInitialDelay(500 ms): factor 1.5, 5 steps (1.37)."""

POST_JITTER = 0.2
POST_RETRIED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.GATEWAY_TIMEOUT})
RETRY_AFTER_LIMIT = 120.0
"""Seconds of Retry-After that are believed; longer would outlast what --max-staleness forgives."""

RENEWAL_SECONDS = 10.0
"""Least time between two readings of the credentials, however often they are refused."""

EXPIRY_MARGIN = timedelta(minutes=1)
MAX_BODY_IN_MESSAGE = 256
MAX_LINE_BYTES = 64 * 2**20

DateObserver = Callable[[datetime, float, float], None]
"""Told a response's Date header and time.monotonic() just before the request and just after the response's headers."""


class ConfigurationError(Exception):
    """There is no usable way to a cluster; the message names the file and the fix."""


class ClusterError(Exception):
    """kube-apiserver refused.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        reason: one CamelCase word, as in a Status.
        message: a sentence; never more of a foreign body than its beginning.
        retry_after: seconds the server asked to wait, if it did.
    """

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = None if retry_after is None else min(retry_after, RETRY_AFTER_LIMIT)

    def __str__(self) -> str:
        return f"{self.status or ''} {self.reason}: {self.message}".strip()


class ClusterUnreachableError(ClusterError):
    """No answer: no connection, a broken one, or no time left."""

    def __init__(self, message: str) -> None:
        super().__init__(0, type(self).__name__.removesuffix("Error"), message)


class ConnectionLostError(ClusterUnreachableError):
    """The server hung up before it had answered."""


class SilenceError(ClusterUnreachableError):
    """Not a byte came on an open stream for as long as was bearable; the other end may be gone, or have no news."""


class StatusDetails(msgspec.Struct, rename="camel"):
    """details of a Status, as far as it is read."""

    retry_after_seconds: float = 0


class Status(msgspec.Struct, rename="camel"):
    """A metav1.Status: how Kubernetes words a failure."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    def error(self, *, status: int = 0, retry_after: float | None = None) -> ClusterError:
        """The exception that says the same; what HTTP said besides wins over what is missing here."""
        asked = (self.details.retry_after_seconds if self.details else 0) or None
        code = status or self.code or HTTPStatus.INTERNAL_SERVER_ERROR
        return ClusterError(code, self.reason, self.message, retry_after=retry_after or asked)


@dataclass(frozen=True, slots=True)
class Response:
    """A 2xx answer, read to its end. Header names know no case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def date(self) -> datetime | None:
        """When the server says it answered."""
        return parse_date(self.headers.get("Date", ""))


async def _anonymous() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Access:
    """How a cluster is reached and as whom.

    Attributes:
        url: scheme, host, port, and a path prefix where the server sits behind one; no trailing slash.
        ssl_context: with CA and client certificate; unset for plain http.
        server_name: the name to expect in the certificate, if not the host.
        proxy: HTTP proxy to go through.
        authorization: gives the Authorization header of the moment, or None.
        expires_at: when the credentials end, if they say so.
    """

    url: str
    ssl_context: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    authorization: Callable[[], Awaitable[str | None]] = _anonymous
    expires_at: datetime | None = None

    def is_expiring(self) -> bool:
        """Whether credentials should be read anew before they are next used."""
        return self.expires_at is not None and datetime.now(UTC) > self.expires_at - EXPIRY_MARGIN


AccessLoader = Callable[[], Awaitable[Access]]


@dataclass(frozen=True, slots=True)
class _Call:
    """One request as it is sent, and sent again with other credentials."""

    method: str
    path: str
    timeout: aiohttp.ClientTimeout
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    encoding: str = "gzip"
    accept: str = JSON


class ClusterClient:
    """A connection to one cluster, for as long as an `async with` block lasts.

    Args:
        access: where to and as whom.
        user_agent: how we present ourselves.
        load: reads the access anew when it is refused, about to expire, or no longer trusts the server.
        on_date: told the Date of every answer.
        post_pauses: seconds between the attempts of a post, before jitter.

    Attributes:
        posts: attempts of posts, by path and HTTP status; 0 where there was no answer.
    """

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        load: AccessLoader | None = None,
        on_date: DateObserver | None = None,
        post_pauses: Sequence[float] = POST_PAUSES,
    ) -> None:
        self._access = access
        self._load = load
        self._loaded_at = time.monotonic()
        self._loading = asyncio.Lock()
        self._headers = {"User-Agent": user_agent}
        self._on_date = on_date
        self._post_pauses = tuple(post_pauses)
        self._session: aiohttp.ClientSession | None = None
        self.posts: Counter[tuple[str, int]] = Counter()

    async def __aenter__(self) -> Self:
        # No limit on connections: reviews that hang must not keep a watch from being opened.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=open_socket), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def url(self) -> str:
        """Where the API server is."""
        return self._access.url

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Response:
        """Read one object or one page of a list, in the representation that is accepted.

        Raises:
            ClusterError: the server refused.
            ClusterUnreachableError: it did not answer.
        """
        timeout = aiohttp.ClientTimeout(total=GET_SECONDS, sock_connect=CONNECT_SECONDS)
        return await self._fetch(_Call("GET", path, timeout, params, accept=accept))

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Have a review answered; tried again as client-go's webhooks are.

        Raises:
            ClusterError: the server refused.
            ClusterUnreachableError: it did not answer within 10 s.
        """
        timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
        call = _Call("POST", path, timeout, body=msgspec.json.encode(body))
        for pause in self._post_pauses:
            try:
                return _json_object(await self._fetch_counted(call))
            except ClusterError as error:
                if not _may_post_again(error):
                    raise
                await asyncio.sleep(max(_jittered(pause), error.retry_after or 0))
        return _json_object(await self._fetch_counted(call))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float, accept: str = JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; its lines come without their newline, however they were cut on the way.

        Args:
            path: of the collection.
            params: its query.
            silence_seconds: how long not a single byte may come, the answer's headers included.
            accept: the representation that is accepted.

        Raises:
            ClusterError: the server refused.
            ClusterUnreachableError: it did not answer, or the stream broke.
            SilenceError: it is open, and nothing came for too long.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        # A proxy that compresses would hold events back.
        call = _Call("GET", path, timeout, params, encoding="identity", accept=accept)
        async with self._answered(call) as response, contextlib.aclosing(_lines(response)) as lines:
            yield lines

    async def _fetch_counted(self, call: _Call) -> Response:
        try:
            response = await self._fetch(call)
        except ClusterError as error:
            self.posts[call.path, error.status] += 1
            raise
        self.posts[call.path, response.status] += 1
        return response

    async def _fetch(self, call: _Call) -> Response:
        async with self._answered(call) as response:
            with _translated():
                return Response(response.status, response.headers, await response.read())

    @contextlib.asynccontextmanager
    async def _answered(self, call: _Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a call, known to be 2xx; the connection is kept only if it was read to its end."""
        response = await self._open(call)
        try:
            yield response
        finally:
            response.release() if response.content.at_eof() else response.close()

    async def _open(self, call: _Call) -> aiohttp.ClientResponse:
        """Send; if that fails for want of good credentials or a known CA, once more with what the files say now."""
        access = await self._fresh_access()
        try:
            return await self._send(access, call)
        except ClusterError as error:
            if not _may_be_outdated(error) or not await self._renew(access):
                raise
        return await self._send(self._access, call)

    async def _send(self, access: Access, call: _Call) -> aiohttp.ClientResponse:
        """Send one request and raise unless the answer is 2xx."""
        if self._session is None:
            raise RuntimeError("a ClusterClient is used inside `async with`")
        headers = self._headers | {"Accept": call.accept, "Accept-Encoding": call.encoding}
        if call.body is not None:
            headers["Content-Type"] = JSON
        with _translated():
            authorization = await access.authorization()
            if authorization:
                headers["Authorization"] = authorization
            sent = time.monotonic()
            response = await self._session.request(
                call.method,
                URL(access.url + call.path),
                params=call.params,
                data=call.body,
                headers=headers,
                timeout=call.timeout,
                allow_redirects=False,
                proxy=access.proxy,
                ssl=access.ssl_context or True,
                server_hostname=access.server_name,
            )
            self._observe_date(response, sent)
            if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                raise await _refusal(response)
            return response

    def _observe_date(self, response: aiohttp.ClientResponse, sent: float) -> None:
        date = parse_date(response.headers.get("Date", ""))
        if self._on_date is not None and date is not None:
            self._on_date(date, sent, time.monotonic())

    async def _fresh_access(self) -> Access:
        access = self._access
        if access.is_expiring():
            await self._renew(access)
        return self._access

    async def _renew(self, seen: Access) -> bool:
        """Replace the access that was seen to fail; whether there is another one now."""
        async with self._loading:
            if self._access is not seen:
                return True
            if self._load is None or time.monotonic() - self._loaded_at < RENEWAL_SECONDS:
                return False
            self._loaded_at = time.monotonic()
            try:
                self._access = await self._load()
            except ConfigurationError as error:
                logger.warning("the credentials could not be read anew: %s", error)
                return False
            return True


class LineSplitter:
    """Lines out of chunks that may end anywhere; linear in the bytes, whatever the length of a line."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without newlines and without empty ones.

        Raises:
            ClusterError: a line is longer than any that Kubernetes could send.
        """
        first, *others = chunk.split(b"\n")
        self._pending.append(first)
        self._pending_bytes += len(first)
        if self._pending_bytes > MAX_LINE_BYTES:
            raise ClusterError(0, "LineTooLong", f"an event of more than {MAX_LINE_BYTES} bytes")
        if not others:
            return []
        lines = [b"".join(self._pending), *others[:-1]]
        self._pending = [others[-1]]
        self._pending_bytes = len(others[-1])
        return [line for line in lines if line]


async def connect(
    kubeconfig: Path | None,
    *,
    context: str | None = None,
    user_agent: str,
    local: bool = False,
    on_date: DateObserver | None = None,
) -> ClusterClient:
    """Find the cluster and the credentials for it; nothing is sent yet.

    A kubeconfig that is named is used. Otherwise a local run takes the person's own, as kubectl does, and what runs in
    a pod takes its service account.

    Args:
        kubeconfig: the file, if one is named.
        context: which of its contexts, instead of the current one.
        user_agent: how we present ourselves.
        local: whether the person's own kubeconfig may be used.
        on_date: told the Date of every answer.

    Raises:
        ConfigurationError: there is none, or it cannot be used.
    """
    load = _choose(kubeconfig, context, local=local)
    return ClusterClient(await load(), user_agent=user_agent, load=load, on_date=on_date)


def parse_date(value: str) -> datetime | None:
    """The instant that a Date header names, in UTC, or None when it names none."""
    try:
        return email.utils.parsedate_to_datetime(value).astimezone(UTC)
    except ValueError:
        return None


# Requests.


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The complete lines of a stream; a line that the end cuts off is dropped, the next watch brings it whole."""
    splitter = LineSplitter()
    with _translated():
        try:
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line
        except aiohttp.SocketTimeoutError as error:
            raise SilenceError(_wording(error)) from error


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise our own errors for aiohttp's, which nobody else should have to know."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        lost = isinstance(error, aiohttp.ServerDisconnectedError) or getattr(error, "errno", 0) == errno.ECONNRESET
        raise (ConnectionLostError if lost else ClusterUnreachableError)(_wording(error)) from error


def _wording(error: BaseException) -> str:
    """What an exception says, in one line; its type when it says nothing."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.os_error}"
    return " ".join(str(error).split()) or type(error).__name__


async def _refusal(response: aiohttp.ClientResponse) -> ClusterError:
    """What a response that is not 2xx says: its Status, or the beginning of whatever else it carries."""
    body = await response.read()
    seconds = response.headers.get("Retry-After", "")
    retry_after = float(seconds) if seconds.isdecimal() else None
    with contextlib.suppress(msgspec.DecodeError):
        status = msgspec.json.decode(body, type=Status)
        if status.kind == "Status":
            status.reason = status.reason or response.reason or ""
            return status.error(status=response.status, retry_after=retry_after)
    text = body[: 4 * MAX_BODY_IN_MESSAGE].decode(errors="replace")[:MAX_BODY_IN_MESSAGE]
    return ClusterError(response.status, response.reason or "", text, retry_after=retry_after)


def _may_be_outdated(error: ClusterError) -> bool:
    """Whether credentials or CA may have been replaced on disk since they were read."""
    untrusted = isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError)
    return error.status == HTTPStatus.UNAUTHORIZED or untrusted


def _may_post_again(error: ClusterError) -> bool:
    """Source: k8s.io/apiserver pkg/util/webhook DefaultShouldRetry (1.37)."""
    return isinstance(error, ConnectionLostError) or error.status in POST_RETRIED or error.retry_after is not None


def _jittered(seconds: float) -> float:
    return seconds * (1 + POST_JITTER * secrets.SystemRandom().random())


def _json_object(response: Response) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ClusterError(response.status, "MalformedAnswer", _wording(error)) from error


# Configuration.


def _choose(kubeconfig: Path | None, context: str | None, *, local: bool) -> AccessLoader:
    """Where the access is read from, now and whenever it must be read again."""
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise ConfigurationError(f"kubeconfig {kubeconfig} is not a file: name one that exists.")
        return partial(_from_kubeconfig, str(kubeconfig), context)
    own = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if local and any(Path(each).expanduser().is_file() for each in own.split(os.pathsep) if each):
        return partial(_from_kubeconfig, own, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").is_file():
        if context is not None:
            raise ConfigurationError(f"context {context} needs a kubeconfig: a pod's service account has no contexts.")
        return _from_service_account
    if local:
        raise ConfigurationError(f"kubeconfig {own} does not exist: set KUBECONFIG, or name a file.")
    raise ConfigurationError(
        f"no kubeconfig is named and {SERVICE_ACCOUNT / 'token'} does not exist: "
        "run in a pod with a service account, or name a kubeconfig."
    )


def _kubernetes_asyncio() -> tuple[Any, Any]:
    """Its modules `client` and `config`; slow when first called."""
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - seconds, to be spent after our listener is up

    return client, config


async def _from_kubeconfig(paths: str, context: str | None) -> Access:
    """What a kubeconfig, or several merged as $KUBECONFIG lists them, says now; runs credential plugins."""
    client, config = await asyncio.to_thread(_kubernetes_asyncio)
    configuration = client.Configuration()
    misshapen = (TypeError, AttributeError, KeyError)
    try:
        loader = await config.load_kube_config(paths, context, configuration)
        return await _access(configuration, config, expires_at=getattr(loader, "exec_plugin_expiry", None))
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, *misshapen) as error:
        which = f", context {context}" if context else ""
        wording = "it is not shaped as a kubeconfig" if isinstance(error, misshapen) else _wording(error)
        fix = "`kubectl config get-contexts` lists contexts, `kubectl config view` shows the rest."
        raise ConfigurationError(f"kubeconfig {paths}{which}: {wording}; {fix}") from error


async def _from_service_account() -> Access:
    """What the pod's service account files say now; its token is read again every minute."""
    client, config = await asyncio.to_thread(_kubernetes_asyncio)
    configuration = client.Configuration()
    token, authority = str(SERVICE_ACCOUNT / "token"), str(SERVICE_ACCOUNT / "ca.crt")
    try:
        config.load_incluster_config(configuration, token_filename=token, cert_filename=authority)
        return await _access(configuration, config)
    except (config.ConfigException, OSError, ValueError) as error:
        fix = "the pod needs automountServiceAccountToken, or name a kubeconfig."
        raise ConfigurationError(f"service account in {SERVICE_ACCOUNT}: {_wording(error)}; {fix}") from error


async def _access(configuration: Any, config: Any, *, expires_at: datetime | None = None) -> Access:  # noqa: ANN401 - kubernetes_asyncio is untyped
    """What kubernetes_asyncio found out, in our own terms."""

    async def authorization() -> str | None:
        try:
            header: str | None = await configuration.get_api_key_with_prefix("BearerToken")
        except config.ConfigException as error:
            raise ClusterUnreachableError(_wording(error)) from error
        return header.strip() if header else None

    url = str(configuration.host).rstrip("/")
    secure = url.startswith("https:")
    return Access(
        url=url,
        ssl_context=await asyncio.to_thread(_ssl_context, configuration) if secure else None,
        server_name=configuration.tls_server_name if secure else None,
        proxy=configuration.proxy or environment_proxy(url),
        authorization=authorization,
        expires_at=expires_at,
    )


def _ssl_context(configuration: Any) -> ssl.SSLContext:  # noqa: ANN401 - kubernetes_asyncio is untyped
    """TLS as Go has it: certificates that kubectl accepts must not fail here.

    Python 3.13 asks by default for extensions that home-made cluster CAs lack, and before it refused a chain that ends
    at a trusted intermediate.
    """
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def environment_proxy(url: str) -> str | None:
    """The proxy that HTTPS_PROXY and the like name for a URL, unless NO_PROXY excepts it.

    Go's rules where Python's are narrower: loopback never goes through a proxy, and NO_PROXY may hold networks, which
    is how the cluster's own addresses are excepted. Source: golang.org/x/net/http/httpproxy.
    """
    target = URL(url)
    host = target.host or ""
    if host == "localhost" or urllib.request.proxy_bypass(host) or _is_excepted_address(host):
        return None
    return urllib.request.getproxies().get(target.scheme)


def _is_excepted_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    excepted = urllib.request.getproxies().get("no", "")
    return address.is_loopback or any(address in network for network in _networks(excepted))


def _networks(excepted: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for each in excepted.split(","):
        with contextlib.suppress(ValueError):
            yield ipaddress.ip_network(each.strip(), strict=False)
