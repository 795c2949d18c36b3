"""The certificates, keys and kubeconfigs of a test cluster."""

import base64
import hashlib
import ipaddress
import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=30)
BACKDATED = timedelta(hours=1)
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (or public key) and its private key, as PEM files."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """A certificate authority that writes what it signs to PEM files in one directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._clients: dict[str, KeyPair] = {}
        self._issuing = threading.Lock()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key.public_key(), signs_certificates=True)
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    @property
    def signing_key(self) -> ec.EllipticCurvePrivateKey:
        """What it signs with, for certificates that it would not issue."""
        return self._key

    def serving(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """Issue a serving certificate for these host names and IP addresses."""
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(name, subject, SERVER, alternatives)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate: its common name is the user, its organizations are the groups.

        It is issued when first asked for: another thread may be reading the files of the same user.
        """
        with self._issuing:
            stem = file_name(user, groups)
            if stem not in self._clients:
                self._clients[stem] = self._client(stem, user, groups)
            return self._clients[stem]

    def _client(self, stem: str, user: str, groups: Sequence[str]) -> KeyPair:
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        return self._issue(stem, subject, CLIENT)

    def _issue(
        self, stem: str, subject: x509.Name, usage: x509.ObjectIdentifier, *extensions: x509.ExtensionType
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key(), signs_certificates=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        pair = KeyPair(self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        pair.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_private_key(pair.key, key)
        return pair

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, *, signs_certificates: bool
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        path_length = 0 if signs_certificates else None
        issuer_key = self._key.public_key()
        return (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=signs_certificates, path_length=path_length), critical=True)
            .add_extension(_key_usage(signs_certificates=signs_certificates), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
        )


def write_signing_keys(directory: Path, name: str) -> KeyPair:
    """Make a bare key pair to sign service account tokens with; its `certificate` is only the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(directory / f"{name}.pub", directory / f"{name}.key")
    encoding, kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    pair.certificate.write_bytes(key.public_key().public_bytes(encoding, kind))
    _write_private_key(pair.key, key)
    return pair


def write_kubeconfig(path: Path, *, server: str, authority: Path, client: KeyPair) -> None:
    """Write a kubeconfig with everything embedded, so that the file can be carried elsewhere on this machine.

    It is JSON, which is YAML too.
    """
    user = {"client-certificate-data": _base64(client.certificate), "client-key-data": _base64(client.key)}
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    _write_private(path, json.dumps(config, indent=2).encode())


def file_name(user: str, groups: Sequence[str] = ()) -> str:
    """A file name for what belongs to one user in these groups; another user or other groups give another name."""
    digest = hashlib.sha256(json.dumps([user, *groups]).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', user)}-{digest}"


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write_private(path, key.private_bytes(encoding, kind, serialization.NoEncryption()))


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
