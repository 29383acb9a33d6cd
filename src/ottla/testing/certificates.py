"""A certificate authority for tests: issues certificates and writes them as Kafka's key and trust stores."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import NameOID

from ottla.credentials.stores import Identity, pem_of


def common_name(name: str) -> x509.Name:
    """A subject with one attribute, `CN`."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Signs certificates. `identity` is its own key and certificate."""

    identity: Identity

    @classmethod
    def create(cls, name: str = "Ottla test CA") -> CertificateAuthority:
        """A new authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = common_name(name)
        certificate = (
            _builder(subject, subject, key, timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(Identity(key, (certificate,)))

    def issue(
        self,
        subject: x509.Name | str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        uris: tuple[str, ...] = (),
        lifetime: timedelta = timedelta(days=30),
    ) -> Identity:
        """A key with a certificate for a subject. A negative lifetime gives one that has expired."""
        name = common_name(subject) if isinstance(subject, str) else subject
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_general_name(host) for host in hosts]
        alternatives += [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = _builder(name, self.identity.certificate.subject, key, lifetime)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        assert isinstance(self.identity.key, ec.EllipticCurvePrivateKey)
        certificate = builder.sign(self.identity.key, hashes.SHA256())
        return Identity(key, (certificate, self.identity.certificate))

    def write_truststore(self, path: Path) -> Path:
        """The authority's certificate as a PEM trust store."""
        path.write_text(pem_of(self.identity.chain))
        return path


def write_pem(identity: Identity, path: Path) -> Path:
    """Key and chain in one PEM file, as `ssl.keystore.type=PEM` takes it."""
    path.write_bytes(identity.pem())
    path.chmod(0o600)
    return path


def write_pkcs12(identity: Identity, path: Path, password: str) -> Path:
    """Key and chain as a PKCS12 key store."""
    key = identity.key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"key",
            key,
            identity.certificate,
            list(identity.chain[1:]),
            BestAvailableEncryption(password.encode()),
        )
    )
    return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    start = now - timedelta(days=1) + min(lifetime, timedelta())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(now + lifetime)
    )
