"""librdkafka's messages as ConsumerRecords. This runs once for every record read, so it is written to be fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, SupportsIndex

from ottla.client.serializers import Serialize
from ottla.client.structs import ConsumerRecord, Headers

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

_LOG_APPEND_TIME = 2

_new_record: Callable[..., ConsumerRecord] = tuple.__new__
_new_fetched: Callable[..., FetchedRecord] = object.__new__


def as_record(
    message: EngineMessage, key_of: Serialize | None = None, value_of: Serialize | None = None
) -> ConsumerRecord:
    """All fields of a message, key and value through their deserializers."""
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


class FetchedRecord:
    """A ConsumerRecord whose fields are read when they are looked at.

    Most programs look at two or three of the thirteen, and making all of them takes longer than to fetch the
    record. In all else it is a ConsumerRecord: it is equal to one, unpacks, compares and prints like one.
    """

    __slots__ = ("_message",)
    _message: EngineMessage
    _fields = ConsumerRecord._fields

    @property  # type: ignore[misc]
    def __class__(self) -> type[ConsumerRecord]:  # type: ignore[override]
        return ConsumerRecord

    @property
    def topic(self) -> str:
        topic: str = self._message.topic()
        return topic

    @property
    def partition(self) -> int:
        partition: int = self._message.partition()
        return partition

    @property
    def offset(self) -> int:
        offset: int = self._message.offset()
        return offset

    @property
    def key(self) -> bytes | None:
        return self._message.key()

    @property
    def value(self) -> bytes | None:
        return self._message.value()

    @property
    def headers(self) -> Headers:
        return self._message.headers() or []

    @property
    def timestamp(self) -> int:
        kind, moment = self._message.timestamp()
        return moment if kind else -1

    @property
    def checksum(self) -> None:
        return None

    def __getattr__(self, name: str) -> object:
        return getattr(as_record(self._message), name)

    def __iter__(self) -> Iterator[object]:
        return iter(as_record(self._message))

    def __getitem__(self, index: SupportsIndex | slice) -> object:
        return as_record(self._message)[index]

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, tuple) else other)

    def __hash__(self) -> int:
        return hash(as_record(self._message))

    def __repr__(self) -> str:
        return repr(as_record(self._message))

    def __reduce__(self) -> tuple[type[ConsumerRecord], tuple[object, ...]]:
        return ConsumerRecord, tuple(self)


def record_maker(
    key_of: Serialize | None, value_of: Serialize | None
) -> Callable[[EngineMessage], ConsumerRecord]:
    """The function that turns a message into a record, with the deserializers of a consumer in it."""
    if key_of is not None or value_of is not None:
        # What a deserializer refuses is refused where the record is handed out, not where it is looked at.
        return lambda message: as_record(message, key_of, value_of)

    def make(message: EngineMessage) -> ConsumerRecord:
        record = _new_fetched(FetchedRecord)
        record._message = message
        return record  # type: ignore[return-value]

    return make
