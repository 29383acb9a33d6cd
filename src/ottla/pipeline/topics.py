"""The largest batch that a sink may write to a topic."""

from __future__ import annotations

from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.wire.messages import DescribeConfigsRequest

DEFAULT_BATCH_BYTES: Final = 1_000_000
"""Kafka's default for `max.message.bytes`, less the bytes around the records."""

_LARGEST_BATCH: Final = 8 << 20
_AROUND: Final = 4096
_TOPIC: Final = 2
_KEY: Final = "max.message.bytes"


def max_message_bytes(brokers: Cluster, topic: str | None) -> int:
    """The most bytes of a batch; Kafka's default if no topic is named."""
    if topic is None:
        return DEFAULT_BATCH_BYTES
    request = DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=[_KEY]
    )
    response = brokers.ask_on(brokers.any(), request(resources=[resource]), 4)
    found = response.results[0]
    raise_for(found.error_code, None, f"the configuration of {topic}")
    for entry in found.configs:
        if entry.name == _KEY and entry.value:
            return max(_AROUND, min(int(entry.value), _LARGEST_BATCH) - _AROUND)
    return DEFAULT_BATCH_BYTES
