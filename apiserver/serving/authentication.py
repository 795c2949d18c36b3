"""Finding out who is asking: front proxy, client certificate, bearer token, or nobody in particular.

Source: k8s.io/apiserver/pkg/authentication/authenticatorfactory, DelegatingAuthenticatorConfig (1.37).
"""

import base64
import binascii
import hmac
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from multidict import CIMultiDict, CIMultiDictProxy

from apiserver.serving.certificates import CertificateError, CertificateVerifier, common_name, user_of
from apiserver.serving.remembered import Remembered
from apiserver.serving.reviews import ReviewCache
from apiserver.serving.users import ANONYMOUS, User, with_authenticated_group

Headers = CIMultiDict[str] | CIMultiDictProxy[str]
TokenReviewer = Callable[[str], Awaitable[User | None]]

KNOWN: Final = "success"
"""What a caller who is known is counted as."""
_IMPERSONATION_PREFIX = "impersonate-"
_WEBSOCKET_TOKEN_PREFIX = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - announces a token, is none
_REMEMBERED_KNOWN = 1024
_MALFORMED_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


class Unauthenticated(Exception):
    """Nobody could say who is asking, and somebody objected; the message is for the log, never for the client."""


class ForeignPage(Exception):
    """A page of another site opens a WebSocket as somebody whose browser showed a certificate without being asked."""


# --- Configuration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderConfig:
    """Whose word is taken for the identity in request headers, and which headers carry it.

    Names and prefixes match without regard to case; allowed names are common names and match exactly, none meaning all.
    """

    ca: CertificateVerifier | None = None
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    allowed_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationConfig:
    """What a cluster publishes for its aggregated API servers; None where it publishes nothing."""

    request_header: RequestHeaderConfig | None = None
    client_ca: CertificateVerifier | None = None

    @classmethod
    def from_configmap(cls, data: Mapping[str, str]) -> "AuthenticationConfig":
        """Read the data of ConfigMap `kube-system/extension-apiserver-authentication`.

        An absent or empty value is nothing published, whatever was published before.

        Raises:
            ValueError: a value is not what its key promises; the message begins with the key.
        """
        request_header = RequestHeaderConfig(
            ca=_verifier(data, "requestheader-client-ca-file"),
            username_headers=_strings(data, "requestheader-username-headers"),
            uid_headers=_strings(data, "requestheader-uid-headers"),
            group_headers=_strings(data, "requestheader-group-headers"),
            extra_prefixes=_strings(data, "requestheader-extra-headers-prefix"),
            allowed_names=_strings(data, "requestheader-allowed-names"),
        )
        return cls(
            request_header=None if request_header == RequestHeaderConfig() else request_header,
            client_ca=_verifier(data, "client-ca-file"),
        )

    @property
    def verifiers(self) -> tuple[CertificateVerifier, ...]:
        """The bundles of authorities a client certificate may come from, for `ServingContext.trust`."""
        front_proxy = self.request_header.ca if self.request_header else None
        return tuple(verifier for verifier in (front_proxy, self.client_ca) if verifier)


def _verifier(data: Mapping[str, str], key: str) -> CertificateVerifier | None:
    pem = data.get(key)
    try:
        return CertificateVerifier(pem) if pem else None
    except CertificateError as error:
        raise ValueError(f"{key}: {error}") from error


def _strings(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key)
    try:
        values = json.loads(text) if text else None
    except ValueError as error:
        raise ValueError(f"{key}: not JSON: {error}") from error
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key}: not a JSON array of strings")
    return tuple(values)


# --- Headers ----------------------------------------------------------------------------------------------------------


def impersonation_requested(headers: Headers) -> bool:
    """Whether the caller asks to act as somebody else, which must be refused where it is not supported."""
    for name in headers:  # noqa: SIM110 # a generator takes twice as long, and there are many headers
        if name[:1] in "Ii" and name.lower().startswith(_IMPERSONATION_PREFIX):
            return True
    return False


def is_foreign_page(headers: Headers, scheme: str) -> bool:
    """Whether a page of another site opens a WebSocket, which browsers let any page do, unlike reading an answer.

    Args:
        headers: the request's.
        scheme: `https`, or `http` on loopback.
    """
    origin = headers.get("Origin")
    if origin is None or "Upgrade" not in headers:
        return False
    return origin.lower() != f"{scheme}://{headers.get('Host', '')}".lower()


def user_from_headers(config: RequestHeaderConfig, headers: Headers) -> User | None:
    """Return the user a front proxy names in its headers, None if it names none.

    Source: k8s.io/apiserver/pkg/authentication/request/headerrequest (1.37).
    """
    name = _first_value(headers, config.username_headers)
    if not name:
        return None
    return User(
        name=name,
        uid=_first_value(headers, config.uid_headers),
        groups=tuple(_utf8(value) for header in config.group_headers for value in headers.getall(header, ()) if value),
        extra=_extra(headers, config.extra_prefixes),
    )


@lru_cache(maxsize=1024)
def unescape_extra_key(escaped: str) -> str:
    """Return the key of an extra from the rest of its header's name; one that is badly escaped stays as it is."""
    key = escaped.lower()
    return key if _MALFORMED_ESCAPE.search(key) else unquote(key)


def _first_value(headers: Headers, names: Sequence[str]) -> str:
    for name in names:
        if value := headers.get(name):
            return _utf8(value)
    return ""


def _extra(headers: Headers, prefixes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, list[str]] = {}
    for prefix in map(str.lower, prefixes):
        for name, value in headers.items():
            if name.lower().startswith(prefix):
                extra.setdefault(unescape_extra_key(name[len(prefix) :]), []).append(_utf8(value))
    return {key: tuple(values) for key, values in extra.items()}


def _utf8(value: str) -> str:
    """Replace the bytes that were not UTF-8, which aiohttp hands on as surrogates, as Go does when it writes JSON."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# --- Tokens -----------------------------------------------------------------------------------------------------------


def bearer_token(headers: Headers) -> str | None:
    """Return the token of the Authorization header; None if there is none, or a second blank before it.

    Source: k8s.io/apiserver/pkg/authentication/request/bearertoken (1.37).
    """
    match headers.get("Authorization", "").strip().split(" ", 2):
        case [scheme, token, *_] if scheme.lower() == "bearer" and token:
            return token
    return None


def websocket_token(headers: Headers) -> str | None:
    """Return the token a WebSocket client, which cannot set Authorization, hides among its sub-protocols.

    Raises:
        Unauthenticated: there are several, it is badly encoded, or no other protocol is left to agree on.

    Source: k8s.io/apiserver/pkg/authentication/request/websocket (1.37).
    """
    if headers.get("Upgrade", "").lower() != "websocket":
        return None
    offered = [
        protocol.strip() for line in headers.getall("Sec-WebSocket-Protocol", ()) for protocol in line.split(",")
    ]
    tokens = [protocol for protocol in offered if protocol.startswith(_WEBSOCKET_TOKEN_PREFIX)]
    if not tokens:
        return None
    if len(tokens) > 1:
        raise Unauthenticated("several bearer tokens among the sub-protocols")
    encoded = tokens[0].removeprefix(_WEBSOCKET_TOKEN_PREFIX)
    try:
        token = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise Unauthenticated("the bearer token among the sub-protocols is badly encoded") from error
    if token and len(offered) == 1:
        raise Unauthenticated("no sub-protocol beside the bearer token")
    return token or None


# --- The authenticator ------------------------------------------------------------------------------------------------


class _Peer(NamedTuple):
    """What the other end of the connection showed during the handshake. A plain tuple: each request looks one up."""

    certificate: bytes
    intermediates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A user known by the certificate alone, and from when until when that is taken as known, in seconds since 1970."""

    user: User
    since: float
    until: float


class Authenticator:
    """Says who is asking, from the client certificate of the connection and the headers of the request.

    Asked in this order, the first who knows wins: the front proxy's headers, the client certificate, the bearer token.
    Objections are collected on the way; only if there is none is the caller anonymous.

    Args:
        config: what is trusted; None until it is known.
        token_reviewer: returns the user of a token, None if it is not valid; without one no token can be reviewed.
        clock: seconds that only grow, for how long the answers about tokens are remembered.
        now: the time at which certificates must be valid, in seconds since 1970.

    Attributes:
        config: what is trusted; None until it is known.
        attempts: how many callers were known, KNOWN, and how many were not, `error`.
    """

    def __init__(
        self,
        config: AuthenticationConfig | None = None,
        *,
        token_reviewer: TokenReviewer | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._token_reviewer = token_reviewer
        self._now = now
        self._reviews: ReviewCache[bytes, User | None] = ReviewCache(clock=clock)
        self._review_key = secrets.token_bytes(32)
        self._known: Remembered[tuple[bytes, tuple[bytes, ...]], _Known] = Remembered(_REMEMBERED_KNOWN)
        self.attempts: Counter[str] = Counter()

    @property
    def configured(self) -> bool:
        """Whether it is known what the cluster trusts, be it nothing."""
        return self.config is not None

    def update(self, config: AuthenticationConfig) -> None:
        """Trust this from now on, and nothing that was trusted before."""
        self.config = config
        self._known.clear()

    def recall(
        self, peer_certificate: bytes | None, headers: Headers, intermediates: tuple[bytes, ...] = ()
    ) -> User | None:
        """Who is asking, where the certificate alone said so a moment ago; else None, and `authenticate` finds out.

        It takes what `authenticate` takes.
        """
        if peer_certificate is None:
            return None
        known = self._known.get((peer_certificate, intermediates))
        if known is None or not known.since <= self._now() <= known.until or "Origin" in headers:
            return None
        self.attempts[KNOWN] += 1
        return known.user

    def lasting(
        self, peer_certificate: bytes, headers: Headers, intermediates: tuple[bytes, ...] = ()
    ) -> Callable[[], bool] | None:
        """Says for how long `authenticate` would answer as it did just now, when asked the same.

        That is as long as the certificate is taken as known, and the same is trusted. None where the certificate and
        the headers are not all there is to it: whether a token is still valid only its reviewer knows.
        """
        if "Authorization" in headers or "Upgrade" in headers or self.config is None:
            return None
        config, now = self.config, self._now
        span = self._span(_Peer(peer_certificate, intermediates), config.verifiers)
        if span is None:
            return None
        since, until = span
        return lambda: self.config is config and since <= now() <= until

    async def authenticate(
        self, *, peer_certificate: bytes | None, headers: Headers, intermediates: tuple[bytes, ...] = ()
    ) -> User:
        """Find out who is asking, `system:anonymous` if nobody knows and nobody objects; to be asked after `recall`.

        Args:
            peer_certificate: the client's certificate of the TLS handshake as DER, None without one.
            headers: the request's.
            intermediates: the rest of the presented chain, as DER.

        Raises:
            Unauthenticated: nobody knows and somebody objects.
            ForeignPage: the client certificate says who, and it is a page of another site that makes use of it.
        """
        peer = _Peer(peer_certificate, intermediates) if peer_certificate is not None else None
        objections: list[Unauthenticated] = []
        for authenticate in (
            self._by_front_proxy,
            self._by_certificate,
            self._by_bearer_token,
            self._by_websocket_token,
        ):
            try:
                user = await authenticate(peer, headers)
            except Unauthenticated as objection:
                objections.append(objection)
                continue
            if user is not None:
                user = with_authenticated_group(user)
                if authenticate == self._by_certificate and objections and peer is not None:
                    self._remember(peer, user)
                self.attempts[KNOWN] += 1
                return user
        if objections:
            self.attempts["error"] += 1
            raise Unauthenticated("; ".join(map(str, objections))) from objections[0]
        self.attempts[KNOWN] += 1
        return ANONYMOUS

    def _at(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    def _remember(self, peer: _Peer, user: User) -> None:
        """Take a certificate as known that is no front proxy's: no header but Origin can change who asks."""
        client_ca = self.config.client_ca if self.config else None
        span = self._span(peer, (client_ca,) if client_ca else ())
        if span is not None:
            self._known[peer] = _Known(user, *span)

    def _span(self, peer: _Peer, verifiers: Iterable[CertificateVerifier]) -> tuple[float, float] | None:
        """From now until when a certificate is taken as known by whoever vouches for it; None where nobody does."""
        at = self._at()
        ends = [verifier.known_until(peer.certificate, peer.intermediates, at=at) for verifier in verifiers]
        known = [end.timestamp() for end in ends if end is not None]
        return (at.timestamp(), min(known)) if known else None

    async def _by_front_proxy(self, peer: _Peer | None, headers: Headers) -> User | None:
        trusted = self.config.request_header if self.config else None
        if peer is None or trusted is None or trusted.ca is None:
            return None
        try:
            certificate = trusted.ca.verify(peer.certificate, peer.intermediates, at=self._at())
        except CertificateError as error:
            raise Unauthenticated(f"as a front proxy: {error}") from error
        if trusted.allowed_names and (name := common_name(certificate)) not in trusted.allowed_names:
            raise Unauthenticated(f"as a front proxy: subject with cn={name} is not in the allowed list")
        return user_from_headers(trusted, headers)

    async def _by_certificate(self, peer: _Peer | None, headers: Headers) -> User | None:
        trusted = self.config.client_ca if self.config else None
        if peer is None or trusted is None:
            return None
        try:
            user = user_of(trusted.verify(peer.certificate, peer.intermediates, at=self._at()))
        except CertificateError as error:
            raise Unauthenticated(f"as a client: {error}") from error
        if user is not None and is_foreign_page(headers, "https"):
            raise ForeignPage(f"a page of {headers['Origin']} opens a WebSocket as {user.name}")
        return user

    async def _by_bearer_token(self, _: _Peer | None, headers: Headers) -> User | None:
        return await self._review(bearer_token(headers))

    async def _by_websocket_token(self, _: _Peer | None, headers: Headers) -> User | None:
        return await self._review(websocket_token(headers))

    async def _review(self, token: str | None) -> User | None:
        if token is None:
            return None
        if self._token_reviewer is None:
            raise Unauthenticated("bearer tokens cannot be reviewed here")
        reviewer = self._token_reviewer

        async def ask() -> User | None:
            return await reviewer(token)

        key = hmac.digest(self._review_key, token.encode("utf-8", "surrogatepass"), "sha256")
        try:
            user = await self._reviews.get(key, ask)
        except Exception as error:
            raise Unauthenticated(f"reviewing the bearer token failed: {str(error) or type(error).__name__}") from error
        if user is None:
            raise Unauthenticated("invalid bearer token")
        return user
