"""The settings of the cluster client, from kafka-python's names or from Kafka's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.admin.retries import RETRIABLE_FOR_WRITERS
from ottla.admin.settings import SASL_MECHANISMS, SECURITY_PROTOCOLS, ClusterSettings, SecuritySettings
from ottla.client.errors import KafkaConfigurationError
from ottla.client.settings import COMMON, RENAMED, Settings, merge, servers

if TYPE_CHECKING:
    from ottla.credentials.kerberos import KerberosLogin

JAVA_SECURITY = frozenset(
    {
        "sasl.jaas.config",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
    }
)
"""The names of Java's clients for what librdkafka names otherwise."""
_OAUTH_PREFIX = "sasl.oauthbearer."

_WRITERS_BACKOFF_S = 0.01
_WRITERS_BACKOFF_MAX_S = 0.5
"""A transaction often waits for the end of the one before it, which takes a few milliseconds."""


def is_java_security(name: str) -> bool:
    """Whether a setting of Java's clients is about TLS or the login and has no name in `COMMON`."""
    return name in JAVA_SECURITY or name.startswith(_OAUTH_PREFIX)


def cluster_settings(settings: Settings) -> ClusterSettings:
    """The cluster client's settings from those of a client of this API."""
    return ClusterSettings(
        bootstrap=tuple(_address(one) for one in servers(settings["bootstrap_servers"])),
        client_id=settings["client_id"],
        request_timeout_s=settings["request_timeout_ms"] / 1000,
        bootstrap_timeout_s=settings["bootstrap_timeout_ms"] / 1000,
        retry_backoff_s=settings["retry_backoff_ms"] / 1000,
        security=_security(settings),
    )


def writer_settings(bootstrap_servers: str, options: Mapping[str, object] | None = None) -> ClusterSettings:
    """The cluster client's settings of a long-running writer or reader, from Kafka's names (`security.protocol`).

    Both Java's and librdkafka's names of TLS and SASL settings will do. Spark's prefix `kafka.` before a name is
    allowed.
    """
    ours = {theirs: name for name, theirs in RENAMED.items()}
    given: Settings = {"bootstrap_servers": bootstrap_servers}
    java: dict[str, str] = {}
    for key, value in (options or {}).items():
        name = key.removeprefix("kafka.")
        if is_java_security(name):
            java[name] = str(value)
        else:
            given[ours.get(name, name.replace(".", "_"))] = value
    given |= _from_java(java)
    settings = merge(COMMON, given, "the connection")
    return ClusterSettings(
        bootstrap=tuple(_address(one) for one in servers(settings["bootstrap_servers"])),
        client_id=settings["client_id"],
        request_timeout_s=settings["request_timeout_ms"] / 1000,
        retry_backoff_s=_WRITERS_BACKOFF_S,
        retry_backoff_max_s=_WRITERS_BACKOFF_MAX_S,
        retriable=RETRIABLE_FOR_WRITERS,
        security=_with_stores(_security(settings, _login_options(java), _oauth_keys(java)), java),
    )


def _from_java(java: Mapping[str, str]) -> Settings:
    """What Java's names say that has a name of ours: the login, and whether host names are checked."""
    given: Settings = {}
    if "sasl.jaas.config" in java:
        login = _login_options(java)
        given["sasl_plain_username"] = login.get("username")
        given["sasl_plain_password"] = login.get("password")
    if (algorithm := java.get("ssl.endpoint.identification.algorithm")) is not None:
        given["ssl_check_hostname"] = algorithm.strip().lower() not in ("", "none")
    return given


def _login_options(java: Mapping[str, str]) -> dict[str, str]:
    """The options of `sasl.jaas.config`; none without it."""
    jaas = java.get("sasl.jaas.config")
    if jaas is None:
        return {}
    from ottla.credentials.errors import CredentialsError
    from ottla.credentials.jaas import parse_modules

    try:
        return parse_modules(jaas)[0].options
    except CredentialsError as error:
        raise KafkaConfigurationError(f"sasl.jaas.config: {error}") from None


def _oauth_keys(java: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in java.items() if name.startswith(_OAUTH_PREFIX)}


def _with_stores(security: SecuritySettings, java: Mapping[str, str]) -> SecuritySettings:
    """Adds Java's key store and trust store, of whatever type they are."""
    stores = {name: value for name, value in java.items() if name.startswith("ssl.")}
    if not security.protocol.endswith("SSL") or not any("store." in name for name in stores):
        return security
    if security.key_password is not None:
        stores.setdefault("ssl.key.password", security.key_password)
    return replace(security, stores=tuple(stores.items()))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _security(
    settings: Settings, jaas: Mapping[str, str] | None = None, oauth: Mapping[str, str] | None = None
) -> SecuritySettings:
    protocol = str(settings["security_protocol"]).upper()
    if protocol not in SECURITY_PROTOCOLS:
        known = ", ".join(SECURITY_PROTOCOLS)
        raise KafkaConfigurationError(
            f"security_protocol must be one of {known}, not {settings['security_protocol']}"
        )
    mechanism = settings["sasl_mechanism"] or "PLAIN"
    if protocol.startswith("SASL") and settings["sasl_mechanism"] not in SASL_MECHANISMS:
        known = ", ".join(SASL_MECHANISMS)
        raise KafkaConfigurationError(
            f"the admin client authenticates with {known}, not with {settings['sasl_mechanism']}"
        )
    if (
        protocol.startswith("SASL")
        and mechanism == "OAUTHBEARER"
        and settings["sasl_oauth_token_provider"] is None
        and not (oauth or jaas)
    ):
        raise KafkaConfigurationError(
            "OAUTHBEARER needs sasl_oauth_token_provider, or sasl.oauthbearer.token.endpoint.url of Java's clients"
        )
    return SecuritySettings(
        protocol=protocol,
        ca_file=settings["ssl_cafile"],
        certificate_file=settings["ssl_certfile"],
        key_file=settings["ssl_keyfile"],
        key_password=settings["ssl_password"],
        crl_file=settings["ssl_crlfile"],
        ciphers=settings["ssl_ciphers"],
        check_hostname=settings["ssl_check_hostname"],
        mechanism=mechanism,
        user=settings["sasl_plain_username"] or "",
        password=settings["sasl_plain_password"] or "",
        token=(jaas or {}).get("tokenauth", "").lower() == "true",
        oauth=tuple((oauth or {}).items()),
        oauth_jaas=tuple((jaas or {}).items()) if mechanism == "OAUTHBEARER" else (),
        token_provider=_token_provider(settings["sasl_oauth_token_provider"]),
        kerberos=_kerberos(settings, jaas or {})
        if protocol.startswith("SASL") and mechanism == "GSSAPI"
        else None,
    )


def _kerberos(settings: Settings, jaas: Mapping[str, str]) -> KerberosLogin:
    """The tickets of GSSAPI: those of `kinit`, or of the key table that a JAAS entry names."""
    from ottla.credentials.errors import CredentialsError
    from ottla.credentials.kerberos import SERVICE_KEY, kerberos_login

    try:
        return kerberos_login({SERVICE_KEY: settings["sasl_kerberos_service_name"]}, jaas)
    except CredentialsError as error:
        raise KafkaConfigurationError(str(error)) from None


def _token_provider(provider: Any) -> Callable[[], str] | None:
    """kafka-python's provider, an object with `token()` or a function, as one that gives the token alone."""
    if provider is None:
        return None

    def token() -> str:
        given = provider.token() if hasattr(provider, "token") else provider()
        return str(given[0] if isinstance(given, tuple) else given)

    return token
