"""Large cycles of sources as Spark jobs: one task reads each split, then rows go to the task that owns their partition.

All tasks write under the driver's grant. A partition is written by one task only, and a task that was started a
second time does not write: the cycle is aborted and runs again in the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.connect.failures import Retriable, TaskFailed
from ottla.connect.run.chain import Chain, ChainSpec
from ottla.connect.spi import SourceReader, Split
from ottla.pipeline.shuffle import Layouts, retried_stage
from ottla.pipeline.sink import OUR_ERROR, PASSING
from ottla.pipeline.tasks import REPORT, RETRIED, count_partitions, writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ottla.admin.cluster import Cluster
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
    rows = session.range(0, len(splits), 1, len(splits)).mapInArrow(_reading(reader, splits, spec), _ROWS)
    layouts = Layouts()
    checked = layouts.checked(rows, None)
    known = {topic: count_partitions(brokers, topic) for topic in sorted(topics)}
    try:
        report = layouts.spread(checked, None, known).mapInArrow(writing(grant, None), REPORT).collect()
    except Exception as error:
        text = str(error)
        if any(one in text for one in PASSING):
            raise Retriable(f"a task of the Spark job was lost: {text.splitlines()[0][:300]}") from error
        found = OUR_ERROR.findall(text)
        raise TaskFailed(found[-1] if found else text.splitlines()[0][:1000]) from error
    if retried_stage(session, report):
        raise Retriable(RETRIED)
    return sum(row["records"] for row in report), {row["topic"] for row in report}


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
