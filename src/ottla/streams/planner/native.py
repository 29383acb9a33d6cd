"""Topologies of expressions alone, without Python on the way: filters and maps as Spark's own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.graph.operators import (
    Filter,
    MapValues,
    OnError,
    PassThrough,
    SelectKey,
    Sink,
    Source,
)
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.planner.expression_columns import NotNative, RecordColumns, Typed, condition, translate
from ottla.streams.serdes import (
    Serde,
    bytes_serde,
    json_serde,
    long_serde,
    natural_serde,
    str_serde,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build_native(records: DataFrame, topology: Topology) -> DataFrame:
    """The whole topology as columns, or NotNative: then it is Python's."""
    (source,) = _only(topology.sources, "source")
    operator = source.operator
    assert isinstance(operator, Source)
    if operator.timestamp_of is not None or operator.on_error is not OnError.FAIL:
        raise NotNative("times and errors are looked at one record at a time")
    from pyspark.sql import functions as f

    columns = RecordColumns(
        _read("key", operator.key_serde),
        _read("value", operator.value_serde),
        f.unix_millis("timestamp"),
        f.col("headers") if "headers" in records.columns else f.array(),
    )
    raw = {"key": operator.key_serde, "value": operator.value_serde}
    return _follow(records, source, columns, raw)


def _only(nodes: list[Node], what: str) -> list[Node]:
    if len(nodes) != 1:
        raise NotNative(f"{len(nodes)} {what}s")
    return nodes


def _follow(
    frame: DataFrame, node: Node, columns: RecordColumns, raw: dict[str, Serde[Any] | None]
) -> DataFrame:
    """One path from the source to one sink; `raw` names what still has the bytes it came with, and their serde."""
    (child,) = _only(node.children, "way")
    operator = child.operator
    if isinstance(operator, Sink):
        return _write(frame, operator, columns, raw)
    if isinstance(operator, PassThrough):
        return _follow(frame, child, columns, raw)
    if isinstance(operator, Filter) and operator.predicate.expression is not None:
        kept = frame.where(condition(operator.predicate.expression, columns, negate=operator.negate))
        return _follow(kept, child, columns, raw)
    if isinstance(operator, (MapValues, SelectKey)) and operator.mapper.expression is not None:
        part = "value" if isinstance(operator, MapValues) else "key"
        made = translate(operator.mapper.expression, columns)
        changed = RecordColumns(columns.key, columns.value, columns.timestamp, columns.headers)
        setattr(changed, part, made)
        rest = {name: serde for name, serde in raw.items() if name != part}
        return _follow(frame, child, changed, rest)
    raise NotNative(f"{child.name} is left to Python")


def _read(name: str, serde: Serde[Any] | None) -> Typed:
    from pyspark.sql import functions as f

    column = f.col(name)
    if serde in (None, natural_serde, str_serde):
        return Typed(f.validate_utf8(column.cast("string")), "string")
    if serde is bytes_serde:
        return Typed(column, "binary")
    if serde is long_serde:
        return Typed(f.conv(f.hex(column), 16, -10).cast("long"), "long")
    if serde is json_serde:
        return Typed(f.parse_json(column.cast("string")), "variant")
    raise NotNative(f"the serde {serde} is Python's")


def _write(
    frame: DataFrame, sink: Sink, columns: RecordColumns, raw: dict[str, Serde[Any] | None]
) -> DataFrame:
    from pyspark.sql import functions as f

    if not isinstance(sink.topic, str) or sink.partitioner is not None or sink.internal:
        raise NotNative("the topic is chosen for each record")
    parts = []
    for name, wanted, typed in (
        ("key", sink.key_serde, columns.key),
        ("value", sink.value_serde, columns.value),
    ):
        unchanged = name in raw and (wanted or natural_serde) is (raw[name] or natural_serde)
        written = f.col(name) if unchanged else _bytes(typed, wanted)
        parts.append(written.alias(name))
    headers = f.col("headers") if "headers" in frame.columns else f.lit(None)
    return frame.select(
        f.lit(sink.topic).alias("topic"),
        *parts,
        f.col("timestamp"),
        headers.cast("array<struct<key:string,value:binary>>").alias("headers"),
        f.lit(None).cast("int").alias("partition"),
    )


def _bytes(value: Typed, serde: Serde[Any] | None) -> Any:
    from pyspark.sql import functions as f

    natural = serde in (None, natural_serde)
    if value.kind == "null":
        return f.lit(None).cast("binary")
    if value.kind == "string" and (natural or serde is str_serde):
        return value.column.cast("binary")
    if value.kind == "binary" and (natural or serde is bytes_serde):
        return value.column
    if value.kind == "long" and (natural or serde is long_serde):
        return f.unhex(f.lpad(f.hex(value.column), 16, "0"))
    if value.kind in ("struct", "variant") and (natural or serde is json_serde):
        shown = f.to_json(value.column, {"ignoreNullFields": "false"})
        return f.when(value.column.isNotNull(), shown).cast("binary")
    raise NotNative(f"a {value.kind} is written by Python")
