"""How one listener secures its connections: its TLS context, who a certificate stands for, its SASL mechanisms.

Built from `listener.name.<listener>.*` keys over the plain ones, before the node writes anything: stores that cannot
be read and mechanisms that cannot work are refused here, with the key that is wrong.
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, SecurityProtocol
from ottla.config.security_profile import is_strict
from ottla.credentials.errors import CredentialsError
from ottla.credentials.jaas import LoginModule, parse_file, parse_modules
from ottla.credentials.names import distinguished_name
from ottla.credentials.sasl_client import ClientLogin, Login
from ottla.credentials.scram_keys import SCRAM_HASHES
from ottla.credentials.secret import Secret
from ottla.security.mapping import NoMatchingRule, SslPrincipalMapper
from ottla.security.node_identity import certified_nodes
from ottla.security.principal import ANONYMOUS, Principal, user
from ottla.security.profile import STRICT_UNAUTHENTICATED_BYTES
from ottla.security.sasl.exchange import SaslExchange
from ottla.security.sasl.mechanism import NewServer
from ottla.security.sasl.oauthbearer import OAuthBearerServer
from ottla.security.sasl.plain import PlainServer, users_of
from ottla.security.sasl.scram import ScramServer
from ottla.security.tls_material import TlsEndpoint, listener_keys
from ottla.wire.enums import ScramMechanism

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage, ScramCredential
    from ottla.security.sasl.gssapi import KerberosAcceptor
    from ottla.security.sasl.jwt_validation import TokenValidator
    from ottla.security.tokens import TokenCredentials

MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES, "OAUTHBEARER", "GSSAPI")
"""What a SASL listener can offer."""
MAX_SUBJECT_BYTES: Final = 4096

_JAAS_KEY: Final = ".sasl.jaas.config"
_JAAS_FILE_FLAG: Final = "-Djava.security.auth.login.config="


class NotMapped(Exception):
    """A client certificate stands for no principal."""


class ListenerSecurity:
    """One listener's. Raises ConfigError for settings that cannot work."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self._listener = listener
        self.name = listener.name
        self.protocol = listener.protocol
        self._keys = keys = listener_keys(config, listener.name)
        self.fail_delay_s = config.int("connection.failed.authentication.delay.ms") / 1000
        self.max_authentication_bytes = config.int("sasl.server.max.receive.size")
        if is_strict(config):
            self.max_authentication_bytes = min(self.max_authentication_bytes, STRICT_UNAUTHENTICATED_BYTES)
        self.tls: TlsEndpoint | None = None
        self._mapper = SslPrincipalMapper()
        self._probing_key = secrets.token_bytes(32)
        self.mechanisms: tuple[str, ...] = ()
        self._plain_users: dict[str, Secret] = {}
        self._tokens: TokenValidator | None = None
        self._kerberos: KerberosAcceptor | None = None
        if self.uses_tls:
            self._load_tls(config, keys)
        if self.uses_sasl:
            self._load_sasl(keys)

    @property
    def uses_tls(self) -> bool:
        return self.protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    # -- TLS

    def _load_tls(self, config: BrokerConfig, keys: Mapping[str, str]) -> None:
        self.tls = TlsEndpoint(config, self.name, server_side=True, sasl=self.uses_sasl)
        try:
            self._mapper = SslPrincipalMapper(keys.get("ssl.principal.mapping.rules") or "DEFAULT")
        except ValueError as error:
            raise ConfigError(f"Listener {self.name} cannot use TLS: {error}") from None

    def certificate_principal(self, tls: ssl.SSLObject) -> Principal:
        """Who a client is by its certificate; ANONYMOUS without one. Raises NotMapped."""
        der = tls.getpeercert(binary_form=True)
        if der is None:
            return ANONYMOUS
        subject = distinguished_name(x509.load_der_x509_certificate(der).subject)
        if len(subject) > MAX_SUBJECT_BYTES:
            raise NotMapped(f"its certificate has a subject of {len(subject)} characters")
        try:
            return user(self._mapper.name(subject))
        except NoMatchingRule as error:
            raise NotMapped(str(error)) from None

    def certificate_nodes(self, tls: ssl.SSLObject) -> frozenset[int]:
        """The nodes that a client's verified certificate names."""
        names = (tls.getpeercert() or {}).get("subjectAltName", ())
        return certified_nodes(str(each[1]) for each in names if each[0] == "URI")

    # -- SASL

    def _load_sasl(self, keys: Mapping[str, str]) -> None:
        enabled = keys.get("sasl.enabled.mechanisms")
        key = f"listener.name.{self.name.lower()}.sasl.enabled.mechanisms"
        if not enabled:
            raise ConfigError(
                f"Missing configuration {key} or sasl.enabled.mechanisms: expected mechanisms of "
                + ", ".join(MECHANISMS),
                key=key,
            )
        self.mechanisms = tuple(word.strip() for word in enabled.split(",") if word.strip())
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                raise ConfigError.bad_value(key, enabled, "mechanisms of " + ", ".join(MECHANISMS))
        self._load_logins(keys)

    def _load_logins(self, keys: Mapping[str, str]) -> None:
        """What JAAS entries say: users of PLAIN, this node's key for GSSAPI, options of the judge of tokens."""
        users, kerberos, tokens = self._plain_users, self._kerberos, self._tokens
        if "PLAIN" in self.mechanisms:
            users = users_of(login_module(keys, self.name, "PLAIN").options)
        if "GSSAPI" in self.mechanisms:
            kerberos = self._acceptor(keys)
        if "OAUTHBEARER" in self.mechanisms:
            tokens = self._token_validator(keys)
        self._plain_users, self._kerberos, self._tokens = users, kerberos, tokens

    def _token_validator(self, keys: Mapping[str, str]) -> TokenValidator:
        from ottla.security.sasl.jwt_validation import UnsecuredValidator
        from ottla.security.sasl.oauth_settings import token_validator

        options = login_module(keys, self.name, "OAUTHBEARER").options
        if self._tokens is not None:
            before = login_module(self._keys, self.name, "OAUTHBEARER").options
            refuse_other_stores(self.name, before, options)
            if not isinstance(self._tokens, UnsecuredValidator):
                # All else about real tokens is in the keys of the file.
                return self._tokens
        return token_validator(self._listener, keys, options)

    def _acceptor(self, keys: Mapping[str, str]) -> KerberosAcceptor:
        from ottla.security.sasl.gssapi import KerberosAcceptor

        try:
            return KerberosAcceptor(keys, login_module(keys, self.name, "GSSAPI").options)
        except CredentialsError as error:
            raise ConfigError(f"Listener {self.name} cannot use GSSAPI: {error}") from None

    def update(self, config: BrokerConfig) -> None:
        """Use a changed JAAS configuration for new logins. Raises ConfigError, and then nothing has changed."""
        if not self.uses_sasl:
            return
        keys = listener_keys(config, self.name)
        if jaas_texts(keys) != jaas_texts(self._keys):
            self._load_logins(keys)
            self._keys = keys

    def new_exchange(
        self,
        image: Callable[[], MetadataImage],
        now_ms: Callable[[], int],
        tokens: TokenCredentials | None = None,
    ) -> SaslExchange:
        """The way in for one connection. `now_ms` is the time by the calendar; `tokens` are delegation tokens'."""
        return SaslExchange(self._servers(image, now_ms, tokens), self._max_reauth_ms)

    def _servers(
        self,
        image: Callable[[], MetadataImage],
        now_ms: Callable[[], int],
        tokens: TokenCredentials | None,
    ) -> dict[str, NewServer]:
        servers: dict[str, NewServer] = {}
        for mechanism in self.mechanisms:
            if mechanism == "PLAIN":
                servers[mechanism] = partial(PlainServer, self._plain_users)
            elif mechanism == "OAUTHBEARER":
                assert self._tokens is not None
                servers[mechanism] = partial(OAuthBearerServer, self._tokens, lambda: now_ms() / 1000)
            elif mechanism == "GSSAPI":
                from ottla.security.sasl.gssapi import GssapiServer

                assert self._kerberos is not None
                servers[mechanism] = partial(GssapiServer, self._kerberos)
            else:
                find = partial(_scram_credential, image, mechanism)
                servers[mechanism] = partial(
                    ScramServer,
                    mechanism,
                    find,
                    None if tokens is None else partial(tokens.find, mechanism),
                    self._probing_key,
                    derive_token=None if tokens is None else partial(tokens.derivation, mechanism),
                )
        return servers

    def _max_reauth_ms(self, mechanism: str) -> int:
        text = self._keys.get(f"{mechanism.lower()}.connections.max.reauth.ms") or self._keys.get(
            "connections.max.reauth.ms"
        )
        return int(text) if text else 0


def _scram_credential(
    image: Callable[[], MetadataImage], mechanism: str, name: str
) -> ScramCredential | None:
    return image().scram.get((ScramMechanism[mechanism.replace("-", "_")], name))


class ClientSecurity:
    """How this node opens connections to listeners of one name on other nodes."""

    def __init__(
        self, config: BrokerConfig, name: str, protocol: SecurityProtocol, mechanism_key: str
    ) -> None:
        """`mechanism_key` is `sasl.mechanism.inter.broker.protocol` or `sasl.mechanism.controller.protocol`."""
        self._name = name
        self._keys = keys = listener_keys(config, name)
        self.tls: TlsEndpoint | None = None
        self.login: Login | None = None
        if protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL):
            self.tls = TlsEndpoint(
                config, name, server_side=False, sasl=protocol is SecurityProtocol.SASL_SSL
            )
        if protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
            mechanism = keys.get(mechanism_key) or "GSSAPI"
            if mechanism not in MECHANISMS:
                raise ConfigError.bad_value(
                    mechanism_key, mechanism, "a mechanism of " + ", ".join(MECHANISMS)
                )
            self.login = _node_login(keys, name, mechanism)

    def update(self, config: BrokerConfig) -> None:
        """Use a changed JAAS configuration for new connections. Raises ConfigError, and then nothing has changed."""
        keys = listener_keys(config, self._name)
        if self.login is None or jaas_texts(keys) == jaas_texts(self._keys):
            return
        mechanism = self.login.mechanism
        if mechanism == "OAUTHBEARER":
            before, after = (login_module(each, self._name, mechanism).options for each in (self._keys, keys))
            refuse_other_stores(self._name, before, after)
        self.login = _node_login(keys, self._name, mechanism)
        self._keys = keys


def _node_login(keys: Mapping[str, str], name: str, mechanism: str) -> Login:
    """How a node logs in to listeners of one name."""
    options = login_module(keys, name, mechanism).options
    if mechanism in ("OAUTHBEARER", "GSSAPI"):
        from ottla.credentials.kerberos import kerberos_login
        from ottla.credentials.oauth import oauth_login

        try:
            return oauth_login(keys, options) if mechanism == "OAUTHBEARER" else kerberos_login(keys, options)
        except CredentialsError as error:
            raise ConfigError(f"Connections to listener {name} cannot log in: {error}") from None
    if "username" not in options or "password" not in options:
        raise ConfigError(
            f"The JAAS configuration of listener {name} for {mechanism} has no username and password, "
            "which connections between nodes need"
        )
    return ClientLogin(mechanism, options["username"], options["password"])


def refuse_other_stores(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Only the file of the configuration says which stores connections to an issuer use. Raises ConfigError."""
    stores = [
        {key: text for key, text in options.items() if key.startswith("ssl.")} for options in (before, after)
    ]
    if stores[0] != stores[1]:
        key = f"listener.name.{name.lower()}.oauthbearer.sasl.jaas.config"
        raise ConfigError(
            f"Invalid configuration {key}: options that begin with ssl. can change with a restart only",
            key=key,
        )


def jaas_texts(keys: Mapping[str, str]) -> dict[str, str]:
    """The JAAS entries among the keys of a listener."""
    return {key: text for key, text in keys.items() if key.endswith(_JAAS_KEY)}


def login_module(keys: Mapping[str, str], name: str, mechanism: str) -> LoginModule:
    """The JAAS entry of a listener for a mechanism: from its own key, else from the JAAS file of the process."""
    key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = keys.get(f"{mechanism.lower()}.sasl.jaas.config")
    try:
        if text is not None:
            modules = parse_modules(text)
            if len(modules) != 1:
                raise CredentialsError(f"expected one login module, found {len(modules)}")
        else:
            contexts = _jaas_file()
            modules = contexts.get(f"{name.lower()}.KafkaServer") or contexts.get("KafkaServer") or []
            modules = [each for each in modules if mechanism.startswith(each.mechanism)][:1]
            if not modules:
                raise CredentialsError(
                    "it is not set, and no JAAS file (-Djava.security.auth.login.config in KAFKA_OPTS) has a "
                    f"login module for {mechanism} in the context KafkaServer"
                )
        module = modules[0]
        if not mechanism.startswith(module.mechanism):
            raise CredentialsError(f"the login module {module.name} is not for {mechanism}")
    except CredentialsError as error:
        raise ConfigError(f"Invalid configuration {key}: {error}", key=key) from None
    return module


def _jaas_file() -> dict[str, list[LoginModule]]:
    """The login contexts of the file that Kafka's users name in KAFKA_OPTS; none without it."""
    for word in os.environ.get("KAFKA_OPTS", "").split():
        if word.startswith(_JAAS_FILE_FLAG):
            path = word.removeprefix(_JAAS_FILE_FLAG)
            try:
                return parse_file(Path(path).read_text())
            except OSError as error:
                raise CredentialsError(f"the JAAS file {path} cannot be read: {error.strerror}") from None
    return {}
