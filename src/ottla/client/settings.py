"""kafka-python's settings and their names in librdkafka, for all clients.

A setting without a counterpart in librdkafka is refused if it would change behaviour. It is accepted without effect if
it only tunes kafka-python's own implementation.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla import __version__
from ottla.client.engine_log import EngineLog
from ottla.client.errors import KafkaConfigurationError

_logger = logging.getLogger(__name__)

Settings = dict[str, Any]

COMMON: Settings = {
    "bootstrap_servers": "localhost:9092",
    "client_id": f"ottla-{__version__}",
    "request_timeout_ms": 30_000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30_000,
    "connections_max_idle_ms": 540_000,
    "metadata_max_age_ms": 300_000,
    "max_in_flight_requests_per_connection": 5,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "client_dns_lookup": "use_all_dns_ips",
    "bootstrap_timeout_ms": 30_000,
    "security_protocol": "PLAINTEXT",
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
    "ssl_crlfile": None,
    "ssl_ciphers": None,
    "ssl_context": None,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_name": None,
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "metrics_enabled": True,
    "engine_config": None,
    # Of kafka-python's own implementation: accepted without effect.
    "api_version": None,
    "api_version_auto_timeout_ms": None,
    "selector": None,
    "socket_options": None,
    "kafka_client": None,
    "metric_reporters": (),
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
    "metric_group_prefix": "",
}

_NO_COUNTERPART = {
    "ssl_context": "give ssl_cafile, ssl_certfile, ssl_keyfile and ssl_password instead",
    "sasl_kerberos_name": "give sasl_kerberos_service_name instead",
    "sasl_kerberos_domain_name": "the domain is that of each broker's address",
    "proxy_url": "librdkafka connects directly",
    "socks5_proxy": "librdkafka connects directly",
}

RENAMED = {
    "client_id": "client.id",
    "request_timeout_ms": "socket.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "max_in_flight_requests_per_connection": "max.in.flight.requests.per.connection",
    "receive_message_max_bytes": "receive.message.max.bytes",
    "receive_buffer_bytes": "socket.receive.buffer.bytes",
    "send_buffer_bytes": "socket.send.buffer.bytes",
    "client_dns_lookup": "client.dns.lookup",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def merge(defaults: Settings, given: Mapping[str, object], client: str) -> Settings:
    """The settings in force. An unknown name is refused, with the most similar known one."""
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        hints = []
        for name in unknown:
            near = difflib.get_close_matches(name, defaults, n=1)
            hints.append(f"{name} (did you mean {near[0]}?)" if near else name)
        raise KafkaConfigurationError(f"Unrecognized configs of {client}: {', '.join(hints)}")
    settings = {**defaults, **given}
    for name, instead in _NO_COUNTERPART.items():
        if settings[name] is not None:
            raise KafkaConfigurationError(f"{name} is not supported: {instead}")
    return settings


def common_engine_settings(settings: Settings) -> Settings:
    """The librdkafka settings that all clients have in common."""
    protocol = str(settings["security_protocol"]).upper()
    if protocol not in _PROTOCOLS:
        raise KafkaConfigurationError(
            f"security_protocol must be one of {', '.join(_PROTOCOLS)}, not {settings['security_protocol']}"
        )
    if protocol.startswith("SASL") and not settings["sasl_mechanism"]:
        raise KafkaConfigurationError(f"security_protocol {protocol} needs a sasl_mechanism")
    engine = renamed(settings, RENAMED)
    engine["bootstrap.servers"] = ",".join(servers(settings["bootstrap_servers"]))
    engine["security.protocol"] = protocol
    # librdkafka's messages go to Python's logging, not to standard error.
    engine["logger"] = EngineLog()
    if not settings["ssl_check_hostname"]:
        engine["ssl.endpoint.identification.algorithm"] = "none"
    if settings["sasl_mechanism"] == "GSSAPI":
        engine["sasl.kerberos.service.name"] = settings["sasl_kerberos_service_name"]
    if settings["sasl_oauth_token_provider"] is not None:
        engine["oauth_cb"] = _token_function(settings["sasl_oauth_token_provider"])
    return engine


def with_engine_config(engine: Settings, settings: Settings) -> Settings:
    """Add `engine_config`: librdkafka's own settings, which override all others."""
    return {**engine, **(settings["engine_config"] or {})}


def renamed(settings: Settings, names: Mapping[str, str]) -> Settings:
    return {theirs: settings[ours] for ours, theirs in names.items() if settings.get(ours) is not None}


def servers(given: str | Iterable[str]) -> list[str]:
    """`bootstrap_servers` in any of its forms, with the port that Kafka has by default."""
    words = given.split(",") if isinstance(given, str) else list(given)
    found = [word.strip() for word in words if word.strip()]
    if not found:
        raise KafkaConfigurationError("bootstrap_servers is empty")
    return [word if _has_port(word) else f"{word}:9092" for word in found]


def _has_port(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(colon) and port.isdigit() and (":" not in host or host.endswith("]"))


def _token_function(provider: Any) -> Callable[[str], tuple[str, float]]:
    """kafka-python's provider gives a token; librdkafka also wants to know how long it lasts."""
    import time

    def token(_: str) -> tuple[str, float]:
        given = provider.token() if hasattr(provider, "token") else provider()
        if isinstance(given, tuple):
            return given[0], float(given[1])
        return str(given), time.time() + 300

    return token
