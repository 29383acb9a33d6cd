"""Spark source: the rows of anything that Spark reads, as records.

`mode=incrementing` reads the rows behind the greatest value of a column so far, `mode=bulk` everything each time, and
`mode=stream` is a Structured Streaming query with a checkpoint. Each cycle is a Spark job, exactly once: offsets are in
its transaction, also the number of a stream's batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.run.context import RunContext
from ottla.connect.run.runner import Run, passes
from ottla.connect.run.source import SourceRun
from ottla.connect.spark_options import COMMON, OPTIONS, first_line, options_of, place_errors
from ottla.connect.spi import (
    FrameReader,
    Offsets,
    ReadLimit,
    SourceConnector,
    SourceReader,
    Split,
    partition_key,
)
from ottla.json_types import Json
from ottla.pipeline.failures import SinkFenced

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
STREAM: Final = "stream"
_ORDERED: Final = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
)
_BATCH: Final = "batch"


class SparkSource(SourceConnector):
    """`ottla.connect.SparkSource`."""

    java_classes = ("ottla.connect.SparkSource",)
    version = "0.1.0"
    extra = "spark"
    needs_jvm = True
    free_prefixes = (OPTIONS,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The format, what of it is read, and which topic gets it."""
        return ConfigDef(
            [
                *COMMON,
                ConfigKey("topic", importance="HIGH", documentation="The topic of the records"),
                ConfigKey("mode", default=INCREMENTING, valid=f"[{BULK}, {INCREMENTING}, {STREAM}]"),
                ConfigKey("incrementing.column.name", default="", documentation="The column that only grows"),
                ConfigKey("key.columns", "LIST", [], documentation="The columns of the record's key"),
                ConfigKey(
                    "schema", default="", documentation="The columns and types, as Spark's DDL has them"
                ),
                ConfigKey("where", default="", documentation="An expression of SQL that rows must fulfil"),
                ConfigKey("poll.interval.ms", "LONG", 5000, documentation="Between looks", valid="[1,...]"),
                ConfigKey(
                    "checkpoint.location", default="", documentation="The folder of a stream's progress"
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """What each mode needs."""
        found = place_errors(config)
        mode = config.get("mode", INCREMENTING)
        if mode == INCREMENTING and not config.get("incrementing.column.name"):
            found["incrementing.column.name"] = [
                f"mode={INCREMENTING} needs the column that only grows; mode={BULK} reads everything each time"
            ]
        if mode == STREAM and not config.get("checkpoint.location"):
            found["checkpoint.location"] = [f"mode={STREAM} needs a folder for its progress that stays"]
        return found

    def reader(self) -> SourceReader:
        """A reader for the mode."""
        if self.values["mode"] == STREAM:
            return BatchReader(self.values)
        return SparkReader(self.values, options_of(self.config))

    def own_run(self, context: RunContext) -> Run | None:
        """A stream drives its cycles itself."""
        return StreamRun(context, self) if self.values["mode"] == STREAM else None

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """A value of the column; a stream's progress is Spark's."""
        if self.values["mode"] == STREAM:
            raise ConnectError(
                "a stream's progress is in its checkpoint: give it another checkpoint.location"
            )
        if partition is not None and set(partition) != {"format"}:
            raise ConnectError('the partition of a Spark source is {"format":name}')
        wanted = "loads" if self.values["mode"] == BULK else "value"
        if offset is not None and wanted not in offset:
            raise ConnectError(f"the offset needs the field {wanted}")


class _FormatReader(FrameReader):
    """What the modes share: rows of a frame as records."""

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._topic: str = values["topic"]
        self._keys: tuple[str, ...] = tuple(values["key.columns"])
        self._partition = partition_key({"format": values["format"]})

    def as_records(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """The columns as the fields of keys and values."""
        return _AsRecords(self._topic, self._keys)

    def size(self, start: Offsets, end: Offsets) -> int:
        """Not known before Spark reads it; a job in any case."""
        return 0


class _AsRecords:
    def __init__(self, topic: str, keys: tuple[str, ...]) -> None:
        self._topic, self._keys = topic, keys

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        fields = list(rows.schema)
        missing = [name for name in self._keys if name not in rows.schema.names]
        if missing:
            raise TaskFailed(f"there is no column {missing[0]}, which key.columns names")
        columns = {"value": pa.StructArray.from_arrays(rows.columns, fields=fields)}
        if self._keys:
            own = [rows.schema.field(name) for name in self._keys]
            columns["key"] = pa.StructArray.from_arrays([rows.column(one.name) for one in own], fields=own)
        schema = pa.schema(
            [pa.field(name, one.type, nullable=False) for name, one in columns.items()],
            metadata={"topic": self._topic},
        )
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


class SparkReader(_FormatReader):
    """Reads a batch source: all of it, or the rows behind a value."""

    def __init__(self, values: ConfigValues, options: Mapping[str, str]) -> None:
        super().__init__(values)
        self._options = dict(options)
        self._column: str = values["incrementing.column.name"]
        self._bulk = values["mode"] == BULK
        self._caught_up = False

    def _loaded(self) -> DataFrame:
        session = _session(self)
        values = self._values
        try:
            if values["table"]:
                frame = session.table(values["table"])
            else:
                reader = session.read.format(values["format"]).options(**self._options)
                if values["schema"]:
                    reader = reader.schema(values["schema"])
                frame = reader.load(values["path"]) if values["path"] else reader.load()
            return frame.where(values["where"]) if values["where"] else frame
        except Exception as error:
            raise _failed(values["format"], error) from error

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The greatest value of the next rows, or one more load."""
        offset = start.get(self._partition)
        if self._bulk:
            now_ms = time.time_ns() // 1_000_000
            if offset is not None and now_ms < _whole(offset.get("at")) + self._values["poll.interval.ms"]:
                return start
            return {self._partition: {"loads": _whole((offset or {}).get("loads")) + 1, "at": now_ms}}
        from pyspark.sql import functions as fn

        frame = self._loaded()
        kind = self._kind(frame)
        rows = frame.select(fn.col(self._column).alias("v")).where("v IS NOT NULL")
        if offset is not None:
            rows = rows.where(fn.col("v") > _literal(kind, offset.get("value")))
        try:
            first = rows.orderBy("v").limit(limit.records).agg(_stored(kind, fn.max("v")).alias("v")).first()
        except Exception as error:
            raise _failed(self._values["format"], error) from error
        if first is None or first["v"] is None:
            return start
        return {self._partition: {"value": first["v"]}}

    def _kind(self, frame: DataFrame) -> str:
        if self._column not in frame.columns:
            raise TaskFailed(
                f"there is no column {self._column}, which incrementing.column.name names: there are "
                f"{', '.join(frame.columns[:20])}"
            )
        kind = frame.schema[self._column].dataType.simpleString()
        if kind.partition("(")[0] not in _ORDERED:
            raise TaskFailed(
                f"column {self._column} is of type {kind}: numbers, times and text have an order"
            )
        return kind

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[Split]:
        """One: Spark divides it by itself."""
        return [(start.get(self._partition), end[self._partition])]

    def frame(self, split: Split) -> DataFrame:
        """The rows of (start, end], or all of them."""
        frame = self._loaded()
        if self._bulk:
            return frame
        from pyspark.sql import functions as fn

        start, end = split
        kind, column = self._kind(frame), fn.col(self._column)
        frame = frame.where(column <= _literal(kind, end["value"]))
        return frame if start is None else frame.where(column > _literal(kind, start["value"]))

    def describe(self) -> list[str]:
        """Nothing without Spark, which `validate` does not start."""
        return [f"format {self._values['format']} is read when a worker with Spark runs the connector"]

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """Until the next look."""
        stopping(self._values["poll.interval.ms"] / 1000)


class BatchReader(_FormatReader):
    """The batch that a stream has at hand."""

    def __init__(self, values: ConfigValues) -> None:
        super().__init__(values)
        self._batch: tuple[int, DataFrame] | None = None

    def offer(self, number: int, rows: DataFrame) -> None:
        """A batch of the query, which is not over before its records are committed."""
        self._batch = (number, rows)

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The number of the batch; a number that is stored already was committed before a crash."""
        done = start.get(self._partition)
        if self._batch is None or (done is not None and self._batch[0] <= _whole(done.get(_BATCH))):
            return start
        return {self._partition: {_BATCH: self._batch[0]}}

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[Split]:
        """One: Spark divides it by itself."""
        return [end[self._partition][_BATCH]]

    def frame(self, split: Split) -> DataFrame:
        """The batch."""
        assert self._batch is not None and self._batch[0] == split
        return self._batch[1]


class StreamRun:
    """A Structured Streaming query whose batches are cycles of a source."""

    def __init__(self, context: RunContext, connector: SparkSource) -> None:
        self._context = context
        self._connector = connector
        self._reader = BatchReader(connector.values)
        self._cycles = SourceRun(context, _Fixed(connector, self._reader))
        self._query: StreamingQuery | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Fences older runs, then starts the query."""
        self._cycles.start()
        values = self._connector.values
        session = _session(self._reader)
        try:
            reader = session.readStream.format(values["format"]).options(**options_of(self._connector.config))
            if values["schema"]:
                reader = reader.schema(values["schema"])
            if values["table"]:
                frame = session.readStream.options(**options_of(self._connector.config)).table(
                    values["table"]
                )
            else:
                frame = reader.load(values["path"]) if values["path"] else reader.load()
            if values["where"]:
                frame = frame.where(values["where"])
            self._query = (
                frame.writeStream.foreachBatch(self._write)
                .option("checkpointLocation", values["checkpoint.location"])
                .trigger(processingTime=f"{values['poll.interval.ms']} milliseconds")
                .start()
            )
        except Exception as error:
            raise _failed(values["format"], error) from error

    def _write(self, rows: DataFrame, number: int) -> None:
        """One batch, in a thread of the query."""
        self._reader.offer(number, rows)
        try:
            self._cycles.cycle()
        except Exception as error:
            self._error = error
            raise

    def cycle(self) -> bool:
        """Whether the query goes on; its batches run beside."""
        query = self._query
        assert query is not None
        if query.isActive:
            return False
        if self._error is not None:
            raise self._error
        failure = query.exception()
        raise _failed(self._connector.values["format"], failure or ConnectError("the query has ended"))

    def wait(self) -> None:
        """A moment, or until the connector ends."""
        self._context.stopping.wait(self._context.poll_s)

    def stop(self) -> None:
        """Ends the query. A batch that runs is aborted and comes again."""
        if self._query is not None:
            self._query.stop()
        self._cycles.stop()


class _Fixed(SparkSource):
    """The same connector with a reader that is there already."""

    def __init__(self, of: SparkSource, reader: BatchReader) -> None:
        super().__init__(of.config)
        self._reader = reader

    def reader(self) -> SourceReader:
        return self._reader


def _session(reader: SourceReader) -> SparkSession:
    if reader.session is None:
        raise TaskFailed("a format of Spark is read by a worker with Spark: see ottla.spark.master")
    return reader.session()


def _whole(value: Json) -> int:
    return value if isinstance(value, int) else 0


def _stored(kind: str, column: Column) -> Column:
    """A value as the offset has it: times as microseconds, which no time zone changes, everything else as text."""
    from pyspark.sql import functions as fn

    return fn.unix_micros(column).cast("string") if kind == "timestamp" else column.cast("string")


def _literal(kind: str, value: Json) -> Column:
    from pyspark.sql import functions as fn

    if kind == "timestamp":
        return fn.timestamp_micros(fn.lit(int(str(value))))
    return fn.lit(str(value)).cast(kind)


def _failed(name: str, error: Exception) -> ConnectError:
    if isinstance(error, ConnectError | SinkFenced):
        return error if isinstance(error, ConnectError) else Retriable(str(error))
    kind = Retriable if passes(error) else TaskFailed
    return kind(f"Spark does not read {name}: {first_line(error)}")
