"""The producer's settings: defaults, contradictions, and librdkafka's names for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.client.errors import KafkaConfigurationError
from ottla.client.settings import (
    COMMON,
    Settings,
    common_engine_settings,
    merge,
    renamed,
    with_engine_config,
)

_logger = logging.getLogger(__name__)

DEFAULTS: Settings = {
    **COMMON,
    "key_serializer": None,
    "value_serializer": None,
    "acks": -1,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "delivery_timeout_ms": 120_000,
    "compression_type": None,
    "retries": float("inf"),
    "batch_size": 1_000_000,
    "linger_ms": 5,
    "partitioner": None,
    "buffer_memory": 32 * 1024 * 1024,
    "max_block_ms": 60_000,
    "max_request_size": 1_048_576,
    "allow_auto_create_topics": True,
}
"""Where these differ from kafka-python's (`linger_ms`, `batch_size`) they are what the engine is fast with; a
`get` on a record's future does not wait for the linger."""

_RENAMED = {
    "delivery_timeout_ms": "delivery.timeout.ms",
    "batch_size": "batch.size",
    "linger_ms": "linger.ms",
    "max_request_size": "message.max.bytes",
    "transactional_id": "transactional.id",
    "allow_auto_create_topics": "allow.auto.create.topics",
}

_CODECS = (None, "none", "gzip", "snappy", "lz4", "zstd")
_MAX_RETRIES = 2_147_483_647
_MAX_IN_FLIGHT_IDEMPOTENT = 5


def producer_settings(given: Mapping[str, object]) -> Settings:
    settings = merge(DEFAULTS, given, "KafkaProducer")
    if settings["acks"] == "all":
        settings["acks"] = -1
    if settings["acks"] not in (-1, 0, 1):
        raise KafkaConfigurationError(f"acks must be 0, 1 or 'all', not {settings['acks']!r}")
    if settings["compression_type"] not in _CODECS:
        raise KafkaConfigurationError(
            f"compression_type must be one of gzip, snappy, lz4, zstd or None, "
            f"not {settings['compression_type']!r}"
        )
    _decide_idempotence(settings, given)
    return settings


def _decide_idempotence(settings: Settings, given: Mapping[str, object]) -> None:
    """On by default, and then it yields to a contradicting setting; asked for, it does not."""
    insisted = bool(given.get("enable_idempotence")) or bool(settings["transactional_id"])
    if settings["transactional_id"] and given.get("enable_idempotence") is False:
        raise KafkaConfigurationError("transactional_id needs enable_idempotence, which is set to False")
    if not settings["enable_idempotence"]:
        return
    conflicts = []
    if settings["acks"] != -1:
        conflicts.append(f"acks={settings['acks']} (it needs acks='all')")
    if settings["retries"] == 0:
        conflicts.append("retries=0 (it needs retries)")
    if settings["max_in_flight_requests_per_connection"] > _MAX_IN_FLIGHT_IDEMPOTENT:
        in_flight = settings["max_in_flight_requests_per_connection"]
        conflicts.append(
            f"max_in_flight_requests_per_connection={in_flight} (it allows {_MAX_IN_FLIGHT_IDEMPOTENT})"
        )
    if conflicts and insisted:
        what = "transactional_id" if settings["transactional_id"] else "enable_idempotence"
        raise KafkaConfigurationError(f"{what} contradicts {', '.join(conflicts)}")
    if conflicts:
        _logger.warning("idempotence is off: it contradicts %s", ", ".join(conflicts))
        settings["enable_idempotence"] = False


def producer_engine_settings(settings: Settings) -> Settings:
    engine = common_engine_settings(settings) | renamed(settings, _RENAMED)
    engine["acks"] = settings["acks"]
    engine["enable.idempotence"] = settings["enable_idempotence"]
    engine["compression.type"] = settings["compression_type"] or "none"
    engine["message.send.max.retries"] = int(min(settings["retries"], _MAX_RETRIES))
    engine["request.timeout.ms"] = settings["request_timeout_ms"]
    engine["queue.buffering.max.kbytes"] = max(1, int(settings["buffer_memory"]) // 1024)
    # The memory is the limit; a count beside it would only block those with small records.
    engine["queue.buffering.max.messages"] = 0
    # Keys hash as Java's and kafka-python's do; without a key the engine fills one batch, then the next.
    engine["partitioner"] = "murmur2_random"
    engine["transaction.timeout.ms"] = settings["transaction_timeout_ms"]
    # At least one record fits into a batch, as with kafka-python, where 0 switches batching off.
    engine["batch.size"] = max(1, settings["batch_size"])
    if settings["transactional_id"]:
        # A record cannot outlive its transaction.
        engine["delivery.timeout.ms"] = min(
            settings["delivery_timeout_ms"], settings["transaction_timeout_ms"]
        )
    return with_engine_config(engine, settings)
