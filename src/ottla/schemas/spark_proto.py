"""Protobuf columns with schema ids in Spark: `from_protobuf` and `to_protobuf`, by the schemas of the registry.

df.select(from_protobuf("value", registry, "orders-value").alias("order"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.schemas import frames
from ottla.schemas.client import Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.proto import index_bytes
from ottla.schemas.proto_messages import (
    TIMESTAMP,
    WRAPPERS,
    MessageTypes,
    from_python,
    indexes_of,
    is_map,
    parse,
    read_indexes,
    repeated,
    to_python,
)
from ottla.schemas.rules import check_rules
from ottla.schemas.spark_columns import (
    MAX_COLUMN_DEPTH,
    MAX_COLUMN_TYPES,
    Mode,
    array_of,
    arrow_function,
    cached,
    check_mode,
    read_rows,
    too_many_columns,
)
from ottla.schemas.values import Decode, Value

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def from_protobuf(
    column: Column | str,
    registry: Registry,
    subject: str,
    message: str | None = None,
    *,
    mode: Mode = "failfast",
) -> Column:
    """A column of Protobuf records with schema ids as a column of structs.

    The type is that of `message` in the subject's latest version: its name, or the first message of the file. Records
    of other versions are read by the numbers of their fields, as Protobuf does. A record that cannot be read, or that
    is another message, fails the query with its schema id; it is null with `mode="permissive"`.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    permissive = check_mode(mode)
    held = registry.latest(subject)
    kind = spark_type(MessageTypes(registry, held).named(message).DESCRIPTOR)
    arrow = to_arrow_type(kind, timezone="UTC")
    number = held.id

    def read(values: pa.Array) -> pa.Array:
        reader = _message_class(registry, number, message)
        decoders: dict[bytes, Decode] = cached(("proto ids", registry.urls, number, message), dict)
        rows = read_rows(
            values,
            decoders,
            lambda each: _decoder(_readable(registry, each), reader),
            permissive=permissive,
        )
        return array_of(rows, arrow, permissive=permissive)

    return arrow_function(read, kind)(column)


def _readable(registry: Registry, number: int) -> MessageTypes:
    held = registry.by_id(number)
    check_rules(held, "READ")
    return MessageTypes(registry, held)


def _decoder(types: MessageTypes, reader: type[Message]) -> Decode:
    wanted = reader.DESCRIPTOR.full_name

    def decode(data: bytes, start: int, /) -> dict[str, Value]:
        path, start = read_indexes(data, start)
        found = types.at(path).DESCRIPTOR.full_name
        if found != wanted:
            raise InvalidData(f"it is a {found}, and {wanted} is wanted")
        return to_python(parse(reader, data[start:]))

    return decode


def to_protobuf(column: Column | str, registry: Registry, subject: str, message: str | None = None) -> Column:
    """A column of structs as Protobuf records with a schema id.

    The schema is the subject's latest version, which must be registered before; `message` is the name of one of its
    messages, else it is the first. Fields that are null stay absent.
    """
    held = registry.latest(subject)
    check_rules(held, "WRITE")
    number = held.id
    _message_class(registry, number, message)

    def write(values: pa.Array) -> pa.Array:
        import pyarrow as pa

        kind = _message_class(registry, number, message)
        prefix = frames.prefix(number) + index_bytes(indexes_of(kind.DESCRIPTOR))
        written = [
            None if value is None else prefix + from_python(kind, value).SerializeToString()
            for value in values.to_pylist()
        ]
        return pa.array(written, pa.binary())

    return arrow_function(write, "binary")(column)


def _message_class(registry: Registry, number: int, message: str | None) -> type[Message]:
    """The class of a message of a registered file, made once in each worker."""
    place = ("proto", registry.urls, number, message)
    return cached(place, lambda: MessageTypes(registry, registry.by_id(number)).named(message))


def spark_type(descriptor: Descriptor) -> DataType:
    """Spark's type of a message."""
    _check_columns(descriptor, (), [MAX_COLUMN_TYPES])
    return _spark_type(descriptor)


def _check_columns(one: Descriptor, above: tuple[str, ...], left: list[int]) -> None:
    """Refuse a message that contains itself, and one that grows beyond all bounds when it is written out."""
    if one.full_name in above:
        raise SchemaError(f"the message {one.full_name} contains itself, which no type in Spark does")
    for field in one.fields:
        left[0] -= 1
        if left[0] < 0 or len(above) > MAX_COLUMN_DEPTH:
            raise too_many_columns()
        kind = field.message_type
        if kind is not None and kind.full_name != TIMESTAMP and kind.full_name not in WRAPPERS:
            _check_columns(kind, (*above, one.full_name), left)


def _spark_type(descriptor: Descriptor) -> DataType:
    from pyspark.sql import types

    fields = [types.StructField(field.name, _field_type(field)) for field in descriptor.fields]
    return types.StructType(fields)


def _field_type(field: FieldDescriptor) -> DataType:
    from pyspark.sql import types

    if is_map(field):
        entry = field.message_type.fields_by_name
        return types.MapType(_plain_type(entry["key"]), _plain_type(entry["value"]))
    found = _plain_type(field)
    return types.ArrayType(found) if repeated(field) else found


def _plain_type(field: FieldDescriptor) -> DataType:
    """The type of one value, by the numbers of `FieldDescriptorProto.Type`."""
    from pyspark.sql import types

    kind = field.message_type
    if kind is not None:
        if kind.full_name == TIMESTAMP:
            return types.TimestampType()
        return _plain_type(kind.fields_by_name["value"]) if kind.full_name in WRAPPERS else _spark_type(kind)
    numbers: dict[int, DataType] = {
        1: types.DoubleType(),
        2: types.FloatType(),
        8: types.BooleanType(),
        9: types.StringType(),
        12: types.BinaryType(),
        14: types.StringType(),
        # Unsigned numbers of 64 bits do not fit into Spark's long.
        **dict.fromkeys((4, 6), types.DecimalType(20, 0)),
        **dict.fromkeys((3, 7, 13, 16, 18), types.LongType()),
        **dict.fromkeys((5, 15, 17), types.IntegerType()),
    }
    return numbers[field.type]
