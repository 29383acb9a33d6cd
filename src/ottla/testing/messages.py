"""Messages for tests: random ones of any class and version, and those in the JSON of Kafka's own converters."""

from __future__ import annotations

import base64
import random
from typing import Any, TypeVar

from ottla.wire.classes import WireMessage, WireStruct, struct_classes
from ottla.wire.schema import Field, snake_case
from ottla.wire.uuid import uuid_from_str

M = TypeVar("M", bound=WireMessage)
S = TypeVar("S", bound=WireStruct)
Json = dict[str, Any]
"""A JSON object; its schema gives the types of its values."""

_INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_SHORT_WORDS = ("a", "orders", "ключ")
_WORDS = ("", "a", "orders", "ключ", "日本", "😀", "x" * 126, "y" * 127, "é" * 200)


def random_message(cls: type[M], version: int, rng: random.Random, *, unknown_tags: bool = False) -> M:
    """Return a message with random values in all fields of this version; other fields keep their defaults."""
    return _random_struct(cls, cls, version, rng, unknown_tags and version >= cls.FIRST_FLEXIBLE)


def _random_struct(
    owner: type[WireMessage], cls: type[S], version: int, rng: random.Random, unknown_tags: bool
) -> S:
    values: dict[str, object] = {}
    for field in cls.SCHEMA.fields:
        # A tagged field is left out half of the time, as it mostly is on the wire.
        if version in field.versions and not (field.is_tagged(version) and rng.random() < 0.5):
            values[field.name] = _random_value(owner, field, version, rng, unknown_tags)
    if unknown_tags and rng.random() < 0.3:
        tags = sorted(rng.sample(range(100, 40_000), rng.randint(1, 3)))
        values["unknown_tagged_fields"] = [(tag, rng.randbytes(rng.choice((0, 5, 200)))) for tag in tags]
    return cls(**values)


def _random_value(
    owner: type[WireMessage], field: Field, version: int, rng: random.Random, unknown_tags: bool
) -> object:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        count = rng.choice((0, 1, 1, 2, 3))
        return [_random_element(owner, field, version, rng, unknown_tags) for _ in range(count)]
    return _random_element(owner, field, version, rng, unknown_tags)


def _random_element(
    owner: type[WireMessage], field: Field, version: int, rng: random.Random, unknown_tags: bool
) -> object:
    if field.struct is not None:
        inner = struct_classes(owner.NAME)[field.type]
        return _random_struct(owner, inner, version, rng, unknown_tags)
    match field.type:
        case "string":
            # Mostly short words: golden files stay small, and long words come often enough.
            return rng.choice(_WORDS) if rng.random() < 0.4 else rng.choice(_SHORT_WORDS)
        case "bytes":
            return rng.randbytes(rng.choice((0, 1, 3, 126, 127)))
        case "records":
            return records_of(rng.choice((0, 1, 127, 128, 5000)))
        case "uuid":
            return rng.randbytes(16)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        case "uint16" | "uint32":
            top = (1 << int(field.type[4:])) - 1
            return rng.choice((0, 1, top, rng.randint(0, top)))
        case kind:
            top = (1 << _INT_BITS[kind] - 1) - 1
            return rng.choice((0, -1, 1, top, -top - 1, rng.randint(-top, top)))


def records_of(size: int) -> bytes:
    """Return bytes in place of records: Kafka's JSON has only their size."""
    return bytes(index % 251 for index in range(size))


def from_kafka_json(cls: type[M], node: Json) -> M:
    """Return the message that one of Kafka's `...JsonConverter` classes wrote."""
    return _struct_from_json(cls, cls, node)


def _struct_from_json(owner: type[WireMessage], cls: type[S], node: Json) -> S:
    by_name = {field.name: field for field in cls.SCHEMA.fields}
    values: dict[str, object] = {}
    for key, value in node.items():
        name = snake_case(key[0].upper() + key[1:])
        if name.endswith("_size_in_bytes") and name not in by_name:
            values[name.removesuffix("_size_in_bytes")] = records_of(value)
            continue
        field = by_name[name]
        if value is None:
            values[name] = None
        elif field.is_array:
            values[name] = [_element_from_json(owner, field, one) for one in value]
        else:
            values[name] = _element_from_json(owner, field, value)
    return cls(**values)


def _element_from_json(owner: type[WireMessage], field: Field, value: Any) -> object:
    if field.struct is not None:
        return _struct_from_json(owner, struct_classes(owner.NAME)[field.type], value)
    if field.type == "uuid":
        return uuid_from_str(value)
    if field.type == "bytes":
        return base64.b64decode(value)
    return value
