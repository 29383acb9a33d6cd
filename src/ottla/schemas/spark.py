"""Avro columns in Spark: `from_avro` and `to_avro` as Arrow functions, with the schema that each record names.

    df.select(from_avro("value", registry, "orders-value").alias("order"))

Records of several writer schemas may stand in one column: each is read with its own, into the reader's type.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack
from urllib.parse import quote

from ottla.json_types import as_text
from ottla.registry import avro
from ottla.registry.avro_types import AvroType
from ottla.registry.compat.avro import AmbiguousField, compare
from ottla.schemas.avro_decode import compile_decoder, is_text
from ottla.schemas.avro_unions import NUMBERS, spark_members, types_of
from ottla.schemas.avro_values import decimal_digits
from ottla.schemas.client import Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.rules import check_rules
from ottla.schemas.serde import AvroOptions, Schema
from ottla.schemas.spark_columns import (
    MAX_COLUMN_DEPTH,
    MAX_COLUMN_TYPES,
    Mode,
    arrow_function,
    cached,
    check_mode,
    read_rows,
    too_many_columns,
    unreadable,
)
from ottla.schemas.spark_json import from_json_schema, to_json_schema
from ottla.schemas.spark_jvm import read_in_jvm
from ottla.schemas.spark_proto import from_protobuf, to_protobuf
from ottla.schemas.values import Decode, Value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from ottla.schemas import avro_columns

Engine: TypeAlias = Literal["python", "jvm"]
"""What reads Avro: Arrow functions in Python workers, or Spark's own reader of the package spark-avro."""

__all__ = [
    "from_avro",
    "from_json_schema",
    "from_protobuf",
    "to_avro",
    "to_json_schema",
    "to_protobuf",
]


def from_avro(
    column: Column | str,
    registry: Registry,
    subject: str | None = None,
    schema: Schema = None,
    *,
    mode: Mode = "failfast",
    engine: Engine = "python",
) -> Column:
    """A column of records with schema ids as a column of structs.

    The type is that of `schema` (a dataclass, a dict, JSON text or a path), else of the subject's latest version. A
    record that cannot be read fails the query with its schema id; it is null with `mode="permissive"`.
    `engine="jvm"` reads with the package spark-avro and the schemas that the subject has when the column is made. A
    record with a later schema fails the query.
    """
    permissive = check_mode(mode)
    text = _reader_text(registry, subject, schema)
    reader = avro.parse(text, lenient=True).root
    kind = spark_type(reader)
    if engine == "jvm":
        return read_in_jvm(column, registry, subject, text, permissive=permissive)
    if engine != "python":
        raise SchemaError(f"there is no engine {engine!r}: use 'python' or 'jvm'")

    def read(values: pa.Array) -> pa.Array:
        return read_column(values, registry, text, permissive=permissive)

    return arrow_function(read, kind)(column)


def to_avro(
    column: Column | str,
    registry: Registry,
    subject: str,
    schema: Schema = None,
    **options: Unpack[AvroOptions],
) -> Column:
    """A column of structs as records with a schema id. The schema is registered under the subject."""
    options = {"unions": spark_members, **options}
    serde = registry.avro(subject, schema, **options)
    if serde._attributes:
        # Rows come as dicts: a dataclass gives its schema only.
        serde = registry.avro(subject, serde._text, **options)

    def write(values: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.array([serde.serialize("", [], value) for value in values.to_pylist()], pa.binary())

    return arrow_function(write, "binary")(column)


def _reader_text(registry: Registry, subject: str | None, schema: Schema) -> str:
    if schema is not None:
        text = registry.avro(subject or "-", schema)._text
        assert isinstance(text, str)
        return text
    if subject is None:
        raise SchemaError("from_avro needs a subject or a schema, to know the type of the column")
    held = registry.latest(subject)
    if held.type != "AVRO":
        raise SchemaError(f"the subject {subject} holds {held.type}, and from_avro reads AVRO")
    return _whole(registry, subject) if held.references else held.text


def _whole(registry: Registry, subject: str) -> str:
    """The latest version with its references written into it."""
    path = f"/subjects/{quote(subject, safe='')}/versions/latest?format=resolved"
    return as_text(registry.ask_object("GET", path, about=subject).get("schema"), "schema")


# -- types


def spark_type(one: AvroType) -> DataType:
    """Spark's type of an Avro type; SchemaError where there is none."""
    _check_columns(one)
    return _spark_type(one)


def _spark_type(one: AvroType) -> DataType:
    from pyspark.sql import types

    plain: dict[str, DataType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "enum": types.StringType(),
        "bytes": types.BinaryType(),
        "fixed": types.BinaryType(),
        "null": types.NullType(),
    }
    logical = one.props.get("logicalType")
    if logical == "decimal" and one.kind in ("bytes", "fixed"):
        return types.DecimalType(*decimal_digits(one))
    if one.kind == "int" and logical == "date":
        return types.DateType()
    if one.kind == "long" and logical in ("timestamp-millis", "timestamp-micros"):
        return types.TimestampType()
    if one.kind == "long" and logical in ("local-timestamp-millis", "local-timestamp-micros"):
        return types.TimestampNTZType()
    if one.kind in plain:
        return plain[one.kind]
    if one.kind == "union":
        number, others = _union(one)
        if number is not None:
            return plain[number]
        if len(others) == 1:
            return _spark_type(others[0][1])
        return types.StructType([types.StructField(name, _spark_type(branch)) for name, branch in others])
    if one.kind == "array":
        assert one.items is not None
        return types.ArrayType(_spark_type(one.items))
    if one.kind == "map":
        assert one.items is not None
        return types.MapType(types.StringType(), _spark_type(one.items))
    return types.StructType([types.StructField(field.name, _spark_type(field.type)) for field in one.fields])


def _union(one: AvroType) -> tuple[str | None, list[tuple[str, AvroType]]]:
    """Of a union the kind of number that it is, or its types beside null with their names in a struct."""
    names = spark_members(one)
    others = types_of(one)
    if names is None and len(others) != 1:
        return (NUMBERS[frozenset(branch.kind for branch in others)] if others else "null"), []
    shown = [name for name in names if name is not None] if names else [""]
    return None, list(zip(shown, others, strict=True))


def _check_columns(root: AvroType) -> None:
    """Refuse a type that contains itself, and one that grows beyond all bounds when its records are written out."""
    left = MAX_COLUMN_TYPES

    def visit(one: AvroType, above: tuple[int, ...]) -> None:
        nonlocal left
        if id(one) in above:
            raise SchemaError(f"the record {one.name} contains itself, which no type in Spark does")
        left -= 1
        if left < 0 or len(above) > MAX_COLUMN_DEPTH:
            raise too_many_columns()
        path = (*above, id(one))
        for part in (*(field.type for field in one.fields), *one.branches):
            visit(part, path)
        if one.items is not None:
            visit(one.items, path)

    visit(root, ())


def arrow_type(one: AvroType) -> pa.DataType:
    """The Arrow type that the raw values of an Avro type have: times in the unit that they are written in."""
    import pyarrow as pa

    logical = one.props.get("logicalType")
    if one.kind == "long" and logical in ("timestamp-millis", "timestamp-micros"):
        return pa.timestamp("ms" if logical.endswith("millis") else "us", "UTC")
    if one.kind == "long" and logical in ("local-timestamp-millis", "local-timestamp-micros"):
        return pa.timestamp("ms" if logical.endswith("millis") else "us")
    if one.kind == "union":
        number, others = _union(one)
        if number is not None:
            return arrow_type(AvroType(number))
        if len(others) == 1:
            return arrow_type(others[0][1])
        return pa.struct([pa.field(name, arrow_type(branch)) for name, branch in others])
    if one.kind == "array":
        assert one.items is not None
        return pa.list_(arrow_type(one.items))
    if one.kind == "map":
        assert one.items is not None
        return pa.map_(pa.string(), arrow_type(one.items))
    if one.kind in ("record", "error"):
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in one.fields])
    if logical == "decimal" and one.kind in ("bytes", "fixed"):
        return pa.decimal128(*decimal_digits(one))
    if one.kind == "int" and logical == "date":
        return pa.date32()
    return {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "fixed": pa.binary(),
        "null": pa.null(),
    }.get(one.kind, pa.string())


def _spark_unit(kind: pa.DataType) -> pa.DataType:
    """The same Arrow type with times in microseconds, as Spark has them."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_spark_unit(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _spark_unit(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _spark_unit(field.type)) for field in kind])
    return kind


# -- functions of the workers


def read_column(values: pa.Array, registry: Registry, text: str, *, permissive: bool) -> pa.Array:
    """An Arrow column of records as a column of their values."""
    reader = cached(("reader", text), lambda: avro.parse(text, lenient=True).root)
    kind, wanted = cached(("types", text), lambda: _types(reader))
    collecting = gc.isenabled()
    # A batch makes many rows and no cycles: the collector would only walk over them.
    gc.disable()
    try:
        found = _read_by_columns(values, registry, text, reader, kind)
        if found is None:
            found = _read_by_rows(values, registry, text, reader, kind, permissive=permissive)
    finally:
        if collecting:
            gc.enable()
    return found if wanted == kind else found.cast(wanted)


def _read_by_columns(
    values: pa.Array, registry: Registry, text: str, reader: AvroType, kind: pa.DataType
) -> pa.Array | None:
    """The column, read field by field; None where only the way by rows reads it, or names the record that it cannot."""
    from ottla.schemas import avro_columns

    plans: dict[int, avro_columns.Plan | None] = cached(("plans", registry.urls, text), dict)

    def plan(number: int) -> avro_columns.Plan | None:
        if number in plans:
            return plans[number]
        try:
            writer = _writer(registry, number)
        except SchemaError as error:
            if error.says_nothing_about_the_record:
                raise
            # The way by rows names it. It may be known tomorrow.
            return None
        plans[number] = _plan(writer, reader, kind)
        return plans[number]

    try:
        return avro_columns.read_batch(values, plan)
    except avro_columns.Unusual:
        return None


def _plan(writer: AvroType, reader: AvroType, kind: pa.DataType) -> avro_columns.Plan | None:
    from ottla.schemas import avro_columns

    try:
        _check_columns(writer)
        return None if compare(reader, writer) else avro_columns.plan(writer, reader, kind)
    except (avro_columns.Unsupported, SchemaError, AmbiguousField):
        return None


def _read_by_rows(
    values: pa.Array, registry: Registry, text: str, reader: AvroType, kind: pa.DataType, *, permissive: bool
) -> pa.Array:
    import pyarrow as pa

    def rows(*, texts: bool) -> list[Value]:
        decoders: dict[bytes, Decode] = cached(("ids", registry.urls, text, texts), dict)
        return read_rows(
            values,
            decoders,
            lambda number: _decoder(registry, number, reader, texts=texts),
            permissive=permissive,
        )

    def array(found: list[Value]) -> pa.Array:
        is_record = reader.kind in ("record", "error")
        return _columns(found, kind, reader) if is_record else pa.array(found, kind)

    try:
        return array(rows(texts=reader.kind not in ("record", "error")))
    except (pa.ArrowInvalid, OverflowError):
        # Some text is not UTF-8, or some number is too large. The slower way finds the record.
        found = rows(texts=True)
    for at, row in enumerate(found):
        try:
            array([row])
        except (pa.ArrowInvalid, OverflowError) as error:
            if not permissive:
                raise unreadable(values[at].as_py(), error) from None
            found[at] = None
    return array(found)


def _types(reader: AvroType) -> tuple[pa.DataType, pa.DataType]:
    _check_columns(reader)
    kind = arrow_type(reader)
    return kind, _spark_unit(kind)


def _columns(rows: list[Value], kind: pa.DataType, reader: AvroType) -> pa.Array:
    import pyarrow as pa

    empty = (None,) * len(reader.fields)
    missing = [row is None for row in rows]
    some_missing = any(missing)
    if not rows or not reader.fields:
        return pa.array([None if row is None else {} for row in rows], kind)
    full = [empty if row is None else row for row in rows] if some_missing else rows
    columns = []
    for at, values in enumerate(zip(*full, strict=True)):
        if is_text(reader.fields[at].type):
            columns.append(pa.array(values, pa.binary()).cast(pa.string()))
        else:
            columns.append(pa.array(values, kind.field(at).type))
    mask = pa.array(missing, pa.bool_()) if some_missing else None
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _decoder(registry: Registry, number: int, reader: AvroType, *, texts: bool) -> Decode:
    return compile_decoder(
        _writer(registry, number), reader, checked=False, rows=True, texts=texts, members=spark_members
    )


def _writer(registry: Registry, number: int) -> AvroType:
    held = registry.by_id(number)
    check_rules(held, "READ")
    if held.type != "AVRO":
        raise InvalidData(f"the schema {number} is {held.type}, and from_avro reads AVRO", number)
    return registry.avro("-")._parse(held.text, held.references).root
