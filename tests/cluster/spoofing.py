"""Attempts to be taken for somebody else, and what each must come to.

The oracle is the table of the rules of Kubernetes' authenticators, written down a second time and on purpose simply: it
knows of each certificate and token only what the test made it to be.
"""

import base64
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.client import Client
from tests.cluster.control_plane import FRONT_PROXY, ControlPlane

MASTERS: Final = "system:masters"
READERS: Final = "spoofing-readers"
"""The one group, besides the masters, that may list what the attempts ask for."""
ANONYMOUS: Final = "system:anonymous"
ACCOUNT: Final = "spoofer"
ACCOUNTS: Final = "/api/v1/namespaces/default/serviceaccounts"
ACCOUNT_USER: Final = f"system:serviceaccount:default:{ACCOUNT}"
ISSUER: Final = "https://kubernetes.default.svc"
DAY: Final = timedelta(days=1)

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate with its key, as one PEM file, and what it really is.

    Attributes:
        label: says what is wrong with it.
        file: certificate, chain and key; None for no certificate.
        is_proxy: the front proxy's authority vouches for it.
        is_client: the authority of clients vouches for it.
        passes: OpenSSL's handshake lets it pass; where it does not, a TLS alert is as good as a 401.
        name: its common name.
        groups: its organizations.
    """

    label: str
    file: Path | None = None
    is_proxy: bool = False
    is_client: bool = False
    passes: bool = True
    name: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """Headers that carry a token, and what it is good for.

    Attributes:
        label: says what is wrong with it.
        headers: as they are sent.
        user: whom it names; "" for nobody.
        objectionable: it makes the request refused if nobody else vouches for the caller.
    """

    label: str
    headers: tuple[Header, ...] = ()
    user: str = ""
    objectionable: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request."""

    certificate: Certificate
    credential: Credential
    headers: tuple[Header, ...] = ()
    impersonates: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What must come of it.

    Attributes:
        code: 200 for who may read; else 401 or 403.
        user: whom a 403 names; "" where nobody is named.
    """

    code: int
    user: str = ""


def expected(attempt: Attempt) -> Outcome:
    """Who the caller may be, and what he may do."""
    identity = _identity(attempt)
    if identity is None:
        return Outcome(401)
    if attempt.impersonates or is_foreign_page(attempt):
        return Outcome(403)
    user, groups = identity
    return Outcome(200) if {MASTERS, READERS} & set(groups) else Outcome(403, user)


def is_foreign_page(attempt: Attempt) -> bool:
    """Whether a page of another site opens a WebSocket as the certificate of a browser; kube-apiserver lets it."""
    opens = any(name == "Upgrade" for name, _ in attempt.credential.headers)
    if not opens or all(name != "Origin" for name, _ in attempt.headers):
        return False
    identity, shown = _identity(attempt), attempt.certificate
    return identity is not None and shown.is_client and shown.name == identity[0] and not _introduced(attempt)


def _introduced(attempt: Attempt) -> str:
    """Whom the front proxy says it is, if it is the front proxy that says so."""
    shown = attempt.certificate
    if shown.file is None or not shown.is_proxy or shown.name != FRONT_PROXY:
        return ""
    return next((value for name, value in attempt.headers if name.lower() == "x-remote-user"), "")


def _identity(attempt: Attempt) -> tuple[str, Sequence[str]] | None:
    shown, credential = attempt.certificate, attempt.credential
    objected = credential.objectionable
    if shown.file is not None:
        user = _introduced(attempt)
        if user:
            return user, [value for name, value in attempt.headers if name.lower() == "x-remote-group"]
        objected = objected or not shown.is_proxy or shown.name != FRONT_PROXY
        if shown.is_client and shown.name:
            return shown.name, shown.groups
        objected = objected or not shown.is_client
    if credential.user:
        return credential.user, ()
    return None if objected else (ANONYMOUS, ())


# Certificates.


@dataclass(slots=True)
class _Issuer:
    """Whoever signs: a name and a key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    chain: bytes = b""


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if common_name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(attributes)


class Forger:
    """Makes certificates of every bad kind, as files in a directory."""

    def __init__(self, directory: Path, control_plane: ControlPlane) -> None:
        self._directory = directory
        self.clients = _Issuer(_name("cluster-ca"), control_plane.authority.signing_key)
        self.proxies = _Issuer(_name("front-proxy-ca"), control_plane.front_proxy_authority.signing_key)

    def certificates(self) -> tuple[Certificate, ...]:
        """Every kind."""
        clients, proxies = self.clients, self.proxies
        stranger, twin, proxy_twin = (_Issuer(_name(name)) for name in ("stranger", "cluster-ca", "front-proxy-ca"))
        past, future, serving = (-3 * DAY, -2 * DAY), (2 * DAY, 3 * DAY), ExtendedKeyUsageOID.SERVER_AUTH
        masters = ("admin", (MASTERS,))
        jane, jane_issuer = self._signing("jane", clients, ca=False)
        _, middle = self._signing("middle", clients, ca=True)
        return (
            Certificate("none"),
            self._make("the front proxy", proxies, FRONT_PROXY, is_proxy=True),
            self._make("the front proxy's authority, wrong name", proxies, *masters, is_proxy=True),
            self._make("the front proxy's name in capitals", proxies, FRONT_PROXY.upper(), is_proxy=True),
            self._make("the front proxy's authority, no name", proxies, "", (MASTERS,), is_proxy=True),
            self._make("the front proxy, expired", proxies, FRONT_PROXY, valid=past),
            self._make("the front proxy, not yet valid", proxies, FRONT_PROXY, valid=future),
            self._make("the front proxy, for servers", proxies, FRONT_PROXY, usage=serving, passes=False),
            self._make("the front proxy's name, of the clients' authority", clients, FRONT_PROXY, is_client=True),
            Certificate("a client", jane, is_client=True, name="jane"),
            self._make("a client without a name", clients, "", (MASTERS,), is_client=True),
            self._make("a client, expired", clients, *masters, valid=past),
            self._make("a client, not yet valid", clients, *masters, valid=future),
            self._make("a client, for servers", clients, *masters, usage=serving, passes=False),
            self._make("of a stranger", stranger, *masters, passes=False),
            self._make("of a stranger with the clients' authority's name", twin, *masters, passes=False),
            self._make("of a stranger with the front proxy's authority's name", proxy_twin, FRONT_PROXY, passes=False),
            self._make("self-signed", _Issuer(_name(FRONT_PROXY)), FRONT_PROXY, passes=False),
            self._make("signed by a client", jane_issuer, *masters, passes=False),
            self._make("signed by an authority that the clients' may not make", middle, *masters, passes=False),
        )

    def _make(  # noqa: PLR0913 # what is wrong is said at each certificate
        self,
        label: str,
        issuer: _Issuer,
        name: str,
        groups: tuple[str, ...] = (),
        *,
        valid: tuple[timedelta, timedelta] = (-DAY, DAY),
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        is_proxy: bool = False,
        is_client: bool = False,
        passes: bool = True,
    ) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._write(label, _sign(issuer, _name(name, groups), key, valid, usage=usage), key, issuer.chain)
        return Certificate(label, file, is_proxy, is_client, passes, name, groups)

    def _signing(self, name: str, issuer: _Issuer, *, ca: bool) -> tuple[Path, _Issuer]:
        """A certificate that is then made to sign another."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = _sign(issuer, _name(name), key, (-DAY, DAY), usage=usage, ca=ca)
        return self._write(name, certificate, key, b""), _Issuer(_name(name), key, _pem(certificate))

    def _write(self, label: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, chain: bytes) -> Path:
        file = self._directory / f"{label.replace(' ', '-')}.pem"
        encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write_bytes(_pem(certificate) + chain + key.private_bytes(encoding, kind, serialization.NoEncryption()))
        return file


def _sign(
    issuer: _Issuer,
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: tuple[timedelta, timedelta],
    *,
    usage: x509.ObjectIdentifier,
    ca: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=name, issuer_name=issuer.name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


# Tokens.


def tokens(control_plane: ControlPlane, api: Client) -> dict[str, str]:
    """Tokens of service accounts by what is wrong with them; `good` is a good one."""
    key = serialization.load_pem_private_key(control_plane.tokens.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    good = _requested(api)
    head, claims = (json.loads(_decode(part)) for part in good.split(".")[:2])
    own_key = ec.generate_private_key(ec.SECP256R1())
    past = int(time.time()) - 3600
    signature = good.rpartition(".")[2]
    raised = claims | {"sub": "system:admin", "groups": [MASTERS]}
    return {
        "good": good,
        "for another audience": _requested(api, "https://elsewhere"),
        "expired": _signed(key, head, claims | {"iat": past - 60, "nbf": past - 60, "exp": past}),
        "not yet valid": _signed(key, head, claims | {"nbf": past + 2 * 86400, "exp": past + 3 * 86400}),
        "of another issuer": _signed(key, head, claims | {"iss": "https://evil.example"}),
        "of another key": _signed(own_key, head, claims),
        "unsigned": f"{_encode(head | {'alg': 'none'})}.{_encode(claims)}.",
        "with other claims": f"{_encode(head)}.{_encode(raised)}.{signature}",
        "of an account that is none": _signed(key, head, _of_account(claims, "nobody")),
        "made up": "made-up",
        "a name": "system:masters",
    }


def _requested(api: Client, *audiences: str) -> str:
    spec = {"audiences": list(audiences)} if audiences else {}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token: str = api.post(f"{ACCOUNTS}/{ACCOUNT}/token", request)["status"]["token"]
    return token


def _of_account(claims: dict[str, object], name: str) -> dict[str, object]:
    inner = {"namespace": "default", "serviceaccount": {"name": name, "uid": "0"}}
    return claims | {"sub": f"system:serviceaccount:default:{name}", "kubernetes.io": inner}


def _signed(key: ec.EllipticCurvePrivateKey, head: dict[str, object], claims: dict[str, object]) -> str:
    content = f"{_encode(head)}.{_encode(claims)}"
    r, s = decode_dss_signature(key.sign(content.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{content}.{_base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _encode(part: object) -> str:
    return _base64url(json.dumps(part).encode())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def credentials(made: dict[str, str]) -> tuple[Credential, ...]:
    """The tokens in every way of sending them."""
    good, bad = made["good"], [(label, token) for label, token in made.items() if label != "good"]
    protocol = f"base64url.bearer.authorization.k8s.io.{_base64url(good.encode())}"
    forged = f"base64url.bearer.authorization.k8s.io.{_base64url(made['of another key'].encode())}"
    return (
        Credential("none"),
        Credential("good", (("Authorization", f"Bearer {good}"),), ACCOUNT_USER),
        Credential("good, in small letters", (("authorization", f"bearer {good}"),), ACCOUNT_USER),
        Credential("good, two blanks", (("Authorization", f"Bearer  {good}"),)),
        Credential("good, no scheme", (("Authorization", good),)),
        Credential("good, as a password", (("Authorization", f"Basic {good}"),)),
        Credential("basic", (("Authorization", "Basic YWRtaW46YWRtaW4="),)),
        Credential("empty", (("Authorization", ""),)),
        Credential("no token", (("Authorization", "Bearer "),)),
        Credential("negotiate", (("Authorization", "Negotiate YIIB"),)),
        Credential("bad, then good", (*_bearer("made-up"), *_bearer(good)), objectionable=True),
        Credential("good, in another header", (("Proxy-Authorization", f"Bearer {good}"),)),
        Credential("good, as a cookie", (("Cookie", f"token={good}"),)),
        *(Credential(label, _bearer(token), objectionable=True) for label, token in bad),
        Credential("sub-protocol", _websocket(f"{protocol}, v4.channel.k8s.io"), ACCOUNT_USER),
        Credential("sub-protocol alone", _websocket(protocol), objectionable=True),
        Credential("sub-protocol twice", _websocket(f"{protocol}, {protocol}, a"), objectionable=True),
        Credential("sub-protocol, forged", _websocket(f"{forged}, a"), objectionable=True),
        Credential("sub-protocol, not base64", _websocket(f"{protocol[:45]}!!!!, a"), objectionable=True),
        Credential("sub-protocol without a WebSocket", (("Sec-WebSocket-Protocol", f"{protocol}, a"),)),
    )


def _bearer(token: str) -> tuple[Header, ...]:
    return (("Authorization", f"Bearer {token}"),)


def _websocket(protocols: str) -> tuple[Header, ...]:
    return (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", protocols),
    )


# Attempts.

USERS: Final = ("admin", "system:admin", "jane", "kubernetes-admin", ANONYMOUS, "system:kube-aggregator", "", "a b")
GROUPS: Final = (MASTERS, READERS, "system:authenticated", "SYSTEM:MASTERS", f"{READERS},{MASTERS}", "")
OTHERS: Final[tuple[Header, ...]] = (
    ("X-Remote-Uid", "0"),
    ("X-Remote-Extra-Scopes", MASTERS),
    ("X-Remote-Extra-authentication.kubernetes.io%2fpod-name", "p"),
    ("X-Remote-Extra-%zz", "p"),
    ("X_Remote_User", "admin"),
    ("X-Remote-User-Name", "admin"),
    ("X-Remote-Groups", MASTERS),
    ("X-Forwarded-User", "admin"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Forwarded-Client-Cert", 'Subject="CN=front-proxy-client"'),
    ("X-SSL-Client-Verify", "SUCCESS"),
    ("X-Original-URL", "/livez"),
    ("X-HTTP-Method-Override", "OPTIONS"),
    ("Origin", "https://evil.example"),
)
IMPERSONATING: Final[tuple[Header, ...]] = (
    ("Impersonate-User", "admin"),
    ("impersonate-user", "admin"),
    ("IMPERSONATE-GROUP", MASTERS),
    ("Impersonate-Uid", "0"),
    ("Impersonate-Extra-scopes", MASTERS),
)
SPELLINGS: Final = (str, str.lower, str.upper, str.swapcase)


def make_attempt(rng: random.Random, certificates: Sequence[Certificate], credentials: Sequence[Credential]) -> Attempt:
    """One attempt: any certificate, any token, any headers in any spelling and order."""
    headers = [(rng.choice(SPELLINGS)("X-Remote-User"), rng.choice(USERS)) for _ in range(rng.choice([0, 1, 1, 2]))]
    headers += [(rng.choice(SPELLINGS)("X-Remote-Group"), rng.choice(GROUPS)) for _ in range(rng.choice([0, 1, 1, 3]))]
    headers += rng.sample(OTHERS, rng.choice([0, 1, 3]))
    impersonates = rng.random() < 0.1
    if impersonates:
        headers.append(rng.choice(IMPERSONATING))
    rng.shuffle(headers)
    return Attempt(rng.choice(certificates), rng.choice(credentials), tuple(headers), impersonates)
