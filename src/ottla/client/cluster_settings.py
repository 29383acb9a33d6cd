"""The settings of the cluster client, from kafka-python's names or from Kafka's own."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.admin.retries import RETRIABLE_FOR_WRITERS
from ottla.admin.settings import SASL_MECHANISMS, SECURITY_PROTOCOLS, ClusterSettings, SecuritySettings
from ottla.client.errors import KafkaConfigurationError
from ottla.client.settings import COMMON, RENAMED, Settings, merge, servers

_WRITERS_BACKOFF_S = 0.01
_WRITERS_BACKOFF_MAX_S = 0.5
"""A transaction often waits for the end of the one before it, which takes a few milliseconds."""


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
    """The cluster client's settings of a long-running writer, from Kafka's names (`security.protocol`).

    Spark's prefix `kafka.` before a name is allowed.
    """
    ours = {theirs: name for name, theirs in RENAMED.items()}
    given: Settings = {"bootstrap_servers": bootstrap_servers}
    for key, value in (options or {}).items():
        name = key.removeprefix("kafka.")
        given[ours.get(name, name.replace(".", "_"))] = value
    settings = merge(COMMON, given, "the connection")
    return ClusterSettings(
        bootstrap=tuple(_address(one) for one in servers(settings["bootstrap_servers"])),
        client_id=settings["client_id"],
        request_timeout_s=settings["request_timeout_ms"] / 1000,
        retry_backoff_s=_WRITERS_BACKOFF_S,
        retry_backoff_max_s=_WRITERS_BACKOFF_MAX_S,
        retriable=RETRIABLE_FOR_WRITERS,
        security=_security(settings),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _security(settings: Settings) -> SecuritySettings:
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
    )
