"""Key stores and trust stores in Kafka's three forms (PEM, PKCS12, JKS), read into keys and certificates.

What is read is checked here: a key that does not fit its certificate, an expired certificate and a chain out of
order are refused with the subject and the date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from ottla.credentials.errors import CredentialsError
from ottla.credentials.jks import read_jks, unprotect
from ottla.credentials.names import distinguished_name
from ottla.credentials.secret import Secret

MAX_STORE_BYTES: Final = 16 << 20
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----.+?-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.DOTALL
)
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Where a store is, as the `ssl.keystore.*` or `ssl.truststore.*` keys say."""

    type: str = "JKS"
    location: str | None = None
    password: Secret | None = None
    key_password: Secret | None = None
    """`ssl.key.password`, where it differs from the store's."""
    key: Secret | None = None
    """`ssl.keystore.key`: PEM in the configuration itself."""
    certificates: Secret | str | None = None
    """`ssl.keystore.certificate.chain` or `ssl.truststore.certificates`."""

    @property
    def what(self) -> str:
        """For messages: the file, or where the PEM text stands."""
        return self.location or "the PEM text of the configuration"


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key with its certificate chain, the key's own certificate first."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def subject(self) -> str:
        return distinguished_name(self.certificate.subject)

    def pem(self) -> bytes:
        """Key and chain as OpenSSL loads them. The key is not encrypted: never write this to a disk."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)

    def __repr__(self) -> str:
        return f"Identity({self.subject!r})"


def load_identity(source: StoreSource, now: datetime) -> Identity:
    """The key and chain of a key store, checked. Raises CredentialsError with a sentence for the operator."""
    key, chain = _key_and_chain(source)
    if key is None or not chain:
        raise CredentialsError(f"{source.what} holds no private key with a certificate")
    identity = Identity(key, tuple(chain))
    _check_identity(identity, source.what, now)
    return identity


def load_anchors(source: StoreSource) -> list[x509.Certificate]:
    """The certificates of a trust store: each is an anchor, as in Java, also one that is no authority."""
    _check_source(source, "ssl.truststore")
    if source.certificates is not None:
        found = _pem_certificates(_text(source.certificates).encode(), source.what)
    else:
        data = _read(source, "ssl.truststore.location")
        match source.type.upper():
            case "PEM":
                found = _pem_certificates(data, source.what)
            case "PKCS12":
                found = _pkcs12(data, source)[1]
            case _:
                store = read_jks(data, _reveal(source.password))
                found = [x509.load_der_x509_certificate(der) for der in store.trusted]
                found += [x509.load_der_x509_certificate(der) for key in store.keys for der in key.chain]
    if not found:
        raise CredentialsError(f"the trust store {source.what} holds no certificate")
    return found


def _key_and_chain(source: StoreSource) -> tuple[PrivateKeyTypes | None, list[x509.Certificate]]:
    _check_source(source, "ssl.keystore")
    if source.key is not None:
        if source.certificates is None:
            raise CredentialsError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        key = _pem_key(source.key.reveal().encode(), source)
        return key, _pem_certificates(_text(source.certificates).encode(), source.what)
    data = _read(source, "ssl.keystore.location")
    match source.type.upper():
        case "PEM":
            return _pem_key(data, source), _pem_certificates(data, source.what)
        case "PKCS12":
            return _pkcs12(data, source)
        case _:
            return _jks_identity(data, source)


def _jks_identity(data: bytes, source: StoreSource) -> tuple[PrivateKeyTypes | None, list[x509.Certificate]]:
    if source.password is None:
        raise CredentialsError(f"{source.what} needs ssl.keystore.password")
    store = read_jks(data, source.password.reveal())
    if not store.keys:
        return None, []
    entry = store.keys[0]
    password = source.key_password or source.password
    try:
        key = load_der_private_key(unprotect(entry.protected, password.reveal()), None)
    except ValueError as error:
        raise CredentialsError(f"the private key in {source.what} cannot be read: {error}") from None
    return key, [x509.load_der_x509_certificate(der) for der in entry.chain]


def _check_source(source: StoreSource, prefix: str) -> None:
    kind = source.type.upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise CredentialsError(f"{prefix}.type={source.type}: expected PEM, PKCS12 or JKS")
    inline = source.key is not None or source.certificates is not None
    if inline and (kind != "PEM" or source.location is not None or source.password is not None):
        raise CredentialsError(
            f"{prefix}: PEM text in the configuration needs {prefix}.type=PEM and neither "
            f"{prefix}.location nor {prefix}.password"
        )
    if kind == "PEM" and source.password is not None:
        raise CredentialsError(f"{prefix}.password cannot be set for a PEM file; use ssl.key.password")


def _read(source: StoreSource, key: str) -> bytes:
    if source.location is None:
        raise CredentialsError(f"{key} is not set")
    try:
        path = Path(source.location)
        if path.stat().st_size > MAX_STORE_BYTES:
            raise CredentialsError(
                f"{key}={source.location}: the file is larger than {MAX_STORE_BYTES} bytes"
            )
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{key}={source.location}: {error.strerror or error}") from None


def _pem_certificates(data: bytes, what: str) -> list[x509.Certificate]:
    try:
        return [x509.load_pem_x509_certificate(match.group()) for match in _CERTIFICATE.finditer(data)]
    except ValueError as error:
        raise CredentialsError(f"a certificate in {what} cannot be read: {error}") from None


def _pem_key(data: bytes, source: StoreSource) -> PrivateKeyTypes | None:
    found = _PRIVATE_KEY.search(data)
    if found is None:
        return None
    password = source.key_password
    try:
        return load_pem_private_key(found.group(), None if password is None else password.reveal().encode())
    except TypeError:
        needed = "needs" if password is None else "is not encrypted, but there is"
        raise CredentialsError(f"the private key in {source.what} {needed} an ssl.key.password") from None
    except ValueError:
        raise CredentialsError(
            f"the private key in {source.what} cannot be read: it is damaged, or ssl.key.password is wrong"
        ) from None


def _pkcs12(data: bytes, source: StoreSource) -> tuple[PrivateKeyTypes | None, list[x509.Certificate]]:
    password = source.password
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.reveal().encode())
    except ValueError:
        raise CredentialsError(
            f"{source.what} cannot be read: it is no PKCS12 store, or its password is wrong"
        ) from None
    chain = [] if store.cert is None else [store.cert.certificate]
    chain += [each.certificate for each in store.additional_certs]
    return store.key, chain if store.key is None else _ordered(chain)


def _ordered(chain: list[x509.Certificate]) -> list[x509.Certificate]:
    """PKCS12 keeps no order: the leaf first, then each one's issuer as far as they are there."""
    ordered, rest = chain[:1], chain[1:]
    while rest:
        issuer = next((each for each in rest if each.subject == ordered[-1].issuer), None)
        if issuer is None:
            break
        rest.remove(issuer)
        ordered.append(issuer)
    return ordered


def _check_identity(identity: Identity, what: str, now: datetime) -> None:
    leaf = identity.certificate
    own = identity.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    certified = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if own != certified:
        raise CredentialsError(
            f"the private key in {what} does not belong to the certificate {identity.subject}"
        )
    for each in identity.chain:
        check_dates(each, what, now)
    for each, issuer in zip(identity.chain, identity.chain[1:], strict=False):
        if each.issuer != issuer.subject:
            raise CredentialsError(
                f"the certificate chain in {what} is out of order: {distinguished_name(each.subject)} "
                f"was not issued by {distinguished_name(issuer.subject)}, which follows it"
            )


def check_dates(certificate: x509.Certificate, what: str, now: datetime) -> None:
    """Refuse a certificate that is expired or not valid yet."""
    subject = distinguished_name(certificate.subject)
    if now > certificate.not_valid_after_utc:
        raise CredentialsError(
            f"the certificate {subject} in {what} expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
        )
    if now < certificate.not_valid_before_utc:
        raise CredentialsError(
            f"the certificate {subject} in {what} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} on"
        )


def pem_of(certificates: Sequence[x509.Certificate]) -> str:
    """The certificates as one PEM text."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _reveal(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def _text(value: Secret | str) -> str:
    return value.reveal() if isinstance(value, Secret) else value
