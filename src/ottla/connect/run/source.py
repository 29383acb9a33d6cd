"""The cycles of a source: plan, read, convert, write and commit, with the offsets in the same transaction.

START fences older runs and reads the offsets. A plan (start, end) never changes once it is made: after a failure the
same records are read again in the next epoch. If the answer to a commit is lost, the offsets topic tells.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.admin.cluster import Cluster
from ottla.connect.errors.dead_letters import append_dead_letters
from ottla.connect.failures import Retriable, TaskFailed
from ottla.connect.run.chain import Chain
from ottla.connect.run.context import LargeCycle, RunContext, session_for
from ottla.connect.run.topics import TopicMaker
from ottla.connect.spi import Offsets, SourceConnector, SourceReader, Split
from ottla.connect.stores import OffsetChanges, offset_entries
from ottla.connect.topic_log import append
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.tasks import write_rows
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.pipeline.writer import BatchWriter, Grant

if TYPE_CHECKING:
    from collections.abc import Sequence

_logger = logging.getLogger(__name__)

_TRANSACTION_TIMEOUT_MS: Final = 900_000
_LONGEST_S: Final = 840.0
"""Brokers end a transaction that takes longer than the timeout: a cycle that comes near it is given up before."""


class SourceRun:
    """One run of a source. Not for several threads at once."""

    def __init__(self, context: RunContext, connector: SourceConnector) -> None:
        self._context = context
        self._connector = connector
        self._reader: SourceReader | None = None
        self._chain = Chain(context.chain)
        self._driver: TransactionDriver | None = None
        self._brokers: Cluster | None = None
        self._writer: BatchWriter | None = None
        self._topics: TopicMaker | None = None
        self._offsets: Offsets = {}
        self._plan: Offsets | None = None
        self._turn = 0
        by_interval = str(context.values.get("transaction.boundary")).lower() == "interval"
        self._interval_s = (context.values.get("transaction.boundary.interval.ms") or 0) / 1000
        self._joins = by_interval and context.exactly_once

    def start(self) -> None:
        """Fences older runs, reads the offsets and connects."""
        context = self._context
        assert context.offsets is not None
        if context.exactly_once:
            driver = self._new_driver(0)
            for number in range(1, context.fence):
                old = self._new_driver(number)
                old.begin(marks=False)
                old.close()
            driver.begin(marks=False)
            self._driver, self._brokers = driver, driver.brokers
            context.fenced(1)
        else:
            self._brokers = Cluster(context.settings)
        self._topics = TopicMaker(self._brokers, context.config, enabled=context.topic_creation)
        self._reader = self._connector.reader()
        if self._connector.needs_jvm:
            self._reader.session = session_for(context, type(self._connector).__name__)
        self._offsets = context.offsets.read(context.name) or self._reader.initial_offsets()

    def _new_driver(self, task: int) -> TransactionDriver:
        name = f"{self._context.group_id}-{self._context.name}-{task}"
        return TransactionDriver(
            self._context.settings,
            name,
            timeout_ms=_TRANSACTION_TIMEOUT_MS,
            compression=self._context.tuning.compression,
        )

    def cycle(self) -> bool:
        """One cycle; False if there was nothing new."""
        reader, context = self._reader, self._context
        assert reader is not None
        if self._plan is None:
            end = reader.latest_offsets(self._offsets, context.limit)
            if end == self._offsets:
                context.progress.lag = reader.lag(self._offsets)
                return False
            self._plan = {**self._offsets, **end}
        if context.jobs_elsewhere and self._is_large(reader):
            raise LargeCycle
        began = time.monotonic()
        if self._joins:
            records = self._write_joined(reader)
        else:
            records = self._write_cycle(reader, self._plan, self._changed(self._plan))
            self._offsets, self._plan = self._plan, None
        context.progress.cycle(records, time.monotonic() - began)
        context.progress.skipped = self._chain.tolerance.skipped
        reader.commit(self._offsets)
        context.progress.lag = reader.lag(self._offsets)
        return True

    def _changed(self, end: Offsets) -> OffsetChanges:
        return {key: offset for key, offset in end.items() if self._offsets.get(key) != offset}

    def _write_joined(self, reader: SourceReader) -> int:
        """`transaction.boundary=interval`: what comes within the interval is one transaction, which a stop ends.

        The reader has gone on since the first plan: a transaction that is lost is read again by the next run.
        """
        driver, plan = self._driver, self._plan
        assert driver is not None and plan is not None
        until = time.monotonic() + self._interval_s
        try:
            writer = BatchWriter(driver.brokers, driver.grant(self._context.tuning.batch_bytes))
            records = self._write_plan(driver, writer, reader, self._offsets, plan)
            end, self._plan = plan, None
            while (left_s := until - time.monotonic()) > 0 and not self._context.stopping.is_set():
                found = reader.latest_offsets(end, self._context.limit)
                if found == end:
                    reader.wait(min(left_s, self._context.poll_s), self._context.stopping.wait)
                    continue
                self._plan = {**end, **found}
                if self._is_large(reader):
                    break
                records += self._write_plan(driver, writer, reader, end, self._plan)
                end, self._plan = self._plan, None
            self._write_offsets(driver, writer, self._changed(end))
        except SinkFenced:
            raise
        except BaseException:
            self._chain.tolerance.take_failures()
            driver.abort()
            raise
        try:
            driver.commit()
        except CommitUnknown as error:
            if not self._was_committed(driver, self._changed(end)):
                raise Retriable(f"a transaction was not committed and is read again: {error}") from error
        self._offsets = end
        return records

    def _write_plan(
        self,
        driver: TransactionDriver,
        writer: BatchWriter,
        reader: SourceReader,
        start: Offsets,
        end: Offsets,
    ) -> int:
        splits = reader.splits(start, end, int(self._context.values["tasks.max"]))
        if self._plan is not None and self._is_job(reader):
            return self._run_job(driver, reader, splits)
        return self._write_splits(writer, driver.grant(self._context.tuning.batch_bytes), reader, splits)

    def _write_offsets(self, driver: TransactionDriver, writer: BatchWriter, changes: OffsetChanges) -> None:
        store = self._context.offsets
        assert store is not None and store.topic is not None
        append_dead_letters(writer, driver.brokers, self._context, self._chain.tolerance.take_failures())
        append(writer, store.topic, store.partitions, offset_entries(self._context.name, changes))
        writer.flush()

    def _write_cycle(self, reader: SourceReader, end: Offsets, changes: OffsetChanges) -> int:
        splits = reader.splits(self._offsets, end, int(self._context.values["tasks.max"]))
        if self._driver is None:
            return self._write_plainly(reader, splits, changes)
        while True:
            try:
                return self._write_transaction(self._driver, reader, splits, changes)
            except CommitUnknown:
                if self._was_committed(self._driver, changes):
                    return 0

    def _write_transaction(
        self, driver: TransactionDriver, reader: SourceReader, splits: Sequence[Split], changes: OffsetChanges
    ) -> int:
        try:
            writer = BatchWriter(driver.brokers, driver.grant(self._context.tuning.batch_bytes))
            if self._is_job(reader):
                records = self._run_job(driver, reader, splits)
            else:
                records = self._write_splits(
                    writer, driver.grant(self._context.tuning.batch_bytes), reader, splits
                )
            self._write_offsets(driver, writer, changes)
        except SinkFenced:
            raise
        except BaseException:
            self._chain.tolerance.take_failures()
            driver.abort()
            raise
        driver.commit()
        return records

    def _is_job(self, reader: SourceReader) -> bool:
        """Large cycles run on Spark. Dead letters are written by the driver, which tasks of a job do not reach."""
        return self._context.spark is not None and self._is_large(reader)

    def _is_large(self, reader: SourceReader) -> bool:
        if self._chain.tolerance.keep_failures:
            return False
        assert self._plan is not None
        large = reader.size(self._offsets, self._plan) > self._context.inline_max_bytes
        return large or self._connector.needs_jvm

    def _run_job(self, driver: TransactionDriver, reader: SourceReader, splits: Sequence[Split]) -> int:
        from ottla.connect.run.jobs import run_source_job

        assert self._context.spark is not None and self._topics is not None
        records, topics = run_source_job(
            self._context.spark(),
            reader,
            splits,
            self._context.chain,
            driver.grant(self._context.tuning.batch_bytes),
            driver.brokers,
            set(self._topics.known),
        )
        for topic in topics:
            if self._topics.ensure(topic):
                self._context.uses_topic(topic)
        self._context.progress.jobs += 1
        return records

    def _was_committed(self, driver: TransactionDriver, changes: OffsetChanges) -> bool:
        driver.begin(marks=False)
        assert self._context.offsets is not None
        stored = self._context.offsets.read(self._context.name)
        return all(stored.get(key) == offset for key, offset in changes.items())

    def _write_plainly(self, reader: SourceReader, splits: Sequence[Split], changes: OffsetChanges) -> int:
        """At least once: the records first, then their offsets."""
        context = self._context
        assert self._brokers is not None and context.offsets is not None
        tuning = context.tuning
        grant = Grant(context.settings, compression=tuning.compression, max_batch_bytes=tuning.batch_bytes)
        if self._writer is None:
            self._writer = BatchWriter(self._brokers, grant)
        try:
            records = self._write_splits(self._writer, grant, reader, splits)
            failures = self._chain.tolerance.take_failures()
            append_dead_letters(self._writer, self._brokers, context, failures)
            self._writer.flush()
        except BaseException:
            self._writer = None
            self._chain.tolerance.take_failures()
            raise
        context.offsets.write(context.name, changes)
        return records

    def _write_splits(
        self, writer: BatchWriter, grant: Grant, reader: SourceReader, splits: Sequence[Split]
    ) -> int:
        assert self._brokers is not None
        records = 0
        began_s = time.monotonic()
        for split in splits:
            for rows in self._chain.to_rows(reader.read(split)):
                if time.monotonic() - began_s > _LONGEST_S and self._driver is not None:
                    raise TaskFailed(
                        f"a cycle takes longer than {_LONGEST_S:.0f} s, and brokers end its transaction after "
                        f"{_TRANSACTION_TIMEOUT_MS // 1000} s: nothing of it was written. Lower "
                        "ottla.cycle.max.records of the worker; for a large table of a snapshot, lower the "
                        "connector's ottla.snapshot.max.rows, which needs a key of the table"
                    )
                self._ensure_topics(rows)
                write_rows(writer, grant, self._brokers, rows, None, self._turn)
                self._turn += 1
                records += rows.num_rows
                self._context.progress.bytes += rows.nbytes
        return records

    def _ensure_topics(self, rows: pa.RecordBatch) -> None:
        assert self._topics is not None
        for topic in rows.column("topic").unique().to_pylist():
            if not topic:
                raise TaskFailed("a record has no topic: the connector or a transform must give it one")
            if self._topics.ensure(topic):
                self._context.uses_topic(topic)

    def wait(self) -> None:
        """Waits until there may be something new."""
        assert self._reader is not None
        self._reader.wait(self._context.poll_s, self._context.stopping.wait)

    def stop(self) -> None:
        """Closes everything. An open transaction was aborted before."""
        if self._reader is not None:
            self._reader.stop()
        if self._brokers is not None:
            self._brokers.close()
