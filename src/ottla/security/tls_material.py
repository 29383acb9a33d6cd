"""The keys and certificates of one TLS listener, or of connections to one: loaded, checked, replaced while in use.

Connections take `TlsEndpoint.context` when they open, so those that are open keep what they have.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.config.errors import ConfigError
from ottla.credentials.contexts import Stores, TlsConfig, client_context_of, load_stores, server_context_of
from ottla.credentials.errors import CredentialsError
from ottla.credentials.names import distinguished_name
from ottla.credentials.stores import Identity

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_CHEAP_RSA_BITS: Final = 2048

Stamp = tuple[tuple[str, int, int, int], ...]
"""What tells one version of the files of a listener from another: path, time, size and inode of each."""


def listener_keys(config: BrokerConfig, name: str) -> dict[str, str]:
    """The text of each key that is in force for a listener: its own `listener.name.<name>.` keys come first."""
    given = {**config.static, **config.dynamic_default, **config.dynamic}
    prefix = f"listener.name.{name.lower()}."
    own = {key.removeprefix(prefix): text for key, text in given.items() if key.startswith(prefix)}
    return {**{key: text for key, text in given.items() if not key.startswith("listener.name.")}, **own}


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """A context, and what it was made of."""

    config: TlsConfig
    stores: Stores
    context: ssl.SSLContext
    stamp: Stamp

    @property
    def identity(self) -> Identity | None:
        """None for a client without a certificate."""
        return self.stores.identity

    def differs(self, other: TlsMaterial) -> bool:
        """Whether connections show or trust other certificates."""
        own, others = self.identity, other.identity
        chain, other_chain = own and own.chain, others and others.chain
        return chain != other_chain or self.stores.anchors != other.stores.anchors

    @property
    def slow_handshakes(self) -> bool:
        """Signing with the key takes so long that it must not be done on the event loop."""
        key = None if self.identity is None else self.identity.key
        return isinstance(key, rsa.RSAPrivateKey) and key.key_size > _CHEAP_RSA_BITS


class TlsEndpoint:
    """One listener's TLS, or that of the connections that this node opens to listeners of one name."""

    __slots__ = ("listener", "material", "sasl", "server_side")

    def __init__(self, config: BrokerConfig, listener: str, *, server_side: bool, sasl: bool) -> None:
        """Raises ConfigError if the stores cannot be used. `sasl`: the listener is SASL_SSL."""
        self.listener = listener
        self.server_side = server_side
        self.sasl = sasl
        self.material = self.load(config)

    @property
    def context(self) -> ssl.SSLContext:
        return self.material.context

    @property
    def what(self) -> str:
        """For messages."""
        return f"listener {self.listener}" if self.server_side else f"connections to listener {self.listener}"

    def load(self, config: BrokerConfig) -> TlsMaterial:
        """What the configuration names now, without using it. Reads files: not for the event loop."""
        try:
            tls = self._tls_config(config)
            stamp = stamp_of(tls)
            stores = load_stores(tls, datetime.now(UTC))
            context = server_context_of(tls, stores) if self.server_side else client_context_of(tls, stores)
        except ValueError as error:
            what = f"{self.what[0].upper()}{self.what[1:]}"
            raise ConfigError(f"{what} cannot use TLS: {error}") from None
        return TlsMaterial(tls, stores, context, stamp)

    def _tls_config(self, config: BrokerConfig) -> TlsConfig:
        keys = listener_keys(config, self.listener)
        if self.server_side and self.sasl:
            # As in Kafka (KIP-684), only the listener's own key asks clients of SASL_SSL for certificates.
            own = f"listener.name.{self.listener.lower()}.ssl.client.auth"
            keys["ssl.client.auth"] = {**config.static, **config.dynamic}.get(own) or "none"
        return TlsConfig.of(keys)

    def check_successor(self, new: TlsMaterial, config: BrokerConfig) -> None:
        """Refuse a change that Kafka refuses for a listener in use. Raises ConfigError."""
        keys = listener_keys(config, self.listener)
        try:
            _check_presence(self.material.config, new.config)
            if self.material.identity is not None and new.identity is not None:
                _check_names(self.material.identity, new.identity, keys)
            if self.server_side and self.listener == config.inter_broker_listener_name:
                check_handshakes(self.material, new)
        except CredentialsError as error:
            raise ConfigError(f"The key store of {self.what} cannot be changed: {error}") from None


def stamp_of(config: TlsConfig) -> Stamp:
    """The versions of the files that a configuration names; a missing file has one too."""
    found = []
    for store in (config.keystore, config.truststore):
        if store is not None and store.location is not None:
            try:
                status = os.stat(store.location)
            except OSError:
                found.append((store.location, 0, -1, 0))
            else:
                found.append((store.location, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _check_presence(old: TlsConfig, new: TlsConfig) -> None:
    for name, before, after in (
        ("key store", old.keystore, new.keystore),
        ("trust store", old.truststore, new.truststore),
    ):
        if before is None and after is not None:
            raise CredentialsError(
                f"a {name} cannot be added to a listener that runs without one; restart the node"
            )
        if before is not None and after is None:
            raise CredentialsError(f"the {name} cannot be taken from a listener that runs; restart the node")


def _check_names(old: Identity, new: Identity, keys: Mapping[str, str]) -> None:
    before, after = old.certificate, new.certificate
    if before.subject != after.subject and not _is_true(keys.get("ssl.allow.dn.changes")):
        raise CredentialsError(
            f"its subject changes from {distinguished_name(before.subject)} to {distinguished_name(after.subject)}; "
            "set ssl.allow.dn.changes=true to allow that"
        )
    missing = _alternative_names(before) - _alternative_names(after)
    if missing and not _is_true(keys.get("ssl.allow.san.changes")):
        names = ", ".join(sorted(str(getattr(name, "value", name)) for name in missing))
        raise CredentialsError(
            f"the new certificate lacks the subject alternative names {names}; "
            "set ssl.allow.san.changes=true to allow that"
        )


def _alternative_names(certificate: x509.Certificate) -> frozenset[x509.GeneralName]:
    try:
        return frozenset(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return frozenset()


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"


def check_handshakes(old: TlsMaterial, new: TlsMaterial) -> None:
    """Nodes with the old stores and nodes with the new ones must be able to connect to each other, both ways."""
    if old.stores.anchors is None or new.stores.anchors is None:
        return
    for client, server, which in (
        (new, new, "a node with the new stores does not trust itself"),
        (old, new, "nodes with the old stores cannot connect to this one"),
        (new, old, "this node cannot connect to nodes with the old stores"),
    ):
        client_side = client_context_of(replace(client.config, verify_host_name=False), client.stores)
        server_side = server_context_of(server.config, server.stores)
        try:
            shake_hands(client_side, server_side)
        except ssl.SSLError as error:
            raise CredentialsError(f"{which}: {error.reason or error}") from None


def shake_hands(client_side: ssl.SSLContext, server_side: ssl.SSLContext) -> None:
    """A handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(20):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            # In TLS 1.3 the server looks at the client's certificate after the client is done.
            return
    raise ssl.SSLError("the handshake does not end")
