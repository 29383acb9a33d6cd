"""`format("ottla")`: topics as Spark's batch and streaming frames, read by Python tasks that give Spark Arrow batches.

Columns and options are those of `format("kafka")`. Each task fetches whole batches of its range from the leader and
decodes them together (`fetching.py`, `decoding.py`). Small batches of a stream need no task (`small_reads.py`).
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.admin.cluster import Cluster
from ottla.pipeline.decoding import decode
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.fetching import OffsetGone, OffsetRange, fetch_ranges
from ottla.pipeline.reader_offsets import JsonOffsets, OffsetPlanner, from_json, split, to_json
from ottla.pipeline.reader_options import FORMAT, ReaderOptions, column_names, parse_options
from ottla.pipeline.small_reads import FETCH_BYTES, SmallReads
from ottla.pipeline.tasks import brokers_for, forget_brokers
from ottla.pipeline.worker_memory import task_begins
from ottla.pipeline.writer import Place

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A step in Python that takes the batches of a task; it can be pickled."""


def register_reader(spark: SparkSession) -> None:
    """Makes `format("ottla")` known to a session; sessions of `spark_session` know it already.

    ::

        register_reader(spark)
        spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "lines")
    """
    spark.dataSource.register(OttlaDataSource)


class OttlaDataSource(DataSource):
    """The data source behind `format("ottla")`.

    >>> OttlaDataSource.name()
    'ottla'
    """

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes.

        >>> OttlaDataSource.name()
        'ottla'
        """
        return FORMAT

    def schema(self) -> StructType:
        """The columns: those of Spark's Kafka source.

        >>> OttlaDataSource({"columns": "key,value"}).schema().simpleString()
        'struct<key:binary,value:binary>'
        """
        return StructType([StructField(name, _TYPES[name]) for name in column_names(self.options)])

    def reader(self, schema: StructType) -> TopicReader:
        """The reader of a batch; Spark calls it."""
        return TopicReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802
        """The reader of a stream; Spark calls it."""
        return TopicStreamReader(parse_options(self.options, streaming=True))


class RangePartition(InputPartition):
    """The offsets that one task reads."""

    def __init__(self, *wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class TopicReader(DataSourceReader):
    """Reads the offsets that there are when a query is planned."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The ranges of the read, one for each task."""
        options = self._options
        brokers = Cluster(options.settings)
        try:
            planner = OffsetPlanner(options, brokers)
            ranges = planner.ranges(planner.starts(), planner.ends())
        finally:
            brokers.close()
        found = split(ranges, options.min_partitions, options.max_records_per_partition)
        # Spark gives a reader without partitions one without a value: this one has nothing to read.
        return [RangePartition(one) for one in found] or [RangePartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range, as Arrow batches."""
        assert isinstance(partition, RangePartition)
        task_begins()
        return read_ranges(self._options, partition.wanted)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics from batch to batch. With a step, Spark gets what the step makes of the records.

    The step comes pickled: tasks have what it is made of, and where the process that plans reads has not, small batches
    are left to tasks as well.
    """

    def __init__(self, options: ReaderOptions, step: bytes | None = None) -> None:
        self._options = options
        self._step = step
        self._planner: OffsetPlanner | None = None
        self._brokers: Cluster | None = None
        self._target: dict[Place, int] | None = None
        self._newest: dict[Place, int] = {}
        self._last_batch_s = time.monotonic()
        self._small = SmallReads()
        self._rows: list[pa.RecordBatch] = []

    def __getstate__(self) -> tuple[ReaderOptions, bytes | None]:
        """Tasks get the options and the step: connections stay here."""
        return self._options, self._step

    def __setstate__(self, state: tuple[ReaderOptions, bytes | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _offsets(self) -> OffsetPlanner:
        if self._planner is None:
            self._brokers = Cluster(self._options.settings)
            self._planner = OffsetPlanner(self._options, self._brokers)
        return self._planner

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a query without a checkpoint starts."""
        return to_json(self._offsets().starts())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a batch that the options give."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the next batch ends; the start itself while there is nothing new, or not enough."""
        planner, begin = self._offsets(), from_json(start)
        end = self._newest = planner.latest()
        if self._target is not None:
            end = {place: min(offset, end[place]) for place, offset in self._target.items() if place in end}
        elif not isinstance(limit, ReadAllAvailable) and self._is_too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = planner.limited(begin, end, limit.max_rows)
        if end != begin:
            self._last_batch_s = time.monotonic()
        return to_json(end)

    def _is_too_little(self, begin: Mapping[Place, int], end: Mapping[Place, int]) -> bool:
        """minOffsetsPerTrigger, which maxTriggerDelay bounds."""
        least = self._options.min_offsets
        if least is None or time.monotonic() - self._last_batch_s >= self._options.max_trigger_delay_s:
            return False
        return self._offsets().available(begin, end) < least

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """The ends of the partitions, for the query's progress."""
        return to_json(self._newest) if self._newest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From here on nothing counts that comes later."""
        self._target = self._offsets().latest()

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """The ranges of a batch, one for each task; one for all of a small batch, which is read here and now."""
        ranges = self._offsets().ranges(from_json(start), from_json(end))
        offsets = sum(one.end - one.start for one in ranges)
        if self._small.expects(offsets):
            limits = replace(self._options.limits, max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES)
            rows = self._small.collect(offsets, self._read(replace(self._options, limits=limits), ranges))
            if rows is not None:
                self._rows = rows
                self.__class__ = _ReadAlready
                return [RangePartition(*ranges)]
        options = self._options
        return [
            RangePartition(one)
            for one in split(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range, as Arrow batches, or what the step makes of them."""
        assert isinstance(partition, RangePartition)
        task_begins()
        return self._read(self._options, partition.wanted)

    def _read(self, options: ReaderOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        records = read_ranges(options, ranges)
        if self._step is None:
            yield from records
        else:
            step: Step = pickle.loads(self._step)
            yield from step(records)

    def stop(self) -> None:
        """Closes the connections of the process that plans reads."""
        if isinstance(sys.exc_info()[1], EOFError):
            # Spark has closed its socket. PySpark would fail to report that to it, and print a trace of the failure.
            sys.excepthook = _print_unless_nobody_listens
        if self._brokers is not None:
            self._brokers.close()
        self._brokers = self._planner = None


def _print_unless_nobody_listens(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)


class _ReadAlready(TopicStreamReader, _SimpleStreamReaderWrapper):
    """A reader that holds the rows of the batch that it has just planned.

    PySpark takes rows together with a plan from readers of its own class only, and asks for them at once. For all other
    questions the reader is a TopicStreamReader: Spark's class gives no lag.
    """

    def getCache(self, start: JsonOffsets, end: JsonOffsets) -> Iterator[pa.RecordBatch]:  # noqa: N802
        """The rows of the batch; PySpark calls it."""
        rows, self._rows = self._rows, []
        self.__class__ = TopicStreamReader  # type: ignore[assignment]
        return iter(rows)


def read_ranges(options: ReaderOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """The records of some ranges, one range after the other."""
    for one in ranges:
        yield from read_range(options, one)


def read_range(options: ReaderOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range; offsets that are gone are an error, or skipped if the options say so."""
    done = wanted.start
    while done < wanted.end:
        brokers = brokers_for(options.settings)
        try:
            for part in fetch_ranges(
                brokers,
                [OffsetRange(wanted.topic, wanted.partition, done, wanted.end)],
                isolation=options.isolation,
                limits=options.limits,
            ):
                yield from decode(part, options.columns)
                done = part.next_offset
            return
        except OffsetGone as gone:
            if options.fail_on_data_loss:
                raise PipelineError(f"{gone}. To go on without it, set failOnDataLoss to false") from None
            planner = OffsetPlanner(options, brokers)
            first = planner.earliest([gone.place])[gone.place]
            _logger.warning("%s; the read goes on at offset %d, since failOnDataLoss is false", gone, first)
            if first <= gone.offset:
                # The log ends before this offset: the topic was created again.
                return
            done = first
        except BaseException:
            forget_brokers(options.settings)
            raise
