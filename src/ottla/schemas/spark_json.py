"""JSON columns with schema ids in Spark: `from_json_schema` and `to_json_schema`.

df.select(from_json_schema("value", registry, "carts-value").alias("cart"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ottla.schemas.client import RegisteredSchema, Registry
from ottla.schemas.errors import SchemaError
from ottla.schemas.json import JsonSchemaSerde
from ottla.schemas.json_schema_types import JsonType, json_type
from ottla.schemas.rules import check_rules
from ottla.schemas.serde import JsonOptions, Schema
from ottla.schemas.spark_columns import Mode, array_of, arrow_function, cached, check_mode, read_rows
from ottla.schemas.values import Decode, Value

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def from_json_schema(
    column: Column | str,
    registry: Registry,
    subject: str | None = None,
    schema: Schema = None,
    *,
    mode: Mode = "failfast",
    validate: bool = True,
) -> Column:
    """A column of JSON records with schema ids as a column of structs.

    The type is that of `schema` (a dataclass, a dict, JSON text or a path), else of the subject's latest version. With
    `validate` each record is checked against the schema that it names. A record that cannot be read fails the query
    with its schema id; it is null with `mode="permissive"`.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    permissive = check_mode(mode)
    serde = registry.json(subject or "-", schema)
    if schema is None:
        if subject is None:
            raise SchemaError("from_json_schema needs a subject or a schema, to know the type of the column")
        held = registry.latest(subject)
        serde._check_type(held)
        found = json_type(held.text, serde._texts(held.references))
    else:
        found = json_type(serde._text or "true", {})
    kind = spark_type(found)
    arrow = to_arrow_type(kind, timezone="UTC")

    def read(values: pa.Array) -> pa.Array:
        def reader() -> JsonSchemaSerde:
            return registry.json("-", validate=validate)

        plain = cached(("json", registry.urls, validate), reader)
        decoders: dict[bytes, Decode] = cached(("json ids", registry.urls, validate), dict)
        rows = read_rows(
            values,
            decoders,
            lambda number: plain._decoder(_readable(registry, number)),
            permissive=permissive,
        )
        return array_of(rows, arrow, permissive=permissive)

    return arrow_function(read, kind)(column)


def _readable(registry: Registry, number: int) -> RegisteredSchema:
    held = registry.by_id(number)
    check_rules(held, "READ")
    return held


def to_json_schema(
    column: Column | str,
    registry: Registry,
    subject: str,
    schema: Schema = None,
    **options: Unpack[JsonOptions],
) -> Column:
    """A column of structs as JSON records with a schema id. The schema is registered. Null fields are left out."""
    serde = registry.json(subject, schema, **options)

    def write(values: pa.Array) -> pa.Array:
        import pyarrow as pa

        written = [serde.serialize("", [], without_nulls(value)) for value in values.to_pylist()]
        return pa.array(written, pa.binary())

    return arrow_function(write, "binary")(column)


def without_nulls(value: Value) -> Value:
    """A document without its null fields, as Spark's own `to_json` writes it. Maps come from Arrow as pairs."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return {key: without_nulls(each) for key, each in value}
        return [without_nulls(each) for each in value]
    return value


def spark_type(one: JsonType) -> DataType:
    """Spark's type of a JSON type."""
    from pyspark.sql import types

    if one.kind == "object":
        fields = [types.StructField(name, spark_type(each)) for name, each in one.fields]
        return types.StructType(fields)
    if one.items is not None:
        items = spark_type(one.items)
        if one.kind == "array":
            return types.ArrayType(items)
        if one.keys is not None:
            raise SchemaError("a map that is written as a list of entries has no type in Spark here")
        return types.MapType(types.StringType(), items)
    plain: dict[str, DataType] = {
        "integer": types.LongType(),
        "number": types.DoubleType(),
        "boolean": types.BooleanType(),
    }
    return plain.get(one.kind, types.StringType())
