"""Shuffles rows to the tasks that write them: each task owns whole partitions, chosen as Kafka's producer does.

Spark itself computes the partition, with the hash function of the Kafka client in the connector. A topic whose
partitions are not known yet, or whose keys cannot be hashed here, belongs to one task, which chooses partitions itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, StringType, TimestampType

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import gateway_of, java_column, java_context, jvm_of
from ottla.pipeline.partitions import KEYLESS_RUN

TASK_COLUMN: Final = "ottla_task"
_BYTES: Final = ("key", "value")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_KINDS: Final = {
    "headers": _HEADERS,
    "partition": "int",
    "topic": "string",
}
_UTILS: Final = "org.apache.kafka.common.utils.Utils"
_LISTENER_WAIT_MS: Final = 10_000


class Layouts:
    """The columns for frames of one shape, built once.

    Each part of a column is a call to Java and back. With some sixty of them, a small micro-batch would wait longer for
    its columns than for its tasks.
    """

    def __init__(self) -> None:
        self._checked: dict[tuple[object, ...], list[Column]] = {}
        self._spread: dict[tuple[object, ...], list[list[Column]]] = {}
        self._gateway: object = None

    def checked(self, df: DataFrame, topic: str | None) -> DataFrame:
        """The columns for Kafka, in the types that the tasks expect; PipelineError for one that does not fit."""
        gateway = gateway_of(df.sparkSession.sparkContext)
        if gateway is not self._gateway:
            # Columns are objects of the JVM: those of an earlier JVM are gone with it.
            self._checked.clear()
            self._spread.clear()
            self._gateway = gateway
        shape = (topic, *((field.name, field.dataType.simpleString()) for field in df.schema.fields))
        if shape not in self._checked:
            self._checked[shape] = _checked_columns(df, topic)
        return df.select(*self._checked[shape])

    def spread(self, df: DataFrame, topic: str | None, partitions: Mapping[str, int]) -> DataFrame:
        """The rows of a checked frame, shuffled to the tasks that write; `partitions` counts those of known topics."""
        several = "topic" in df.columns
        tasks = df.sparkSession.sparkContext.defaultParallelism
        if not several:
            tasks = min(tasks, partitions.get(topic or "", 1))
        if tasks == 1:
            return df.repartition(1)
        shape = (topic, tasks, *df.columns, *sorted(partitions.items()))
        if shape not in self._spread:
            self._spread.clear()
            self._spread[shape] = _spread_columns(df, topic, partitions, tasks)
        rows = df
        for columns in self._spread[shape]:
            rows = rows.select(*columns)
        return rows.repartitionById(tasks, TASK_COLUMN).drop(TASK_COLUMN)


def checked(df: DataFrame, topic: str | None) -> DataFrame:
    """The columns for Kafka, in the types that the tasks expect; PipelineError for one that does not fit."""
    return Layouts().checked(df, topic)


def _checked_columns(df: DataFrame, topic: str | None) -> list[Column]:
    fields = {field.name: field.dataType for field in df.schema.fields}
    if "value" not in fields:
        raise PipelineError(
            f"a DataFrame for Kafka needs a column `value`; this has {', '.join(fields) or 'none'}"
        )
    if "topic" not in fields and topic is None:
        raise PipelineError("no topic to write to: give the sink one, or the DataFrame a column `topic`")
    chosen: list[Column] = []
    for name in _BYTES:
        if name in fields:
            if not isinstance(fields[name], BinaryType | StringType):
                raise PipelineError(
                    f"column `{name}` is {fields[name].simpleString()}: make it a string or binary first"
                )
            chosen.append(fn.col(name).cast("binary").alias(name))
    for name, kind in _KINDS.items():
        if name in fields:
            column = fn.col(name).cast(kind)
            if name == "headers":
                # Never null: from the first null of a list column on, Spark computes the size of each row again.
                column = fn.coalesce(column, fn.array().cast(kind))
            chosen.append(column.alias(name))
    if "timestamp" in fields:
        times = fn.col("timestamp")
        if isinstance(fields["timestamp"], TimestampType):
            times = fn.unix_millis(times)
        chosen.append(times.cast("long").alias("timestamp"))
    return chosen


def _spread_columns(
    df: DataFrame, topic: str | None, partitions: Mapping[str, int], tasks: int
) -> list[list[Column]]:
    """First the partition, then the task, in two steps: a row without a key gets its partition once only."""
    if "topic" in df.columns:
        named = fn.coalesce("topic", fn.lit(topic)) if topic is not None else fn.col("topic")
        count = _looked_up(partitions, named)
        first = fn.pmod(fn.hash(named), fn.lit(tasks))
    else:
        count, first = fn.lit(partitions.get(topic or "", 1)), fn.lit(0)
    hashed = _murmur2(df.sparkSession) if "key" in df.columns else None
    if hashed is None and "key" in df.columns:
        return [[fn.col("*"), first.cast("int").alias(TASK_COLUMN)]]
    chosen = _partition(df, hashed, count)
    own = fn.pmod(first + fn.pmod(fn.col("partition"), fn.lit(tasks)), fn.lit(tasks))
    task = fn.when(count.isNull(), first).otherwise(own).cast("int").alias(TASK_COLUMN)
    kept = [fn.col(name) for name in df.columns if name != "partition"]
    return [[*kept, chosen.alias("partition")], [fn.col("*"), task]]


def _looked_up(partitions: Mapping[str, int], topic: Column) -> Column:
    if not partitions:
        return fn.lit(None).cast("int")
    pairs = [fn.lit(word) for pair in partitions.items() for word in pair]
    return fn.try_element_at(fn.create_map(*pairs), topic)


def _partition(df: DataFrame, hashed: Column | None, count: Column) -> Column:
    """A row's own partition, else that of its key, else the next in turn; null where the count is not known."""
    chosen = fn.pmod(fn.floor(fn.monotonically_increasing_id() / KEYLESS_RUN), count).cast("int")
    if hashed is not None:
        by_key = fn.pmod(hashed.bitwiseAND(fn.lit(0x7FFFFFFF)), count).cast("int")
        chosen = fn.when(fn.col("key").isNull(), chosen).otherwise(by_key)
    return fn.coalesce("partition", chosen) if "partition" in df.columns else chosen


def _murmur2(session: SparkSession) -> Column | None:
    """Kafka's own murmur2 of the column `key`, called in generated code; None if the connector is not loaded."""
    jvm = jvm_of(session)
    key = java_column(fn.col("key"))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        utils = jvm.java.lang.Class.forName(_UTILS, True, loader)
    except Py4JJavaError:
        return None
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    arguments = jvm.PythonUtils.toSeq([bridge.expression(key)])
    kinds = jvm.PythonUtils.toSeq([])
    number = getattr(jvm.org.apache.spark.sql.types, "IntegerType$").__getattr__("MODULE$")
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils, number, "murmur2", arguments, kinds, True, False, True, jvm.scala.Option.empty()
    )
    return Column(bridge.column(call))


def retried_stage(session: SparkSession, report: list[Row]) -> bool:
    """Whether a stage that wrote was attempted more than once; then its tasks all count as first attempts."""
    stages = {row["stage"] for row in report}
    if not stages:
        return False
    java_context(session.sparkContext).listenerBus().waitUntilEmpty(_LISTENER_WAIT_MS)
    tracker = session.sparkContext.statusTracker()
    for stage in stages:
        info = tracker.getStageInfo(stage)
        if info is not None and info.currentAttemptId > 0:
            return True
    return False
