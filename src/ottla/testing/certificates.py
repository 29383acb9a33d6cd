"""Key stores for tests, in Kafka's forms. `credentials.authority` issues what they hold."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from ottla.credentials.authority import CertificateAuthority
from ottla.credentials.stores import Identity

__all__ = ["CertificateAuthority", "write_pem", "write_pkcs12"]


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
