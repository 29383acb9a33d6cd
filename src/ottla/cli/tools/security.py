"""How a tool's own connections are let in: the security settings of Kafka's clients that they understand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.tools.failures import UsageProblem
from ottla.client.connection import SASL_MECHANISMS, Security

if TYPE_CHECKING:
    import ssl

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS_WORD: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def jaas_words(text: str) -> dict[str, str]:
    """The words of `sasl.jaas.config`: username and password among them."""
    return dict(_JAAS_WORD.findall(text))


def is_pem(properties: Mapping[str, str]) -> bool:
    """The key and its certificate are in one file of PEM, as Kafka's clients take them."""
    return properties.get("ssl.keystore.type", "").upper() == "PEM"


def security(properties: Mapping[str, str]) -> Security:
    """TLS and SASL, from the properties of a Java client or of librdkafka."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise UsageProblem(f"security.protocol={protocol}: expected one of {', '.join(_PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in SASL_MECHANISMS:
        raise UsageProblem(
            f"sasl.mechanism={mechanism} is not supported by this tool: {', '.join(SASL_MECHANISMS)} are"
        )
    words = jaas_words(properties.get("sasl.jaas.config", ""))
    user = properties.get("sasl.username", words.get("username"))
    if user is None:
        raise UsageProblem(f"sasl.jaas.config needs username and password for {mechanism}")
    return Security(tls, user, properties.get("sasl.password", words.get("password", "")), mechanism)


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    authority = properties.get("ssl.ca.location") or properties.get("ssl.truststore.location")
    try:
        context = ssl.create_default_context(cafile=authority)
        if "ssl.endpoint.identification.algorithm" in properties:
            context.check_hostname = properties[
                "ssl.endpoint.identification.algorithm"
            ].strip().lower() not in ("", "none")
        certificate = properties.get("ssl.certificate.location") or properties.get("ssl.keystore.location")
        if certificate:
            key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise UsageProblem(f"the certificates are not in PEM form: {error}") from None
    return context
