"""How to reach a cluster: addresses, time limits, back-off and security, in one object that all connections share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.admin.retries import RETRIABLE
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    import ssl

    from ottla.credentials.kerberos import KerberosLogin
    from ottla.credentials.oauth import OAuthLogin
    from ottla.credentials.sasl_client import Login

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""The SASL mechanisms that a connection of this package supports."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """TLS and SASL as plain values. They can be pickled: Spark sends them to its workers."""

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    crl_file: str | None = None
    ciphers: str | None = None
    check_hostname: bool = True
    mechanism: str = "PLAIN"
    user: str = ""
    password: str = field(default="", repr=False)
    token: bool = False
    """The user is the id of a delegation token, and the password its secret."""
    stores: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The `ssl.*` keys of a client of Kafka's own, where its stores are not plain PEM files (PKCS12, JKS)."""

    oauth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The `sasl.oauthbearer.*` keys of OAUTHBEARER ..."""
    oauth_jaas: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """... and the options of its JAAS entry."""
    token_provider: Callable[[], str] | None = field(default=None, repr=False)
    """Gives tokens of OAUTHBEARER in the place of those keys."""
    kerberos: KerberosLogin | None = None
    """Where the tickets of GSSAPI come from."""

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def login(self) -> Login:
        """How connections log in. Raises ApiException for settings that cannot work."""
        from ottla.credentials.sasl_client import ClientLogin

        if self.kerberos is not None:
            return self.kerberos
        if self.mechanism != "OAUTHBEARER":
            return ClientLogin(self.mechanism, self.user, self.password, token=self.token)
        from ottla.credentials.errors import CredentialsError
        from ottla.credentials.oauth import OAuthLogin, ProvidedTokens

        if self.token_provider is not None:
            return OAuthLogin(ProvidedTokens(self.token_provider))
        try:
            return _oauth_login(self.oauth, self.oauth_jaas)
        except CredentialsError as error:
            raise ApiException(ErrorCode.INVALID_REQUEST, str(error)) from None

    def tls_context(self) -> ssl.SSLContext | None:
        """The context that connections wrap their sockets with; None without TLS."""
        if not self.protocol.endswith("SSL"):
            return None
        if self.stores:
            return self._context_of_stores()
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            context.check_hostname = self.check_hostname
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
            if self.crl_file:
                context.load_verify_locations(self.crl_file)
                context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
            if self.ciphers:
                context.set_ciphers(self.ciphers)
        except ssl.SSLError as error:
            raise ApiException(
                ErrorCode.INVALID_REQUEST, f"the certificates are not in PEM form: {error}"
            ) from None
        return context

    def _context_of_stores(self) -> ssl.SSLContext:
        from datetime import UTC, datetime

        from ottla.credentials.contexts import TlsConfig, client_context
        from ottla.credentials.errors import CredentialsError

        try:
            return client_context(TlsConfig.of(dict(self.stores)), datetime.now(UTC))
        except CredentialsError as error:
            raise ApiException(ErrorCode.INVALID_REQUEST, str(error)) from None


@lru_cache(maxsize=16)
def _oauth_login(keys: tuple[tuple[str, str], ...], jaas: tuple[tuple[str, str], ...]) -> OAuthLogin:
    """One for all connections with the same keys: they share a token until it is near its end."""
    from ottla.credentials.oauth import oauth_login

    return oauth_login(dict(keys), dict(jaas))


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Everything a `Cluster` needs to know before it connects."""

    bootstrap: tuple[tuple[str, int], ...]
    """Host and port of the bootstrap servers."""
    client_id: str = f"ottla-{__version__}"
    request_timeout_s: float = 30.0
    """For one request, and for `Cluster.retrying` unless its caller gives another limit."""
    connect_timeout_s: float | None = None
    """To connect, agree on versions and log in; as long as a request for None."""
    bootstrap_timeout_s: float = 0.0
    """How long to try the bootstrap servers again while none of them answers."""
    retry_backoff_s: float = 0.1
    """Kafka's retry.backoff.ms: the first pause between two attempts. It doubles with each failure ..."""
    retry_backoff_max_s: float = 1.0
    """... up to Kafka's retry.backoff.max.ms."""
    retriable: frozenset[ErrorCode] = RETRIABLE
    """The errors after which `Cluster.retrying` tries again."""
    security: SecuritySettings = SecuritySettings()
