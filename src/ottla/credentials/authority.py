"""A certificate authority with an EC P-256 key: issues certificates for nodes, users and tests."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.credentials.stores import Identity, pem_of

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


_BOTH_SIDES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""A node is a server to its clients and a client to other nodes."""


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
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
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
        rsa_bits: int | None = None,
        purposes: tuple[x509.ObjectIdentifier, ...] = _BOTH_SIDES,
    ) -> Identity:
        """A key with a certificate for a subject. A negative lifetime gives one that has expired.

        The key is EC P-256, or RSA of this size.
        """
        name = common_name(subject) if isinstance(subject, str) else subject
        key: Key = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits is not None:
            key = rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)
        alternatives = [_general_name(host) for host in hosts]
        alternatives += [x509.UniformResourceIdentifier(uri) for uri in uris]
        authority = self.identity.certificate
        builder = (
            _builder(name, authority.subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                    authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
                ),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        assert isinstance(self.identity.key, ec.EllipticCurvePrivateKey)
        certificate = builder.sign(self.identity.key, hashes.SHA256())
        return Identity(key, (certificate, authority))

    def trust_pem(self) -> str:
        """The authority's certificate: what a PEM trust store holds."""
        return pem_of(self.identity.chain)

    def write_truststore(self, path: Path) -> Path:
        """The authority's certificate as a PEM trust store."""
        path.write_text(self.trust_pem())
        return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, lifetime: timedelta) -> x509.CertificateBuilder:
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
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
