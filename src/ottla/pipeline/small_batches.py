"""Small micro-batches are written by the driver: its rows come as Arrow, without a shuffle and a stage of tasks.

A batch counts as small by what it reads and by how many records recent batches made of what they read: counts of a
million records may be small. A batch that turns out too large for the driver is written by tasks after all.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.pipeline.tasks import write_rows
from ottla.pipeline.writer import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.admin.cluster import Cluster
    from ottla.pipeline.writer import Grant, Place, Written

_logger = logging.getLogger(__name__)

MOST_RECORDS: Final = 10_000
MOST_BYTES: Final = 8 << 20
"""The most that the driver writes; beyond, several tasks are faster."""

_REMEMBERED: Final = 16
_FAR: Final = 8
"""A batch that reads more than this many times what another read may be of another kind."""
_RESULT_TOO_LARGE: Final = "spark.driver.maxResultSize"

ExtraRecord = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of a record that the driver writes."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step of a query, from the rows of its frame to records: by tasks, or here for a small batch."""

    by_tasks: Callable[[DataFrame], DataFrame]
    here: Callable[[pa.Table], pa.Table]


class SmallBatches:
    """Learns from each batch what the next one may bring. The first batch tells nothing yet, and goes to tasks."""

    def __init__(self) -> None:
        self._made: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        """Offsets and records of recent batches."""
        self._bytes_per_record: deque[float] = deque(maxlen=_REMEMBERED)
        self._turns = 0

    def expects(self, read: int | None) -> bool:
        """Whether a batch that reads so many offsets is likely to be small; None if that is not known."""
        if read is None or not self._made:
            return False
        if read <= MOST_RECORDS:
            records = max(records / offsets for offsets, records in self._made) * max(read, 1)
        else:
            # Large batches that become few records are aggregates: those grow more slowly than what is read.
            near = [(offsets, records) for offsets, records in self._made if read <= _FAR * offsets]
            if not near:
                return False
            records = max(records * max(1.0, read / offsets) ** 0.5 for offsets, records in near)
        return records <= MOST_RECORDS and records * max(self._bytes_per_record, default=0.0) <= MOST_BYTES

    def learn(self, read: int | None, records: int, size: int | None = None) -> None:
        """What a batch has made of the offsets that it read."""
        if read is not None:
            self._made.append((max(read, 1), records))
        if size is not None and records:
            self._bytes_per_record.append(size / records)

    def collect(self, rows: DataFrame, finish: Finish | None) -> pa.Table | None:
        """The rows of a batch, finished here; None if that is for tasks to do."""
        try:
            table = rows.toArrow()
        except Exception as error:
            if _RESULT_TOO_LARGE in str(error):
                return None
            raise
        if finish is not None:
            try:
                table = finish.here(table)
            except Exception:
                # Tasks meet the same failure, and report it as Spark does.
                _logger.debug("the rows of a small batch could not be finished here", exc_info=True)
                return None
        if table.nbytes > MOST_BYTES:
            self.learn(None, table.num_rows, table.nbytes)
            return None
        return table

    def write(
        self, table: pa.Table, grant: Grant, brokers: Cluster, topic: str | None, extra: Sequence[ExtraRecord]
    ) -> dict[Place, Written]:
        """Writes the rows of a batch; what each partition got."""
        try:
            writer = BatchWriter(brokers, grant)
            for batch in table.to_batches():
                # Rows without a key go to another partition each time.
                self._turns += 1
                write_rows(writer, grant, brokers, batch, topic, self._turns)
            if extra:
                write_rows(writer, grant, brokers, extra_rows(extra), None)
            return writer.flush()
        except BaseException:
            # Responses may still arrive that no request waits for.
            brokers.close()
            raise


def write_extra(
    brokers: Cluster, grant: Grant, extra: Sequence[ExtraRecord], written: Mapping[Place, int]
) -> None:
    """Writes records of the driver after those of tasks; `written` counts what they wrote under the same grant."""
    try:
        writer = BatchWriter(brokers, grant, written if grant.transactional_id is not None else None)
        write_rows(writer, grant, brokers, extra_rows(extra), None)
        writer.flush()
    except BaseException:
        brokers.close()
        raise


def extra_rows(extra: Sequence[ExtraRecord]) -> pa.RecordBatch:
    """Records of the driver as rows for the writer."""
    topics, keys, values = zip(*extra, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(topics, pa.string()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
