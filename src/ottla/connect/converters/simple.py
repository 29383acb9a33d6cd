"""The converters of single values: strings, bytes, booleans and numbers of a fixed size."""

from __future__ import annotations

import codecs
import datetime
import struct
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from ottla.connect.converters.base import Converter, SchemaAndValue
from ottla.connect.data import schema as schemas
from ottla.connect.data.column_texts import plain_texts
from ottla.connect.data.columns import NotByColumns, Side, side_of
from ottla.connect.data.java_text import Float32, java_double, java_float
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type, java_class_of, schema_type
from ottla.connect.failures import ConfigInvalid, DataError
from ottla.java_order import java_map_order


class StringConverter(Converter):
    """`org.apache.kafka.connect.storage.StringConverter`: text in any encoding, other values as Java prints them."""

    def __init__(self, configs: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(configs, is_key=is_key)
        self.encoding = self.configs.get("converter.encoding", "UTF-8")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ConfigInvalid(f"converter.encoding: there is no encoding {self.encoding}") from None

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The text of a value."""
        return None if value is None else java_string(value, schema).encode(self.encoding, "replace")

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The text of some bytes."""
        return schemas.OPTIONAL_STRING, None if data is None else data.decode(self.encoding, "replace")

    @property
    def is_utf8(self) -> bool:
        """Whether texts have the bytes that Arrow gives them."""
        return codecs.lookup(self.encoding).name == "utf-8"

    def side_to_bytes(self, topic: str, side: Side) -> pa.Array:
        """The texts of all values."""
        if not self.is_utf8:
            raise NotByColumns
        return java_texts(side).cast(pa.binary())

    def bytes_to_side(self, topic: str, data: pa.Array) -> Side:
        """The texts of all bytes."""
        if self.is_utf8:
            try:
                return Side(schemas.OPTIONAL_STRING, (data.cast(pa.string()),))
            except pa.ArrowInvalid:
                pass
        texts = [None if one is None else one.decode(self.encoding, "replace") for one in data.to_pylist()]
        return side_of(schemas.OPTIONAL_STRING, texts)


def java_texts(side: Side) -> pa.Array:
    """`java_string` of all values, null for null. It raises where a text is no Unicode."""
    if side.schema is not None and not side.is_struct:
        found = plain_texts(side.schema, side.column)
        if found is not None:
            return found
    texts = [None if one is None else java_string(one, side.schema) for one in side.values()]
    return pa.array(texts, pa.string())


def java_string(value: ConnectValue, schema: Schema | None = None) -> str:
    """The text that Java's `toString()` gives a value."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        short = isinstance(value, Float32) or (schema is not None and schema.type is Type.FLOAT32)
        return java_float(value) if short else java_double(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(java_string(one) for one in value)}]"
    if isinstance(value, dict):
        texts = {java_string(key): java_string(one) for key, one in value.items()}
        return "{" + ", ".join(f"{key}={one}" for key, one in java_map_order(texts).items()) + "}"
    if isinstance(value, Struct):
        parts = (
            (at, value.without_default(at.name))
            for at in value.schema.fields
            if value.without_default(at.name) is not None
        )
        return "Struct{" + ",".join(f"{at.name}={java_string(one, at.schema)}" for at, one in parts) + "}"
    if isinstance(value, datetime.date | datetime.time):
        return _java_date(value)
    return str(value)


def _java_date(value: datetime.date | datetime.time) -> str:
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date(1970, 1, 1), value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    days, months = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), "JanFebMarAprMayJunJulAugSepOctNovDec"
    month = months[3 * value.month - 3 : 3 * value.month]
    return f"{days[value.weekday()]} {month} {value:%d %H:%M:%S} UTC {value.year}"


class ByteArrayConverter(Converter):
    """`org.apache.kafka.connect.converters.ByteArrayConverter`: bytes as they are."""

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The same bytes."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is not None and schema_type(value) is not Type.BYTES:
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type {java_class_of(value)}"
            )
        return None if value is None else bytes(value)

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The same bytes."""
        return schemas.OPTIONAL_BYTES, data

    def side_to_bytes(self, topic: str, side: Side) -> pa.Array:
        """The same bytes."""
        if side.schema is None or side.schema.type is not Type.BYTES or isinstance(side.column, list):
            raise NotByColumns
        return side.column.cast(pa.binary())

    def bytes_to_side(self, topic: str, data: pa.Array) -> Side:
        """The same bytes."""
        return Side(schemas.OPTIONAL_BYTES, (data,))


class BooleanConverter(Converter):
    """`org.apache.kafka.connect.converters.BooleanConverter`: one byte, 0 or 1."""

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """One byte."""
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type {java_class_of(value)}")
        return b"\1" if value else b"\0"

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """True for 1, False for 0."""
        if data is not None and data not in (b"\0", b"\1"):
            raise DataError("Failed to deserialize boolean: a boolean is one byte, 0 or 1")
        return schemas.optional(schemas.BOOLEAN), None if data is None else data == b"\1"


class _NumberConverter(Converter):
    layout: ClassVar[struct.Struct]
    schema: ClassVar[Schema]
    type_name: ClassVar[str]

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if value is None:
            return None
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and not (
            isinstance(value, float) and "float" in self.type_name + str(self.schema).lower()
        ):
            raise DataError(f"Failed to serialize to {self.type_name} (was {java_class_of(value)}): ")
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError):
            raise DataError(
                f"Failed to serialize to {self.type_name} (was {java_class_of(value)}): "
            ) from None

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return self.schema, None
        if len(data) != self.layout.size:
            raise DataError(f"Failed to deserialize {self.type_name}: it has {len(data)} bytes")
        return self.schema, self.layout.unpack(data)[0]

    def bytes_to_side(self, topic: str, data: pa.Array) -> Side:
        return side_of(self.schema, [self.to_connect(topic, one)[1] for one in data.to_pylist()])


class ShortConverter(_NumberConverter):
    """`org.apache.kafka.connect.converters.ShortConverter`."""

    layout, schema, type_name = struct.Struct(">h"), schemas.optional(schemas.INT16), "short"


class IntegerConverter(_NumberConverter):
    """`org.apache.kafka.connect.converters.IntegerConverter`."""

    layout, schema, type_name = struct.Struct(">i"), schemas.optional(schemas.INT32), "integer"


class LongConverter(_NumberConverter):
    """`org.apache.kafka.connect.converters.LongConverter`."""

    layout, schema, type_name = struct.Struct(">q"), schemas.optional(schemas.INT64), "long"


class FloatConverter(_NumberConverter):
    """`org.apache.kafka.connect.converters.FloatConverter`."""

    layout, schema, type_name = struct.Struct(">f"), schemas.optional(schemas.FLOAT32), "float"


class DoubleConverter(_NumberConverter):
    """`org.apache.kafka.connect.converters.DoubleConverter`."""

    layout, schema, type_name = struct.Struct(">d"), schemas.optional(schemas.FLOAT64), "double"
