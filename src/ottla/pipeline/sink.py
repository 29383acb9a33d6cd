"""The sink: writes DataFrames to topics, each micro-batch as one Kafka transaction with its source offsets.

Columns: `value`, and optionally `key`, `headers`, `timestamp`, `partition`, `topic`, as in Spark's own Kafka sink
with the timestamp added. `transaction.py` (driver) and `writer.py` (tasks) speak Kafka's protocol.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException
from ottla.pipeline.batch_marks import BATCHES_TOPIC
from ottla.pipeline.failures import PipelineError, SinkFenced
from ottla.pipeline.offsets import has_watermark, query_id_of, source_offsets
from ottla.pipeline.session import COMMIT_VALIDATION
from ottla.pipeline.shuffle import Layouts, checked, retried_stage
from ottla.pipeline.small_batches import ExtraRecord, Finish, SmallBatches, write_extra
from ottla.pipeline.tasks import REPORT, RETRIED, count_partitions, writing
from ottla.pipeline.topics import max_message_bytes
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.pipeline.writer import Grant, Place
from ottla.records.codecs import COMPRESSION_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_logger = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 5
_METADATA_MAX_AGE_S: Final = 60.0

PASSING: Final = (
    RETRIED,
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "FetchFailed",
    "was lost",
    "was killed",
    "Connection reset by peer",
    "Broken pipe",
    "EOFException",
)
"""Texts of failures that are not the batch's fault: it is written again, in the next epoch."""

OUR_ERROR: Final = re.compile(
    r"^ottla\.(?:errors|pipeline\.failures|connect\.[\w.]+)\.\w+: (.+)$", re.MULTILINE
)
"""The last line of a task's traceback, if the error is one of ours."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of one batch; `skipped` means that an earlier run had committed it already."""

    batch_id: int | None
    records: int
    skipped: bool = False
    attempts: int = 1


class _Again(Exception):
    """The batch was not written and may be tried again."""


class KafkaSink:
    """Writes batches under one transactional id; the sink itself is the function for `foreachBatch`.

    `group` is the consumer group that gets the source offsets (default: the transactional id; "" for none).
    `options` are Kafka's client settings by their Kafka names ("security.protocol", ...). `marks_topic` is the
    compacted topic that remembers the last batch; a tenant of a shared cluster names one that is its own. `finish`
    makes records of the rows that the sink is given; small batches are finished and written by the driver itself.

    Writing needs Spark and a broker::

        df.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", path).start()

    >>> sink = KafkaSink("127.0.0.1:9092", topic="counts", transactional_id="word-count")
    >>> sink.close()
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        transactional_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        exactly_once: bool = True,
        compression: str = "none",
        transaction_timeout_ms: int = 900_000,
        options: Mapping[str, str] | None = None,
        marks_topic: str = BATCHES_TOPIC,
        finish: Finish | None = None,
    ) -> None:
        if compression not in COMPRESSION_NAMES:
            raise PipelineError(
                f"compression is one of {', '.join(sorted(COMPRESSION_NAMES))}, not {compression}"
            )
        self._settings = writer_settings(bootstrap_servers, options)
        self._transactional_id = transactional_id
        self._topic = topic
        self._marks_topic = marks_topic
        self._group = group
        self._exactly_once = exactly_once
        self._compression = int(COMPRESSION_NAMES[compression])
        self._timeout_ms = transaction_timeout_ms
        self._driver: TransactionDriver | None = None
        self._lineage = ""
        self._last_batch = -1
        self._fenced: SinkFenced | None = None
        self._brokers = Cluster(self._settings)
        self._max_batch_bytes: int | None = None
        self._topics = {topic} if topic is not None else set()
        self._looked_up = time.monotonic()
        self._layouts = Layouts()
        self._small = SmallBatches()
        self._finish = finish

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; unless it was given, it follows from the query at the first batch.

        >>> KafkaSink("127.0.0.1:9092", transactional_id="word-count").transactional_id
        'word-count'
        """
        return self._transactional_id

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Writes a batch of the running query, with the query's id and source offsets; for `foreachBatch`."""
        lineage = query_id_of(df)
        if self._transactional_id is None:
            self._transactional_id = f"ottla-{lineage}"
        reached = source_offsets(df)
        result = self._write(df, batch_id, lineage, reached.ends, (), reached.read)
        if result.skipped and (has_watermark(df) or _validates_state(df)):
            # The watermark of the next batch follows from the times that this one sees.
            df.write.format("noop").mode("overwrite").save()

    def write(
        self,
        df: DataFrame,
        batch_id: int | None = None,
        *,
        lineage: str = "",
        offsets: Mapping[str, Mapping[int, int]] | None = None,
        extra: Sequence[ExtraRecord] = (),
    ) -> WriteResult:
        """Writes a batch DataFrame as one transaction.

        A batch id of the same lineage (a checkpoint's query id) that was committed before is skipped. `offsets`
        ({topic: {partition: next offset}}) are committed in the same transaction. So are the few records of `extra`,
        (topic, key, value) each, which the driver writes after those of the frame::

            sink.write(df, batch_id=7, lineage=query_id, offsets={"lines": {0: 1_000}})
            sink.write(df, extra=[("positions", b"table-1", b"1000")])
        """
        return self._write(df, batch_id, lineage, offsets or {}, extra, None)

    def _write(
        self,
        df: DataFrame,
        batch_id: int | None,
        lineage: str,
        offsets: Mapping[str, Mapping[int, int]],
        extra: Sequence[ExtraRecord],
        read: int | None,
    ) -> WriteResult:
        """`read` is the number of offsets that the batch reads, if it is known."""
        if any(topic == self._marks_topic for topic, _, _ in extra):
            raise PipelineError(f"{self._marks_topic} holds the sink's own marks: write to another topic")
        if self._finish is None:
            # A frame without the right columns is refused before anything begins.
            self._for_kafka(df)
        if not self._exactly_once:
            grant = Grant(self._settings, compression=self._compression, max_batch_bytes=self._batch_bytes())
            return WriteResult(batch_id, self._run(df, grant, extra, read))
        driver = self._ready(lineage)
        if batch_id is not None and batch_id <= self._last_batch:
            _logger.info("batch %d of %s is already committed", batch_id, driver.transactional_id)
            return WriteResult(batch_id, 0, skipped=True)
        # A batch without a number gets one too: after a lost response to its commit, the sink looks it up.
        batch = self._last_batch + 1 if batch_id is None else batch_id
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                records = self._write_once(driver, df, batch, offsets, extra, read)
                return WriteResult(batch_id, records, attempts=attempt)
            except SinkFenced as error:
                self._fenced = error
                raise
            except CommitUnknown:
                if self._was_committed(driver, batch):
                    return WriteResult(batch_id, -1, attempts=attempt)
            except _Again as error:
                if attempt == MOST_ATTEMPTS:
                    assert error.__cause__ is not None
                    raise error.__cause__ from None
                _logger.warning("batch %s failed and is written again: %s", batch_id, str(error)[:300])
        raise PipelineError(f"batch {batch_id} could not be committed in {MOST_ATTEMPTS} attempts")

    def _ready(self, lineage: str) -> TransactionDriver:
        """The driver of the transactions; the first batch begins it."""
        if self._fenced is not None:
            raise self._fenced
        if self._driver is None:
            name = self._transactional_id or f"ottla-{uuid.uuid4()}"
            self._transactional_id = name
            driver = TransactionDriver(
                self._settings,
                name,
                timeout_ms=self._timeout_ms,
                compression=self._compression,
                marks_topic=self._marks_topic,
            )
            driver.begin()
            self._driver, self._lineage = driver, lineage
            self._last_batch = driver.last_batch(lineage)
        elif lineage != self._lineage:
            raise PipelineError(
                f"transactional id {self._transactional_id} already serves query {self._lineage} in this process: "
                f"give query {lineage} a sink of its own"
            )
        return self._driver

    def _write_once(
        self,
        driver: TransactionDriver,
        df: DataFrame,
        batch: int,
        offsets: Mapping[str, Mapping[int, int]],
        extra: Sequence[ExtraRecord],
        read: int | None,
    ) -> int:
        try:
            records = self._run(df, driver.grant(self._batch_bytes()), extra, read)
            driver.mark(batch, self._lineage)
            group = driver.transactional_id if self._group is None else self._group
            if offsets and group:
                unknown = driver.commit_offsets(group, offsets, f"batch={batch}")
                if unknown:
                    _logger.debug("partitions of another cluster are left out of the offsets: %s", unknown)
        except SinkFenced:
            raise
        except Exception as error:
            driver.abort()
            if any(text in str(error) for text in PASSING):
                raise _Again(str(error)) from error
            raise
        driver.commit()
        self._last_batch = max(self._last_batch, batch)
        return records

    def _was_committed(self, driver: TransactionDriver, batch: int) -> bool:
        """After a lost response: begins again, which ends all open transactions, and looks at the last mark."""
        before = self._last_batch
        driver.begin()
        self._last_batch = max(before, driver.last_batch(self._lineage))
        return self._last_batch >= batch

    def _for_kafka(self, df: DataFrame) -> DataFrame:
        return self._layouts.checked(df, self._topic)

    def _run(self, df: DataFrame, grant: Grant, extra: Sequence[ExtraRecord], read: int | None) -> int:
        """Writes the rows, here or by tasks; returns their number."""
        try:
            if self._small.expects(read):
                table = self._small.collect(self._for_kafka(df) if self._finish is None else df, self._finish)
                if table is not None:
                    written = self._small.write(table, grant, self._brokers, self._topic, extra)
                    self._topics.update(place.topic for place in written)
                    records = int(table.num_rows)
                    self._small.learn(read, records, table.nbytes)
                    return records
            finished = df if self._finish is None else self._finish.by_tasks(df)
            records = self._run_tasks(self._for_kafka(finished), grant, extra)
        except Exception as error:
            # The last line of a task's traceback is the message for the user.
            if (messages := OUR_ERROR.findall(str(error))) and RETRIED not in str(error):
                raise PipelineError(messages[-1]) from error
            raise
        self._small.learn(read, records)
        return records

    def _run_tasks(self, rows: DataFrame, grant: Grant, extra: Sequence[ExtraRecord]) -> int:
        """Runs the tasks that write; returns the number of records. Every task must have run once only."""
        spread_rows = self._layouts.spread(rows, self._topic, self._known_partitions())
        report = spread_rows.mapInArrow(writing(grant, self._topic), REPORT).collect()
        if grant.transactional_id is not None and retried_stage(rows.sparkSession, report):
            raise PipelineError(RETRIED)
        self._topics.update(row["topic"] for row in report)
        if extra:
            # Where tasks have written, the driver's sequence numbers continue theirs.
            written = {Place(row["topic"], row["partition"]): row["records"] for row in report}
            write_extra(self._brokers, grant, extra, written)
        return sum(row["records"] for row in report)

    def _known_partitions(self) -> dict[str, int]:
        """The partition counts of the topics that were written to before, looked up again every minute."""
        if time.monotonic() - self._looked_up > _METADATA_MAX_AGE_S:
            self._brokers.forget_locations()
            self._looked_up = time.monotonic()
        return {topic: count_partitions(self._brokers, topic) for topic in sorted(self._topics)}

    def _batch_bytes(self) -> int:
        if self._max_batch_bytes is None:
            try:
                self._max_batch_bytes = max_message_bytes(self._brokers, self._topic)
            except ApiException as error:
                _logger.debug("max.message.bytes is not known: %s", error)
                self._max_batch_bytes = max_message_bytes(self._brokers, None)
        return self._max_batch_bytes

    def close(self) -> None:
        """Closes all connections.

        >>> KafkaSink("127.0.0.1:9092", topic="counts").close()
        """
        self._brokers.close()
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _validates_state(df: DataFrame) -> bool:
    """Whether Spark expects each batch to commit state: our sessions do not, others do unless they say so."""
    return df.sparkSession.conf.get(COMMIT_VALIDATION, "true") != "false"


def kafka_sink(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    topic: str | None = None,
    exactly_once: bool = True,
    transactional_id: str | None = None,
    group: str | None = None,
    compression: str = "none",
    options: Mapping[str, str] | None = None,
) -> WriteResult | DataStreamWriter:
    """Writes a DataFrame to Kafka.

    A batch DataFrame is written at once. For a streaming one the writer is returned: give it a checkpoint, a trigger
    and an output mode, and start it::

        kafka_sink(df, bootstrap_servers="127.0.0.1:9092", topic="counts")
        writer = kafka_sink(stream, bootstrap_servers="127.0.0.1:9092", topic="counts")
        writer.option("checkpointLocation", path).start()
    """
    sink = KafkaSink(
        bootstrap_servers,
        transactional_id=transactional_id,
        topic=topic,
        group=group,
        exactly_once=exactly_once,
        compression=compression,
        options=options,
    )
    if df.isStreaming:
        checked(df, topic)
        return df.writeStream.foreachBatch(sink)
    try:
        return sink.write(df)
    finally:
        sink.close()
