"""TLS contexts from Kafka's `ssl.*` keys, for the server's and the client's side of a connection."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509

from ottla.credentials.ciphers import cipher_list
from ottla.credentials.errors import CredentialsError
from ottla.credentials.secret import Secret
from ottla.credentials.stores import Identity, StoreSource, load_anchors, load_identity, pem_of

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The `ssl.*` keys of one listener, or of one client."""

    keystore: StoreSource | None
    truststore: StoreSource | None
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    verify_host_name: bool = True
    """`ssl.endpoint.identification.algorithm` is https, for connections that this side opens."""

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> TlsConfig:
        """From the text of each key, without a listener's prefix."""
        protocols = _listed(keys.get("ssl.enabled.protocols")) or ("TLSv1.2", "TLSv1.3")
        for protocol in protocols:
            if protocol not in _VERSIONS:
                raise CredentialsError(
                    f"ssl.enabled.protocols={','.join(protocols)}: {protocol} is not supported; "
                    f"expected {' and '.join(_VERSIONS)}"
                )
        client_auth = (keys.get("ssl.client.auth") or "none").lower()
        if client_auth not in _CLIENT_AUTH:
            raise CredentialsError(f"ssl.client.auth={client_auth}: expected {', '.join(_CLIENT_AUTH)}")
        algorithm = keys.get("ssl.endpoint.identification.algorithm")
        return cls(
            keystore=_keystore(keys),
            truststore=_truststore(keys),
            enabled_protocols=protocols,
            cipher_suites=_listed(keys.get("ssl.cipher.suites")),
            client_auth=client_auth,
            verify_host_name=algorithm is None or algorithm.strip().lower() == "https",
        )


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _secret(keys: Mapping[str, str], name: str) -> Secret | None:
    text = keys.get(name)
    return None if text is None else Secret(text)


def _keystore(keys: Mapping[str, str]) -> StoreSource | None:
    if not keys.get("ssl.keystore.location") and not keys.get("ssl.keystore.key"):
        return None
    return StoreSource(
        type=keys.get("ssl.keystore.type") or "JKS",
        location=keys.get("ssl.keystore.location"),
        password=_secret(keys, "ssl.keystore.password"),
        key_password=_secret(keys, "ssl.key.password"),
        key=_secret(keys, "ssl.keystore.key"),
        certificates=_secret(keys, "ssl.keystore.certificate.chain"),
    )


def _truststore(keys: Mapping[str, str]) -> StoreSource | None:
    if not keys.get("ssl.truststore.location") and not keys.get("ssl.truststore.certificates"):
        return None
    return StoreSource(
        type=keys.get("ssl.truststore.type") or "JKS",
        location=keys.get("ssl.truststore.location"),
        password=_secret(keys, "ssl.truststore.password"),
        certificates=keys.get("ssl.truststore.certificates"),
    )


@dataclass(frozen=True, slots=True)
class Stores:
    """What the key store and the trust store of a configuration hold."""

    identity: Identity | None
    anchors: tuple[x509.Certificate, ...] | None
    """None without a trust store."""


def load_stores(config: TlsConfig, now: datetime) -> Stores:
    """Read both stores. Raises CredentialsError."""
    return Stores(
        None if config.keystore is None else load_identity(config.keystore, now),
        None if config.truststore is None else tuple(load_anchors(config.truststore)),
    )


def server_context_of(config: TlsConfig, stores: Stores) -> ssl.SSLContext:
    """A listener's context."""
    if stores.identity is None:
        raise CredentialsError("a listener with TLS needs ssl.keystore.location or ssl.keystore.key")
    context = _context(ssl.PROTOCOL_TLS_SERVER, config)
    _use(context, stores.identity)
    context.verify_mode = _CLIENT_AUTH[config.client_auth]
    if config.client_auth != "none":
        if stores.anchors is None:
            raise CredentialsError(f"ssl.client.auth={config.client_auth} needs ssl.truststore.location")
        context.load_verify_locations(cadata=pem_of(stores.anchors))
    # A session that one listener gave out must not open another one.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def client_context_of(config: TlsConfig, stores: Stores) -> ssl.SSLContext:
    """The context of a connection that this side opens: verifies the broker, shows a certificate if it has one."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, config)
    context.check_hostname = config.verify_host_name
    if stores.anchors is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=pem_of(stores.anchors))
    if stores.identity is not None:
        _use(context, stores.identity)
    return context


def server_context(config: TlsConfig, now: datetime) -> tuple[ssl.SSLContext, Identity]:
    """A listener's context from the stores of its configuration, and the identity that it shows."""
    stores = load_stores(config, now)
    context = server_context_of(config, stores)
    assert stores.identity is not None
    return context, stores.identity


def client_context(config: TlsConfig, now: datetime) -> ssl.SSLContext:
    """A client's context from the stores of its configuration."""
    return client_context_of(config, load_stores(config, now))


def _context(side: int, config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    versions = sorted(_VERSIONS[protocol] for protocol in config.enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if versions[0] is ssl.TLSVersion.TLSv1_2:
        ciphers = cipher_list(list(config.cipher_suites), tls13=versions[-1] is ssl.TLSVersion.TLSv1_3)
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise CredentialsError(f"ssl.cipher.suites: OpenSSL has none of {ciphers}") from None
    elif config.cipher_suites:
        cipher_list(list(config.cipher_suites), tls13=True)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # Java takes every certificate of a trust store for an anchor, and does not ask for key identifiers.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _use(context: ssl.SSLContext, identity: Identity) -> None:
    """Give OpenSSL the key by a file that is only in memory: it takes paths alone."""
    pem = identity.pem()
    if sys.platform == "linux":
        descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp()
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
        os.close(descriptor)
