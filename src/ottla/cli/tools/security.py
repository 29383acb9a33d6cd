"""The security settings of the tools' own connections, from the properties of Kafka's clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.admin.settings import SASL_MECHANISMS, SECURITY_PROTOCOLS, SecuritySettings
from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from ottla.credentials.kerberos import KerberosLogin

OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
_STORES: Final = ("ssl.keystore", "ssl.truststore")
_PEM_START: Final = b"-----BEGIN "


def jaas_options(text: str) -> dict[str, str]:
    """The options of `sasl.jaas.config`: username and password among them."""
    if not text.strip():
        return {}
    from ottla.credentials.errors import CredentialsError
    from ottla.credentials.jaas import parse_modules

    try:
        return parse_modules(text)[0].options
    except CredentialsError as error:
        raise UsageProblem(f"sasl.jaas.config: {error}") from None


def is_pem(properties: Mapping[str, str]) -> bool:
    """The key and its certificate are in one PEM file."""
    return properties.get("ssl.keystore.type", "").upper() == "PEM"


def security(properties: Mapping[str, str]) -> SecuritySettings:
    """TLS and SASL, from the properties of a Java client or of librdkafka."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise UsageProblem(f"security.protocol={protocol}: expected one of {', '.join(SECURITY_PROTOCOLS)}")
    mechanism, user, password = "PLAIN", "", ""
    oauth: dict[str, str] = {}
    jaas: dict[str, str] = {}
    kerberos: KerberosLogin | None = None
    if protocol.startswith("SASL"):
        mechanism, user, password = _credentials(properties)
        if mechanism == GSSAPI:
            kerberos = _kerberos(properties)
        if mechanism == OAUTHBEARER:
            oauth = {key: text for key, text in properties.items() if key.startswith("sasl.oauthbearer.")}
            jaas = jaas_options(properties.get("sasl.jaas.config", ""))
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    return SecuritySettings(
        protocol=protocol,
        ca_file=properties.get("ssl.ca.location") or properties.get("ssl.truststore.location"),
        certificate_file=properties.get("ssl.certificate.location")
        or properties.get("ssl.keystore.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=algorithm is None or algorithm.strip().lower() not in ("", "none"),
        mechanism=mechanism,
        user=user,
        password=password,
        oauth=tuple(oauth.items()),
        oauth_jaas=tuple(jaas.items()),
        token=_is_token(properties),
        kerberos=kerberos,
        stores=_java_stores(properties) if protocol.endswith("SSL") else (),
    )


def _kerberos(properties: Mapping[str, str]) -> KerberosLogin:
    from ottla.credentials.errors import CredentialsError
    from ottla.credentials.kerberos import kerberos_login

    try:
        return kerberos_login(properties, jaas_options(properties.get("sasl.jaas.config", "")))
    except CredentialsError as error:
        raise UsageProblem(str(error)) from None


def _java_stores(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The `ssl.*` keys, if one of the stores is a PKCS12 or JKS store; none where all of them are PEM files."""
    keys = {key: text for key, text in properties.items() if key.startswith("ssl.")}
    kinds = {
        store: keys.get(f"{store}.type") or ("PEM" if _looks_like_pem(keys[f"{store}.location"]) else "JKS")
        for store in _STORES
        if f"{store}.location" in keys
    }
    if all(kind.upper() == "PEM" for kind in kinds.values()):
        return ()
    return tuple({**keys, **{f"{store}.type": kind for store, kind in kinds.items()}}.items())


def _looks_like_pem(location: str) -> bool:
    try:
        return _PEM_START in Path(location).read_bytes()[: 1 << 20]
    except OSError:
        # The error comes with the file's own message, where it is opened.
        return True


def _is_token(properties: Mapping[str, str]) -> bool:
    """Whether the login module says that the user is a delegation token."""
    return jaas_options(properties.get("sasl.jaas.config", "")).get("tokenauth", "").lower() == "true"


def _credentials(properties: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in SASL_MECHANISMS:
        raise UsageProblem(
            f"sasl.mechanism={mechanism} is not supported by this tool: {', '.join(SASL_MECHANISMS)} are"
        )
    if mechanism in (OAUTHBEARER, GSSAPI):
        return mechanism, "", ""
    options = jaas_options(properties.get("sasl.jaas.config", ""))
    user = properties.get("sasl.username", options.get("username"))
    if user is None:
        raise UsageProblem(f"sasl.jaas.config needs username and password for {mechanism}")
    return mechanism, user, properties.get("sasl.password", options.get("password", ""))
