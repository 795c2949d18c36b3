"""Certificates on both sides of the listener: which authority signed a client's, and which one we serve with.

Python's `ssl` verifies a client certificate during the handshake, against the union of all authorities, while Go only
asks for one and verifies it later, against each authority by itself. So nothing may be concluded from a handshake that
passed: `CertificateVerifier` is what decides. What remains of the difference: a certificate that no trusted authority
signed, or whose extended key usage leaves clientAuth out, ends in a TLS alert where a Go server answers 401. An expired
one passes the handshake here as well and gets its 401.

Source: k8s.io/apiserver/pkg/server/dynamiccertificates, pkg/authentication/request/x509 (1.37); crypto/x509 of Go 1.26.
"""

import ipaddress
import os
import re
import ssl
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from apiserver.serving.users import CREDENTIAL_ID_KEY, User

UID_OID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")

_PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_REMEMBERED_OUTCOMES = 256
_REMEMBER_OUTCOME = timedelta(seconds=10)
_VERIFY_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which Python's ssl has no name for
_SELF_SIGNED_LIFETIME = timedelta(days=365)
_CLOCK_SKEW = timedelta(hours=1)


class CertificateError(ValueError):
    """A certificate, a bundle or a serving pair that cannot be used; the message says why."""


# --- Verifying a client's certificate ---------------------------------------------------------------------------------


def parse_bundle(pem: bytes | str) -> tuple[x509.Certificate, ...]:
    """Read the certificates of a PEM bundle in their order; text around them is ignored.

    Raises:
        CertificateError: the bundle holds no certificate, or one that cannot be read (the message says which).
    """
    blocks = _PEM_CERTIFICATE.findall(pem.encode() if isinstance(pem, str) else pem)
    if not blocks:
        raise CertificateError("no PEM certificate found")
    certificates = []
    for position, block in enumerate(blocks, start=1):
        try:
            certificates.append(x509.load_pem_x509_certificate(block))
        except ValueError as error:
            raise CertificateError(f"certificate {position} of {len(blocks)}: {error}") from error
    return tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What verifying one presented chain came to, and the span of time for which that is taken as known."""

    certificate: x509.Certificate | None
    error: str
    since: datetime
    until: datetime


class CertificateVerifier:
    """Decides whether one bundle of authorities vouches for a client certificate, as Go's crypto/x509 would.

    Enforced: signatures, path and path length, name constraints, validity of every certificate in the path, CA:TRUE and
    (when the extension is there) keyCertSign of each authority, and clientAuth or anyExtendedKeyUsage wherever extended
    key usages are listed. Not asked for: a subject alternative name, key identifiers, a key usage, any criticality; the
    front-proxy certificates of kubeadm have none of them. A certificate that is itself in the bundle is trusted as is.

    Narrower than Go: the keys of authorities are RSA of at least 2048 bits or P-256, P-384, P-521 (not Ed25519).

    An outcome is remembered for ten seconds, so that a connection that is used often is verified seldom; an expired
    leaf is never taken for valid.
    """

    def __init__(self, ca_pem: bytes | str) -> None:
        self.authorities = parse_bundle(ca_pem)
        self._policy = (
            PolicyBuilder().store(Store(list(self.authorities))).extension_policies(ca_policy=_CA, ee_policy=_LEAF)
        )
        self._outcomes: OrderedDict[tuple[bytes, tuple[bytes, ...]], _Outcome] = OrderedDict()

    def verify(self, leaf_der: bytes, intermediates: Sequence[bytes] = (), *, at: datetime) -> x509.Certificate:
        """Return the leaf when a path leads from it to one of the authorities at that time (which has a zone).

        Raises:
            CertificateError: no such path, or the leaf cannot be read.
        """
        outcome = self._outcome(leaf_der, intermediates, at)
        if outcome.certificate is None:
            raise CertificateError(outcome.error)
        return outcome.certificate

    def known_until(self, leaf_der: bytes, intermediates: Sequence[bytes] = (), *, at: datetime) -> datetime | None:
        """Until when `verify` will return the leaf without another look; None where it does not return it at all."""
        outcome = self._outcome(leaf_der, intermediates, at)
        return None if outcome.certificate is None else outcome.until

    def _outcome(self, leaf_der: bytes, intermediates: Sequence[bytes], at: datetime) -> _Outcome:
        presented = (leaf_der, tuple(intermediates))
        outcome = self._outcomes.get(presented)
        if outcome is None or not outcome.since <= at <= outcome.until:
            outcome = self._outcomes[presented] = self._examine(*presented, at=at)
            if len(self._outcomes) > _REMEMBERED_OUTCOMES:
                self._outcomes.popitem(last=False)
        self._outcomes.move_to_end(presented)
        return outcome

    def _examine(self, leaf_der: bytes, intermediates: Sequence[bytes], *, at: datetime) -> _Outcome:
        until = at + _REMEMBER_OUTCOME
        try:
            leaf = x509.load_der_x509_certificate(leaf_der)
            chain = [x509.load_der_x509_certificate(der) for der in intermediates]
            self._policy.time(at).build_client_verifier().verify(leaf, chain)
        except (ValueError, VerificationError) as error:
            return _Outcome(None, f"verifying the client certificate failed: {error}", at, until)
        return _Outcome(leaf, "", at, min(until, leaf.not_valid_after_utc))


def _permit_client_authentication(_: Policy, __: x509.Certificate, usages: x509.ExtendedKeyUsage | None) -> None:
    if usages is not None and {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}.isdisjoint(
        usages
    ):
        raise CertificateError("the extended key usage leaves out clientAuth")


def _permit_signing_certificates(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise CertificateError("the key usage of the issuer leaves out keyCertSign")


_LEAF = ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _permit_client_authentication
)
_CA = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)  # that it says CA:TRUE is checked anyway
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _permit_signing_certificates)
    .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _permit_client_authentication)
)


# --- Whom a certificate names -----------------------------------------------------------------------------------------


@lru_cache(maxsize=_REMEMBERED_OUTCOMES)
def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name, the last one if there are several, "" if there is none."""
    names = _subject_strings(certificate, NameOID.COMMON_NAME)
    return names[-1] if names else ""


def user_of(certificate: x509.Certificate) -> User | None:
    """Return the user a verified certificate names: CN, organizations as groups, UID and credential id.

    None without a common name.

    Raises:
        CertificateError: the UID attribute is there but empty, repeated or not a string.

    Source: k8s.io/apiserver/pkg/authentication/request/x509, CommonNameUserConversion (1.37).
    """
    name = common_name(certificate)
    if not name:
        return None
    return User(
        name=name,
        uid=_uid(certificate),
        groups=_subject_strings(certificate, NameOID.ORGANIZATION_NAME),
        extra={CREDENTIAL_ID_KEY: (f"X509SHA256={certificate.fingerprint(hashes.SHA256()).hex()}",)},
    )


def _uid(certificate: x509.Certificate) -> str:
    present = len(certificate.subject.get_attributes_for_oid(UID_OID))
    if not present:
        return ""
    uids = _subject_strings(certificate, UID_OID)
    if present != 1 or uids in {(), ("",)}:
        raise CertificateError("the subject's UID must be one non-empty string")
    return uids[0]


def _subject_strings(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    values = (attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid))
    return tuple(value for value in values if isinstance(value, str))


# --- Serving ----------------------------------------------------------------------------------------------------------


def self_signed(hostnames: Sequence[str], addresses: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Make a serving certificate for these names and addresses, valid for one year, and its P-256 key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self-signed")])
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in hostnames]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _SELF_SIGNED_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pair_from_files(certificate_file: Path, key_file: Path) -> Callable[[], tuple[bytes, bytes]]:
    """Return what reads the serving pair anew from its files each time, for `ServingContext`."""
    return lambda: (certificate_file.read_bytes(), key_file.read_bytes())


class ServingContext:
    """The TLS settings of the listener, replaced as a whole when a pair or an authority changes.

    `ssl_context` goes to the listener once and stays; each new connection takes the settings of the moment, so that
    trust can be withdrawn too, which OpenSSL cannot do in a context that is in use. Open connections keep theirs.

    No client certificate is asked for until an authority is trusted: OpenSSL would refuse whatever it cannot verify.
    The names of the authorities are not sent to the client (Python's ssl cannot); Kubernetes clients send their
    certificate regardless. TLS 1.2 at least, ALPN http/1.1.

    Args:
        read_pair: returns the PEM of the serving certificate (with its chain) and of its key as they are now.

    Raises:
        CertificateError: the pair cannot be read or used.
    """

    def __init__(self, read_pair: Callable[[], tuple[bytes, bytes]]) -> None:
        self._read_pair = read_pair
        self._pair = self._read()
        self._trusted: frozenset[bytes] = frozenset()
        self.ssl_context = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        self.ssl_context.current = _server_context(self._pair, self._trusted)

    def trust(self, verifiers: Iterable[CertificateVerifier]) -> None:
        """Let the certificates of these authorities, and of no others, pass the handshake of new connections.

        Raises:
            CertificateError: OpenSSL does not accept an authority; what was trusted before still is.
        """
        trusted = frozenset(
            authority.public_bytes(serialization.Encoding.DER)
            for verifier in verifiers
            for authority in verifier.authorities
        )
        if trusted != self._trusted:
            self.ssl_context.current = _server_context(self._pair, trusted)
            self._trusted = trusted

    def reload(self) -> CertificateError | None:
        """Serve new connections with the pair as it is now; if it is broken, return why and serve the old one on."""
        try:
            pair = self._read()
            if pair != self._pair:
                self.ssl_context.current = _server_context(pair, self._trusted)
                self._pair = pair
        except CertificateError as error:
            return error
        return None

    def _read(self) -> tuple[bytes, bytes]:
        try:
            return self._read_pair()
        except OSError as error:
            raise CertificateError(f"reading the serving certificate failed: {error}") from error


class _CurrentContext(ssl.SSLContext):
    """Stands for whichever context is current when a connection is accepted; makes no connection of its own."""

    current: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - the base class's signature
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


@dataclass(frozen=True, slots=True)
class Peer:
    """What the other end of a connection showed in the handshake.

    Attributes:
        certificate: the client's, as DER; None without one.
        intermediates: the rest of the chain it sent, as DER. Before Python 3.13 these cannot be had, and a client
            certificate must be signed by a trusted authority.
        was_asked: whether it had the chance to show a certificate. A connection from before any authority was trusted
            can never authenticate by certificate, so it should be closed after its response: the aggregator would
            otherwise pool it and stay anonymous on it.
    """

    certificate: bytes | None
    intermediates: tuple[bytes, ...]
    was_asked: bool


def peer_of(connection: ssl.SSLObject) -> Peer:
    """Return what the client showed. It takes a while, as OpenSSL copies the certificate each time."""
    was_asked = connection.context.verify_mode is not ssl.CERT_NONE
    leaf = connection.getpeercert(binary_form=True)
    if leaf is None or sys.version_info < (3, 13):
        return Peer(leaf, (), was_asked)
    return Peer(leaf, tuple(connection.get_unverified_chain()[1:]), was_asked)


def _server_context(pair: tuple[bytes, bytes], trusted: frozenset[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_TICKET
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE  # as in Go, which prefers AES-128: OpenSSL takes AES-256 first
    context.num_tickets = 0  # a resumed session has lost the client's intermediates; Kubernetes clients resume none
    try:
        with _openable(b"\n".join(pair)) as path:
            context.load_cert_chain(path, password="")  # without one OpenSSL asks the terminal
        if trusted:
            context.load_verify_locations(cadata=b"".join(trusted))
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _VERIFY_NO_CHECK_TIME
    except ssl.SSLError as error:
        raise CertificateError(f"OpenSSL does not accept the certificates: {error}") from error
    return context


@contextmanager
def _openable(content: bytes) -> Iterator[str]:
    """Give bytes a path, as OpenSSL reads keys from files only; on Linux it is in memory, where no disk is needed."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("serving-pair"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "pair.pem")
            path.write_bytes(content)
            yield str(path)
