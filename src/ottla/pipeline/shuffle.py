"""How rows come to the tasks that write them: each task owns whole partitions, chosen as Kafka's producer does.

With one topic the partition is computed by Spark itself, with the hash function of the Kafka client that the connector
brings; with a column of topics, or without the connector, by a pass through Python. Rows that all name their
partition (a column that is declared NOT NULL) need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.settings import Settings
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.partitions import KEYLESS_RUN
from ottla.pipeline.tasks import TASK_COLUMN, assigning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BYTES: Final = ("key", "value")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_KINDS: Final = {
    "headers": _HEADERS,
    "partition": "int",
    "topic": "string",
}
_UTILS: Final = "org.apache.kafka.common.utils.Utils"
_LISTENER_WAIT_MS: Final = 10_000


def checked(df: DataFrame, topic: str | None) -> DataFrame:
    """The columns that go to Kafka, in the types the tasks expect; a sentence for what does not fit."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import BinaryType, StringType, TimestampType

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
            chosen.append(fn.col(name).cast(kind).alias(name))
    if "timestamp" in fields:
        times = fn.col("timestamp")
        if isinstance(fields["timestamp"], TimestampType):
            times = fn.unix_millis(times)
        chosen.append(times.cast("long").alias("timestamp"))
    return df.select(*chosen)


def spread(df: DataFrame, settings: Settings, topic: str | None, partitions: int | None) -> DataFrame:
    """The rows in as many tasks as write in parallel. `partitions` is the topic's count where there is one topic."""
    session = df.sparkSession
    several_topics = "topic" in df.columns
    cores = session.sparkContext.defaultParallelism
    tasks = cores if several_topics or partitions is None else min(cores, partitions)
    if tasks == 1:
        return df.repartition(1)
    hashed = None if several_topics or partitions is None else _murmur2(session)
    if "partition" in df.columns and not df.schema["partition"].nullable:
        assigned = _assigned_by_row(df, tasks)
    elif partitions is None or hashed is None:
        kinds = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in df.schema.fields)
        if "partition" not in df.columns:
            kinds += ", partition int"
        assigned = df.mapInArrow(assigning(settings, topic, tasks), f"{kinds}, {TASK_COLUMN} int")
    else:
        assigned = _assigned_by_spark(df, hashed, partitions, tasks)
    return assigned.repartitionById(tasks, TASK_COLUMN).drop(TASK_COLUMN)


def _assigned_by_row(df: DataFrame, tasks: int) -> DataFrame:
    from pyspark.sql import functions as fn

    place = fn.hash("topic") + fn.col("partition") if "topic" in df.columns else fn.col("partition")
    return df.withColumn(TASK_COLUMN, fn.pmod(place, fn.lit(tasks)).cast("int"))


def _assigned_by_spark(df: DataFrame, hashed: Column, partitions: int, tasks: int) -> DataFrame:
    from pyspark.sql import functions as fn

    run = fn.floor(fn.monotonically_increasing_id() / KEYLESS_RUN) % partitions
    chosen: Column = run.cast("int")
    if "key" in df.columns:
        by_key = hashed.bitwiseAND(fn.lit(0x7FFFFFFF)) % partitions
        chosen = fn.when(fn.col("key").isNull(), chosen).otherwise(by_key)
    if "partition" in df.columns:
        chosen = fn.coalesce(fn.col("partition"), chosen)
    with_partition = df.withColumn("partition", chosen.cast("int"))
    return with_partition.withColumn(TASK_COLUMN, fn.pmod(fn.col("partition"), fn.lit(tasks)).cast("int"))


def _murmur2(session: SparkSession) -> Column | None:
    """Kafka's own murmur2 of the column `key`, called in generated code; None where the connector is not loaded."""
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import Column as ColumnClass
    from pyspark.sql import functions as fn

    jvm: Any = session._jvm
    key: Any = fn.col("key")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        utils = jvm.java.lang.Class.forName(_UTILS, True, loader)
    except Py4JJavaError:
        return None
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    arguments = jvm.PythonUtils.toSeq([bridge.expression(key._jc)])
    kinds = jvm.PythonUtils.toSeq([])
    number = getattr(jvm.org.apache.spark.sql.types, "IntegerType$").__getattr__("MODULE$")
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils, number, "murmur2", arguments, kinds, True, False, True, jvm.scala.Option.empty()
    )
    return ColumnClass(bridge.column(call))


def retried_stage(session: SparkSession, report: list[Any]) -> bool:
    """Whether a stage that wrote was attempted more than once: its tasks all count as first attempts then."""
    context: Any = session.sparkContext
    stages = {row["stage"] for row in report}
    if not stages:
        return False
    context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENER_WAIT_MS)
    tracker = session.sparkContext.statusTracker()
    for stage in stages:
        told = tracker.getStageInfo(stage)
        if told is not None and told.currentAttemptId > 0:
            return True
    return False
