"""Native: a topology of expressions alone, from one topic to one other, as Spark's own columns, without Python workers.

Filters and maps must be expressions, and the serdes must be ones that Spark can read and write byte by byte the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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
from ottla.streams.planner.expression_columns import (
    CheckOnly,
    ColumnTranslator,
    NotNative,
    RecordColumns,
    SparkFunctions,
    Typed,
)
from ottla.streams.planner.plan import Plan
from ottla.streams.serdes import (
    AnySerde,
    bytes_serde,
    json_serde,
    long_serde,
    natural_serde,
    str_serde,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.streams.planner.rows import Tasks
    from ottla.streams.planner.spark_frames import Arriving


def applies(plan: Plan) -> bool:
    """Whether the whole topology has exact columns; found out by a translation that builds nothing."""
    if len(plan.stages) != 1:
        return False
    try:
        _Translation(cast("SparkFunctions", CheckOnly())).build(cast("DataFrame", CheckOnly()), plan.topology)
    except NotNative:
        return False
    return True


def build(records: Arriving, plan: Plan, _: Tasks) -> tuple[DataFrame, None]:
    """Records for the sink from records as they were read; no step is left."""
    return build_columns(records.frame(), plan.topology), None


def build_columns(records: DataFrame, topology: Topology) -> DataFrame:
    """The whole topology as columns; NotNative where it needs Python."""
    from pyspark.sql import functions

    return _Translation(cast("SparkFunctions", functions)).build(records, topology)


class _Translation:
    """Follows the one path from the source to the sink."""

    def __init__(self, functions: SparkFunctions) -> None:
        self._f = functions

    def build(self, records: DataFrame, topology: Topology) -> DataFrame:
        f = self._f
        source = _only(topology.sources, "source")
        operator = source.operator
        assert isinstance(operator, Source)
        if operator.timestamp_of is not None or operator.on_error is not OnError.FAIL:
            raise NotNative("times and errors are looked at one record at a time")
        columns = RecordColumns(
            self._read("key", operator.key_serde),
            self._read("value", operator.value_serde),
            f.unix_millis("timestamp"),
            f.col("headers") if "headers" in records.columns else f.array(),
        )
        raw = {"key": operator.key_serde, "value": operator.value_serde}
        return self._follow(records, source, columns, raw)

    def _follow(
        self, frame: DataFrame, node: Node, columns: RecordColumns, raw: dict[str, AnySerde | None]
    ) -> DataFrame:
        """`raw` names the parts that still have the bytes they came with, and their serdes."""
        child = _only(node.children, "child")
        operator = child.operator
        translator = ColumnTranslator(self._f, columns)
        if isinstance(operator, Sink):
            return self._write(frame, operator, columns, raw)
        if isinstance(operator, PassThrough):
            return self._follow(frame, child, columns, raw)
        if isinstance(operator, Filter) and operator.predicate.expression is not None:
            condition = translator.condition(operator.predicate.expression, negate=operator.negate)
            return self._follow(frame.where(condition), child, columns, raw)
        if isinstance(operator, (MapValues, SelectKey)) and operator.mapper.expression is not None:
            part = "value" if isinstance(operator, MapValues) else "key"
            made = translator.translate(operator.mapper.expression)
            changed = RecordColumns(columns.key, columns.value, columns.timestamp, columns.headers)
            setattr(changed, part, made)
            rest = {name: serde for name, serde in raw.items() if name != part}
            return self._follow(frame, child, changed, rest)
        raise NotNative(f"{child.name} is left to Python")

    def _read(self, name: str, serde: AnySerde | None) -> Typed:
        f = self._f
        column = f.col(name)
        if serde in (None, natural_serde, str_serde):
            return Typed(f.validate_utf8(column.cast("string")), "string")
        if serde is bytes_serde:
            return Typed(column, "binary")
        if serde is long_serde:
            return Typed(f.conv(f.hex(column), 16, -10).cast("long"), "long")
        if serde is json_serde:
            return Typed(f.parse_json(column.cast("string")), "variant")
        raise NotNative(f"only Python reads the serde {serde}")

    def _write(
        self, frame: DataFrame, sink: Sink, columns: RecordColumns, raw: dict[str, AnySerde | None]
    ) -> DataFrame:
        f = self._f
        if not isinstance(sink.topic, str) or sink.partitioner is not None or sink.internal:
            raise NotNative("the topic is chosen for each record")
        parts = []
        for name, wanted, typed in (
            ("key", sink.key_serde, columns.key),
            ("value", sink.value_serde, columns.value),
        ):
            unchanged = name in raw and (wanted or natural_serde) is (raw[name] or natural_serde)
            written = f.col(name) if unchanged else self._bytes(typed, wanted)
            parts.append(written.alias(name))
        headers = f.col("headers") if "headers" in frame.columns else f.lit(None)
        return frame.select(
            f.lit(sink.topic).alias("topic"),
            *parts,
            f.col("timestamp"),
            headers.cast("array<struct<key:string,value:binary>>").alias("headers"),
            f.lit(None).cast("int").alias("partition"),
        )

    def _bytes(self, value: Typed, serde: AnySerde | None) -> Column:
        f = self._f
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
        raise NotNative(f"only Python writes a {value.kind} with the serde {serde}")


def _only(nodes: list[Node], what: str) -> Node:
    if len(nodes) != 1:
        raise NotNative(f"there are {len(nodes)} nodes where one {what} is needed")
    return nodes[0]
