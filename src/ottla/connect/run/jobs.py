"""Large cycles as Spark jobs.

Of a source, one task reads each split, then rows go to the task that owns their partition. All tasks write under the
driver's grant. A partition is written by one task only, and a task that was started a second time does not write: the
cycle is aborted and runs again in the next epoch.

Of a sink, one task reads and writes the range of each partition. A range that is written again leaves the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import SinkRecord
from ottla.connect.errors.tolerance import Stage
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.connect.spi import FrameReader, SinkCycle, SinkWriter, SourceReader, Split, Written
from ottla.pipeline.shuffle import Layouts, retried_stage
from ottla.pipeline.sink import OUR_ERROR, PASSING
from ottla.pipeline.tasks import REPORT, RETRIED, count_partitions, writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ottla.admin.cluster import Cluster
    from ottla.admin.settings import ClusterSettings
    from ottla.pipeline.writer import Grant

_ROWS: Final = (
    "topic string, partition int, key binary, value binary, timestamp long, "
    "headers array<struct<key:string,value:binary>>"
)


def run_source_job(
    session: SparkSession,
    reader: SourceReader,
    splits: Sequence[Split],
    spec: ChainSpec,
    grant: Grant,
    brokers: Cluster,
    topics: set[str],
) -> tuple[int, set[str]]:
    """Reads and writes the splits of a cycle; the number of records, and their topics."""
    if isinstance(reader, FrameReader):
        frame = reader.frame(splits[0])
        session = frame.sparkSession
        rows = frame.mapInArrow(_converting(reader.as_records(), spec), _ROWS)
    else:
        rows = session.range(0, len(splits), 1, len(splits)).mapInArrow(_reading(reader, splits, spec), _ROWS)
    layouts = Layouts()
    checked = layouts.checked(rows, None)
    known = {topic: count_partitions(brokers, topic) for topic in sorted(topics)}
    try:
        report = layouts.spread(checked, None, known).mapInArrow(writing(grant, None), REPORT).collect()
    except Exception as error:
        raise _failed(error) from error
    if retried_stage(session, report):
        raise Retriable(RETRIED)
    return sum(row["records"] for row in report), {row["topic"] for row in report}


def _failed(error: Exception) -> ConnectError:
    text = str(error)
    if any(one in text for one in PASSING):
        return Retriable(f"a task of the Spark job was lost: {text.splitlines()[0][:300]}")
    found = OUR_ERROR.findall(text)
    return TaskFailed(found[-1] if found else text.splitlines()[0][:1000])


def _reading(
    reader: SourceReader, splits: Sequence[Split], spec: ChainSpec
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ottla.connect.run.columns import as_rows

        chain = Chain(spec)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in chain.to_rows(reader.read(splits[number])):
                    yield as_rows(rows)

    return read


def _converting(
    as_records: Callable[[pa.RecordBatch], pa.RecordBatch], spec: ChainSpec
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ottla.connect.run.columns import as_rows

        chain = Chain(spec)
        for rows in chain.to_rows(as_records(batch) for batch in batches if batch.num_rows):
            yield as_rows(rows)

    return convert


_COLUMNS: Final = ("records", "bytes", "skipped", "message")
_WRITTEN: Final = "records long, bytes long, skipped long, message binary"
_STALL_S: Final = 60.0
"""A range ends before the last stable offset: what does not come in this time is not on its way."""


@dataclass(frozen=True, slots=True)
class SinkJob:
    """What the tasks of a sink's cycle need; it is pickled into them."""

    writer: SinkWriter
    cycle: SinkCycle
    spec: ChainSpec
    settings: ClusterSettings
    isolation: int
    class_name: str

    def run(self, session: SparkSession) -> tuple[list[Written], int, int, int]:
        """Writes all ranges; the messages for `commit`, and the numbers of records, bytes and skipped records."""
        count = len(self.cycle.ranges)
        try:
            rows = session.range(0, count, 1, count).mapInArrow(_writing(self), _WRITTEN).collect()
        except Exception as error:
            raise _failed(error) from error
        messages = [pickle.loads(row["message"]) for row in rows]
        records, size, skipped = (sum(row[name] for row in rows) for name in ("records", "bytes", "skipped"))
        return messages, records, size, skipped


def _writing(job: SinkJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = _RangeTask(job, number)
                message = pickle.dumps(task.write())
                values = (task.records, task.bytes, task.chain.tolerance.skipped, message)
                yield pa.RecordBatch.from_arrays([pa.array([one]) for one in values], names=_COLUMNS)

    return write


class _RangeTask:
    """Reads and writes one range of a cycle, in a task."""

    def __init__(self, job: SinkJob, number: int) -> None:
        self._job = job
        self._range = job.cycle.ranges[number]
        self.chain = Chain(job.spec)
        self.records = 0
        self.bytes = 0

    def write(self) -> Written:
        return self._job.writer.write_range(self._job.cycle, self._range, self._read(), self._refuse)

    def _read(self) -> Iterator[SinkRecord | RecordColumns]:
        from ottla.admin.cluster import Cluster
        from ottla.pipeline.decoding import decode
        from ottla.pipeline.fetching import FetchLimits, OffsetRange, fetch_ranges

        one = self._range
        wanted = [OffsetRange(one.topic, one.partition, one.start, one.end)]
        brokers = Cluster(self._job.settings)
        try:
            limits = FetchLimits(stall_s=_STALL_S)
            for part in fetch_ranges(brokers, wanted, isolation=self._job.isolation, limits=limits):
                for batch in decode(part):
                    self.bytes += batch.nbytes
                    for found in self.chain.to_columns(batch):
                        self.records += 1 if isinstance(found, SinkRecord) else len(found)
                        yield found
        finally:
            brokers.close()

    def _refuse(self, record: SinkRecord, error: Exception) -> None:
        self.chain.tolerance.failed(Stage.TASK_PUT, self._job.class_name, record, error)
