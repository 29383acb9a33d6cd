"""librdkafka's messages as ConsumerRecords. This runs once for every record read, so it is written to be fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.client.serializers import Serialize
from ottla.client.structs import ConsumerRecord

_LOG_APPEND_TIME = 2

_new_record: Callable[..., ConsumerRecord] = tuple.__new__


def record_maker(key_of: Serialize | None, value_of: Serialize | None) -> Callable[[Any], ConsumerRecord]:
    """The function that turns a message into a record, with the deserializers of a consumer in it."""

    def make(message: Any) -> ConsumerRecord:
        key, value = message.key(), message.value()
        headers = message.headers()
        kind, timestamp = message.timestamp()
        topic, epoch = message.topic(), message.leader_epoch()
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        header_size = -1
        if headers:
            header_size = sum(len(name.encode()) + len(data or b"") for name, data in headers)
        else:
            headers = []
        if key_of is not None:
            key = key_of(topic, headers, key)
        if value_of is not None:
            value = value_of(topic, headers, value)
        return _new_record(
            ConsumerRecord,
            (
                topic,
                message.partition(),
                -1 if epoch is None else epoch,
                message.offset(),
                timestamp if kind else -1,
                1 if kind == _LOG_APPEND_TIME else 0,
                key,
                value,
                headers,
                None,
                key_size,
                value_size,
                header_size,
            ),
        )

    return make
