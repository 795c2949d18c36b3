"""Which client certificates pass, whom they name, and the certificate we make for ourselves."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiserver.serving.certificates import (
    UID_OID,
    CertificateError,
    CertificateVerifier,
    ServingContext,
    common_name,
    pair_from_files,
    parse_bundle,
    self_signed,
    user_of,
)
from apiserver.serving.users import CREDENTIAL_ID_KEY, User

NOW = datetime.now(UTC).replace(microsecond=0)
CLIENT_AUTH = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVER_AUTH = (ExtendedKeyUsageOID.SERVER_AUTH,)
ANY_USAGE = (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
Extension = tuple[x509.ExtensionType, bool]

AUTHORITY: Extension = (x509.BasicConstraints(ca=True, path_length=None), True)


def key_usage(*, certificates: bool) -> Extension:
    """Return a key usage that allows signing certificates, or only signing."""
    return (
        x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=certificates,
            crl_sign=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        ),
        True,
    )


def subject(name: str | None, organizations: Sequence[str] = (), uids: Sequence[str] = ()) -> x509.Name:
    """Return a distinguished name as client certificates of Kubernetes have them."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            *([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name is not None else []),
            *(x509.NameAttribute(UID_OID, uid) for uid in uids),
        ]
    )


class Issued:
    """A certificate with its key, signed by an issuer or by itself, that can sign others."""

    def __init__(
        self,
        name: str | x509.Name,
        *,
        issuer: "Issued | None" = None,
        extensions: Sequence[Extension] = (),
        age: timedelta = timedelta(hours=1),
        lifetime: timedelta = timedelta(days=1),
        key: Key | None = None,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        own_name = name if isinstance(name, x509.Name) else subject(name)
        builder = (
            x509.CertificateBuilder()
            .subject_name(own_name)
            .issuer_name(issuer.certificate.subject if issuer else own_name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - age)
            .not_valid_after(NOW - age + lifetime)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        self.certificate: x509.Certificate = builder.sign(issuer.key if issuer else self.key, hashes.SHA256())

    @property
    def der(self) -> bytes:
        """The certificate as DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> str:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        """The key as PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def verifier(self) -> CertificateVerifier:
        """What trusts this certificate as an authority."""
        return CertificateVerifier(self.pem)


def authority(name: str, *extensions: Extension, issuer: Issued | None = None) -> Issued:
    """Return an authority that has no extension but CA:TRUE and those given."""
    return Issued(name, issuer=issuer, extensions=(AUTHORITY, *extensions))


def client(
    issuer: Issued,
    name: str | x509.Name,
    *,
    usages: Sequence[x509.ObjectIdentifier] = CLIENT_AUTH,
    critical: bool = False,
    age: timedelta = timedelta(hours=1),
    lifetime: timedelta = timedelta(days=1),
) -> Issued:
    """Return a client certificate without a subject alternative name, as kubeadm makes it."""
    extensions = [(x509.ExtendedKeyUsage(usages), critical)] if usages else []
    return Issued(name, issuer=issuer, extensions=extensions, age=age, lifetime=lifetime)


CA = authority("kubernetes")


# --- Bundles ----------------------------------------------------------------------------------------------------------


def test_bundle_in_order() -> None:
    """A bundle holds several authorities, with any text around them."""
    other = authority("other")
    bundle = f"# first\n{CA.pem}\n# second\n{other.pem}trailer"
    assert parse_bundle(bundle) == (CA.certificate, other.certificate)
    assert CertificateVerifier(bundle.encode()).authorities == parse_bundle(bundle)


@pytest.mark.parametrize(
    ("bundle", "named"),
    [
        pytest.param("", "no PEM certificate", id="an empty bundle"),
        pytest.param("kubernetes", "no PEM certificate", id="no PEM at all"),
        pytest.param(CA.key_pem, "no PEM certificate", id="a key is no certificate"),
        pytest.param(CA.pem.replace("MII", "AAA", 1), "certificate 1 of 1", id="the only one is broken"),
        pytest.param(
            CA.pem + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + CA.pem,
            "certificate 2 of 3",
            id="the second of three is broken",
        ),
    ],
)
def test_bad_bundle(bundle: str, named: str) -> None:
    """A bundle with a bad certificate is refused as a whole, and the bad one is named."""
    with pytest.raises(CertificateError, match=named):
        CertificateVerifier(bundle)


# --- Verifying --------------------------------------------------------------------------------------------------------

KUBEADM = Issued(
    "front-proxy-ca",
    key=rsa.generate_private_key(public_exponent=65537, key_size=2048),
    extensions=[
        AUTHORITY,
        key_usage(certificates=True),
        (x509.SubjectAlternativeName([x509.DNSName("front-proxy-ca")]), False),
    ],
)
WITH_KEY_ID = authority("with-key-id", (x509.SubjectKeyIdentifier.from_public_key(CA.key.public_key()), False))
CLIENTS_ONLY = authority("clients-only", (x509.ExtendedKeyUsage(CLIENT_AUTH), False))
SERVERS_ONLY = authority("servers-only", (x509.ExtendedKeyUsage(SERVER_AUTH), False))
SIGNS_NO_CERTIFICATES = authority("signs-no-certificates", key_usage(certificates=False))
PLAIN = Issued("plain")
NO_AUTHORITY = Issued("no-authority", extensions=[(x509.BasicConstraints(ca=False, path_length=None), True)])
LENIENT = Issued("lenient", extensions=[(x509.BasicConstraints(ca=True, path_length=None), False)])
EXPIRED = Issued("expired", extensions=[AUTHORITY], age=timedelta(days=3))


@pytest.mark.parametrize(
    ("issuer", "leaf"),
    [
        pytest.param(KUBEADM, client(KUBEADM, "front-proxy-client"), id="the front proxy of kubeadm"),
        pytest.param(CA, client(CA, "jane"), id="an authority without key usage and key identifiers"),
        pytest.param(WITH_KEY_ID, client(WITH_KEY_ID, "jane"), id="an authority with a key identifier the leaf lacks"),
        pytest.param(LENIENT, client(LENIENT, "jane"), id="CA:TRUE that is not critical"),
        pytest.param(CLIENTS_ONLY, client(CLIENTS_ONLY, "jane"), id="an authority for clients only"),
        pytest.param(CA, client(CA, "jane", usages=()), id="no extended key usage is any"),
        pytest.param(CA, client(CA, "jane", usages=ANY_USAGE), id="any extended key usage, by name"),
        pytest.param(CA, client(CA, "jane", usages=SERVER_AUTH + CLIENT_AUTH), id="clientAuth among others"),
        pytest.param(CA, client(CA, "jane", critical=True), id="a critical extended key usage"),
        pytest.param(
            CA, Issued("ca", issuer=CA, extensions=[AUTHORITY]), id="an authority's certificate as a client's"
        ),
        pytest.param(PLAIN, PLAIN, id="a certificate that is itself in the bundle"),
    ],
)
def test_verifies(issuer: Issued, leaf: Issued) -> None:
    """Certificates pass that Go lets pass, though the web's rules would not."""
    assert issuer.verifier.verify(leaf.der, at=NOW) == leaf.certificate


IMPOSTOR = authority("kubernetes")


@pytest.mark.parametrize(
    ("issuer", "leaf"),
    [
        pytest.param(CA, client(authority("other"), "jane"), id="another authority"),
        pytest.param(CA, client(IMPOSTOR, "jane"), id="another authority of the same name"),
        pytest.param(CA, Issued("jane"), id="signed by itself"),
        pytest.param(CA, client(CA, "jane", usages=SERVER_AUTH), id="for servers only"),
        pytest.param(CA, client(CA, "jane", age=timedelta(days=2)), id="expired"),
        pytest.param(CA, client(CA, "jane", age=timedelta(hours=-1)), id="not yet valid"),
        pytest.param(EXPIRED, client(EXPIRED, "jane"), id="the authority expired"),
        pytest.param(SERVERS_ONLY, client(SERVERS_ONLY, "jane"), id="the authority is for servers only"),
        pytest.param(SIGNS_NO_CERTIFICATES, client(SIGNS_NO_CERTIFICATES, "jane"), id="the authority may not sign"),
        pytest.param(PLAIN, client(PLAIN, "jane"), id="the issuer has no CA:TRUE"),
        pytest.param(NO_AUTHORITY, client(NO_AUTHORITY, "jane"), id="the issuer says CA:FALSE"),
    ],
)
def test_refuses(issuer: Issued, leaf: Issued) -> None:
    """Signature, path, validity and use are all enforced."""
    with pytest.raises(CertificateError):
        issuer.verifier.verify(leaf.der, at=NOW)


def test_garbage_is_refused() -> None:
    """What is no certificate is refused like a bad one."""
    with pytest.raises(CertificateError):
        CA.verifier.verify(b"garbage", at=NOW)


def test_any_authority_of_the_bundle_will_do() -> None:
    """While an authority is being replaced, certificates of the old and of the new one pass."""
    successor = authority("kubernetes")
    verifier = CertificateVerifier(CA.pem + successor.pem)
    for issuer in (CA, successor):
        leaf = client(issuer, "jane")
        assert verifier.verify(leaf.der, at=NOW) == leaf.certificate


def test_intermediates() -> None:
    """A path may lead over certificates the client sent, which are themselves not trusted."""
    middle = authority("middle", issuer=CA)
    leaf = client(middle, "jane")
    assert CA.verifier.verify(leaf.der, [middle.der], at=NOW) == leaf.certificate
    with pytest.raises(CertificateError):
        CA.verifier.verify(leaf.der, at=NOW)
    with pytest.raises(CertificateError):
        CA.verifier.verify(leaf.der, [authority("middle").der], at=NOW)


def test_path_length() -> None:
    """An authority that may sign no other authorities does not vouch for what those sign."""
    root = Issued("root", extensions=[(x509.BasicConstraints(ca=True, path_length=0), True)])
    middle = authority("middle", issuer=root)
    with pytest.raises(CertificateError):
        root.verifier.verify(client(middle, "jane").der, [middle.der], at=NOW)


def test_expiry_is_not_outlived_by_memory() -> None:
    """A leaf that was valid a moment ago, and remembered as such, is refused once it expired."""
    verifier, leaf = CA.verifier, client(CA, "jane", lifetime=timedelta(hours=1, seconds=5))
    end = leaf.certificate.not_valid_after_utc
    assert verifier.verify(leaf.der, at=end - timedelta(seconds=3)) == leaf.certificate
    assert verifier.verify(leaf.der, at=end) == leaf.certificate
    with pytest.raises(CertificateError):
        verifier.verify(leaf.der, at=end + timedelta(seconds=1))


def test_refusal_is_not_remembered_for_long() -> None:
    """A certificate that was not valid yet passes when it is."""
    verifier, leaf = CA.verifier, client(CA, "jane", age=timedelta(seconds=-30))
    with pytest.raises(CertificateError):
        verifier.verify(leaf.der, at=NOW)
    assert verifier.verify(leaf.der, at=NOW + timedelta(seconds=31)) == leaf.certificate


def test_memory_is_bounded() -> None:
    """However many certificates are shown, the good one keeps passing and the bad ones keep failing."""
    verifier, leaf = CA.verifier, client(CA, "jane")
    for number in range(600):
        with pytest.raises(CertificateError):
            verifier.verify(b"%d" % number, at=NOW)
        assert verifier.verify(leaf.der, at=NOW) == leaf.certificate


# --- Whom a certificate names -----------------------------------------------------------------------------------------


def credential(issued: Issued) -> dict[str, tuple[str, ...]]:
    """Return the extra that every certificate's user has."""
    return {CREDENTIAL_ID_KEY: (f"X509SHA256={issued.certificate.fingerprint(hashes.SHA256()).hex()}",)}


@pytest.mark.parametrize(
    ("name", "user"),
    [
        pytest.param(subject("jane"), User("jane"), id="a name"),
        pytest.param(
            subject("jane", ["dev", "system:masters"]),
            User("jane", groups=("dev", "system:masters")),
            id="organizations are groups, in their order",
        ),
        pytest.param(subject("jane", uids=["7"]), User("jane", uid="7"), id="a UID"),
        pytest.param(
            x509.Name([*subject("first"), *subject("last")]), User("last"), id="of several common names the last"
        ),
    ],
)
def test_user(name: x509.Name, user: User) -> None:
    """The subject names the user."""
    leaf = client(CA, name)
    assert user_of(leaf.certificate) == User(user.name, user.uid, user.groups, credential(leaf))


def test_no_common_name_is_no_user() -> None:
    """A certificate without a common name names nobody."""
    leaf = client(CA, subject(None, ["dev"]))
    assert common_name(leaf.certificate) == ""
    assert user_of(leaf.certificate) is None


def test_several_uids() -> None:
    """A subject with two UIDs is refused rather than guessed at."""
    with pytest.raises(CertificateError):
        user_of(client(CA, subject("jane", uids=["7", "8"])).certificate)


# --- Serving ----------------------------------------------------------------------------------------------------------


def test_self_signed() -> None:
    """The certificate we make names what it was asked to, serves only, and ends within a year."""
    pem, key = self_signed(["catalog.gpu.svc", "localhost"], ["127.0.0.1", "::1"])
    (certificate,) = parse_bundle(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == ["catalog.gpu.svc", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1"), ip_address("::1")]
    assert tuple(usages) == SERVER_AUTH
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc <= NOW + timedelta(days=366)
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP256R1)
    assert private.public_key() == certificate.public_key()


def test_context_needs_a_pair() -> None:
    """A certificate with another's key cannot be served."""
    certificate, _ = self_signed(["localhost"])
    _, key = self_signed(["localhost"])
    with pytest.raises(CertificateError):
        ServingContext(lambda: (certificate, key))


def test_context_needs_files(tmp_path: Path) -> None:
    """Files that are not there are an error of the certificate, not of the program."""
    with pytest.raises(CertificateError):
        ServingContext(pair_from_files(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_encrypted_key_is_refused() -> None:
    """A key under a password is an error; nobody is asked for the password."""
    certificate, key = self_signed(["localhost"])
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(CertificateError):
        ServingContext(lambda: (certificate, encrypted))


def test_context_settings() -> None:
    """A client certificate is asked for only once an authority is trusted."""
    pair = self_signed(["localhost"])
    context = ServingContext(lambda: pair)
    assert context.ssl_context.current.verify_mode is ssl.CERT_NONE
    context.trust([CA.verifier, IMPOSTOR.verifier])
    trusting = context.ssl_context.current
    assert trusting.verify_mode is ssl.CERT_OPTIONAL
    assert trusting.minimum_version is ssl.TLSVersion.TLSv1_2
    assert set(trusting.get_ca_certs(binary_form=True)) == {CA.der, IMPOSTOR.der}
    context.trust([IMPOSTOR.verifier, CA.verifier, CA.verifier])
    assert context.ssl_context.current is trusting
    context.trust([])
    assert context.ssl_context.current.verify_mode is ssl.CERT_NONE
