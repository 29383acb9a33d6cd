"""Records of Kafka's own topics: key and value as the text that kafka-dump-log prints.

A decoder takes a record and gives the texts of its key and its value, each None where there is none to print.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import Document, as_document, as_text
from ottla.errors import ApiException
from ottla.records.record import Record
from ottla.wire.classes import WireMessage, message_class
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.messages import GroupMetadataValue
from ottla.wire.schema import message, message_names

Decoder = Callable[[Record], tuple[str | None, str | None]]

_INT16: Final = struct.Struct(">h")
_NUMBERS: Final = {"LongDecoder": struct.Struct(">q"), "IntegerDecoder": struct.Struct(">i")}


def of_classes(key_class: str | None, value_class: str | None) -> Decoder:
    """Keys and values as Kafka's decoder classes read them: text unless another is named."""
    show_key, show_value = _plain(key_class), _plain(value_class)

    def decode(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else show_key(record.key),
            None if record.value is None else show_value(record.value),
        )

    return decode


def _plain(class_name: str | None) -> Callable[[bytes], str]:
    kind = (class_name or "StringDecoder").rpartition(".")[2]
    if kind in ("StringDecoder", "DefaultDecoder"):
        return lambda data: data.decode(errors="replace")
    if kind not in _NUMBERS:
        raise UsageProblem(
            f"the decoder {class_name} is unknown here; there are String, Long and IntegerDecoder"
        )
    number = _NUMBERS[kind]
    return lambda data: str(number.unpack(data)[0]) if len(data) == number.size else data.hex()


@dataclass(slots=True, frozen=True)
class CoordinatorRecord:
    """A record of a coordinator's topic as documents; without a value it is the mark of a deletion."""

    kind: int
    key: Document
    version: int | None = None
    value: Document | None = None
    message: WireMessage | None = None
    """The value as it was read."""


@cache
def _keys(module: str) -> dict[int, tuple[type[WireMessage], type[WireMessage]]]:
    """The classes of keys and values of a coordinator's records, by their type."""
    found: dict[int, tuple[type[WireMessage], type[WireMessage]]] = {}
    for name in message_names():
        known = message(name)
        if known.module == module and known.kind == "coordinator-key" and known.api_key is not None:
            stem = name.removesuffix("Key")
            found[known.api_key] = message_class(name), message_class(stem + "Value")
    return found


def of_coordinator(module: str) -> Decoder:
    """The records of a coordinator's topic: JSON of key and value with their type and version."""

    def decode(record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            raise UsageProblem(
                f"the record at offset {record.offset} has no key: it is none of a coordinator"
            )
        try:
            return _coordinator_texts(module, record.key, record.value, record.offset)
        except ApiException as error:
            return f"Error at offset {record.offset}, skipping. {error.message}", None

    return decode


def read_coordinator_record(module: str, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """A coordinator's record from its bytes; None if its type is unknown."""
    kind = _prefix(key, "key")
    if kind not in _keys(module):
        return None
    key_class, value_class = _keys(module)[kind]
    decoded, _ = decode_prefix(key_class, 0, key, _INT16.size)
    if value is None:
        return CoordinatorRecord(kind, as_document(decoded, 0))
    version = _prefix(value, "value")
    message, _ = decode_prefix(value_class, version, value, _INT16.size)
    return CoordinatorRecord(kind, as_document(decoded, 0), version, as_document(message, version), message)


def _prefix(data: bytes, what: str) -> int:
    """The type that a key begins with, or the version of a value."""
    if len(data) < _INT16.size:
        raise DecodeError(f"Could not read version from {what}'s buffer.")
    return int(_INT16.unpack_from(data)[0])


def _coordinator_texts(module: str, key: bytes, value: bytes | None, offset: int) -> tuple[str, str | None]:
    found = read_coordinator_record(module, key, value)
    if found is None:
        return f"Unknown record type {_prefix(key, 'key')} at offset {offset}, skipping.", None
    key_text = as_text({"type": str(found.kind), "data": found.key})
    if found.value is None:
        return key_text, "<DELETE>"
    message, document = found.message, found.value
    if isinstance(message, GroupMetadataValue) and message.protocol_type == "consumer":
        for member, shown in zip(message.members, document["members"], strict=True):
            for name in ("subscription", "assignment"):
                known = _embedded(f"ConsumerProtocol{name.capitalize()}", getattr(member, name))
                shown[name] = shown[name] if known is None else known
    return key_text, as_text({"version": str(found.version), "data": document})


def _embedded(name: str, data: bytes) -> Document | None:
    """A message of the consumer protocol inside a record; None for other bytes."""
    try:
        (version,) = _INT16.unpack_from(data)
        message, _ = decode_prefix(message_class(name), version, data, _INT16.size)
        return as_document(message, version)
    except (ApiException, struct.error):
        return None


def of_cluster_metadata(record: Record) -> tuple[str | None, str | None]:
    """The records of the metadata log."""
    from ottla.metadata.records import decode_record
    from ottla.wire.schema import snake_case

    try:
        value = record.value or b""
        message = decode_record(value)
        kind = snake_case(message.NAME).upper()
        return None, as_text({"type": kind, "version": value[2], "data": as_document(message, value[2])})
    except ApiException as error:
        return None, f"Error at {record.offset}, skipping. {error}"
