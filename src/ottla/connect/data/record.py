"""The records that flow between connectors, transforms and converters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from ottla.connect.data.schema import ConnectValue, Schema
from ottla.json_types import Json


@dataclass(frozen=True, slots=True)
class Header:
    """A header: its key, its schema and its value."""

    key: str
    schema: Schema | None
    value: ConnectValue


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of a record, in order; a key may occur several times. Changes make new headers."""

    entries: tuple[Header, ...] = ()

    def __iter__(self) -> Iterator[Header]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, key: str, value: ConnectValue, schema: Schema | None) -> Headers:
        """With one more header."""
        return Headers((*self.entries, Header(key, schema, value)))

    def without(self, key: str) -> Headers:
        """Without the headers of a key."""
        return Headers(tuple(one for one in self.entries if one.key != key))

    def all_with(self, key: str) -> list[Header]:
        """The headers of a key."""
        return [one for one in self.entries if one.key == key]


class RecordChanges(TypedDict, total=False):
    """What a transform may change of a record."""

    topic: str
    value: ConnectValue
    value_schema: Schema | None
    key: ConnectValue
    key_schema: Schema | None
    partition: int | None
    timestamp: int | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """What sources and sinks have in common; transforms work on it.

    A source leaves `partition` to the partitioner with None. `timestamp` is in milliseconds.
    """

    topic: str
    value: ConnectValue = None
    value_schema: Schema | None = None
    key: ConnectValue = None
    key_schema: Schema | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = field(default_factory=Headers)

    def with_changes(self, **changes: Unpack[RecordChanges]) -> ConnectRecord:
        """The record with some attributes changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class SourceRecord(ConnectRecord):
    """A record of a source: `source_partition` and `source_offset` say where it came from."""

    source_partition: Mapping[str, Json] = field(default_factory=dict)
    source_offset: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkRecord(ConnectRecord):
    """A record for a sink. The original place stays as it was, whatever transforms do with topic and partition."""

    offset: int = -1
    timestamp_type: str = "CreateTime"
    original_topic: str = ""
    original_partition: int = -1
    original_key: bytes | None = None
    original_value: bytes | None = None
    original_headers: tuple[tuple[str, bytes | None], ...] = ()
