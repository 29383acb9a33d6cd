"""The cycles of a sink: fetch, convert, write and commit, with the group's offsets as the ledger.

START fences older runs. A cycle's ranges are recorded before it is written (INTEND), unless a second write does no
harm: after a crash the same ranges are written again, under the same number. COMMIT is one transaction with the dead
letters and the offsets.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.groups import Committed, committed_offsets
from ottla.connect.config.definitions import parse_type
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import SinkRecord
from ottla.connect.errors.dead_letters import append_dead_letters
from ottla.connect.errors.tolerance import Stage
from ottla.connect.failures import TaskFailed
from ottla.connect.offsets import group_of, lineage_of
from ottla.connect.run.chain import Chain
from ottla.connect.run.context import LargeCycle, RunContext, session_for
from ottla.connect.spi import Place, Range, SinkConnector, SinkCycle, SinkWriter, Written
from ottla.pipeline.decoding import decode
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchedBatches,
    Fetcher,
    FetchLimits,
    OffsetGone,
    OffsetRange,
    list_offsets,
)
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.pipeline.writer import BatchWriter
from ottla.pipeline.writer import Place as WriterPlace

_logger = logging.getLogger(__name__)

_TRANSACTION_TIMEOUT_MS: Final = 900_000
_REFRESH_S: Final = 30.0
_INTENT: Final = re.compile(r"ottla \d+\.\d+ end=(\d+)")


class SinkRun:
    """One run of a sink. Not for several threads at once."""

    def __init__(self, context: RunContext, connector: SinkConnector) -> None:
        self._context = context
        self._connector = connector
        self._chain = Chain(context.chain)
        self._group = group_of(context.name, context.config)
        self._driver: TransactionDriver | None = None
        self._brokers: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._writer: SinkWriter | None = None
        self._positions: dict[WriterPlace, int] = {}
        self._refreshed = 0.0
        self._lineage = 0
        self._number = 0
        self._intended: tuple[Range, ...] = ()
        self._isolation = READ_COMMITTED
        self._jobs = False
        """Whether large cycles become Spark jobs."""
        self._ends: dict[WriterPlace, int] = {}
        """Where partitions ended when the last job was planned."""

    def start(self) -> None:
        """Fences older runs, finds the positions, and connects."""
        context = self._context
        name = f"{context.group_id}-sink-{context.name}"
        self._driver = TransactionDriver(context.settings, name, timeout_ms=_TRANSACTION_TIMEOUT_MS)
        self._driver.begin(marks=False)
        self._brokers = self._driver.brokers
        isolation = context.config.get("consumer.override.isolation.level", "read_committed")
        self._isolation = READ_UNCOMMITTED if isolation == "read_uncommitted" else READ_COMMITTED
        self._writer = self._connector.writer()
        if self._connector.needs_jvm:
            self._writer.session = session_for(context, type(self._connector).__name__)
        # Dead letters are written by the driver, which tasks of a job do not reach.
        self._jobs = (
            (context.spark is not None or context.jobs_elsewhere)
            and self._writer.parallel
            and not self._chain.tolerance.keep_failures
        )
        most = min(context.limit.bytes, context.inline_max_bytes) if self._jobs else context.limit.bytes
        tuning = context.tuning
        self._fetcher = Fetcher(
            self._brokers,
            isolation=self._isolation,
            limits=FetchLimits(
                max_bytes=min(most, tuning.fetch_max_bytes or most),
                partition_max_bytes=min(most, tuning.partition_fetch_bytes or most),
                max_wait_ms=tuning.fetch_max_wait_ms,
                min_bytes=tuning.fetch_min_bytes,
            ),
        )
        self._find_positions(first=True)

    # -- positions

    def _topics(self) -> list[str]:
        assert self._brokers is not None
        config = self._context.config
        if regex := config.get("topics.regex"):
            pattern = re.compile(regex)
            found = self._brokers.metadata(None).topics
            return sorted(str(one.name) for one in found if one.name and pattern.fullmatch(one.name))
        return list(parse_type("topics", config.get("topics", ""), "LIST"))

    def _find_positions(self, *, first: bool) -> None:
        """The positions of new partitions: the group's, or the target's own if it is further, else the reset policy."""
        assert self._brokers is not None and self._writer is not None
        self._refreshed = time.monotonic()
        if not first:
            self._brokers.forget_locations()
        places = []
        known = {str(one.name): one for one in self._brokers.metadata(self._topics()).topics}
        for topic, described in known.items():
            places += [WriterPlace(topic, one.partition_index) for one in described.partitions]
            if described.partitions:
                self._context.uses_topic(topic)
        new = [one for one in places if one not in self._positions]
        for gone in set(self._positions) - set(places):
            del self._positions[gone]
        if not new:
            return
        held = committed_offsets(self._brokers, self._group)
        if first:
            marks = [lineage_of(one.metadata) for one in held.values()]
            self._lineage = max([one[0] for one in marks] + [self._context.lineage])
            self._number = max((one[1] for one in marks if one[0] == self._lineage), default=0)
            self._intended = _intents(held)
        own = self._writer.positions([Place(*one) for one in new], self._lineage)
        missing, ahead = [], []
        for place in new:
            committed = held.get((place.topic, place.partition))
            found = max(committed.offset if committed is not None else -1, own.get(Place(*place), -1))
            if found < 0:
                missing.append(place)
            else:
                self._positions[place] = found
                if committed is None or committed.offset < found:
                    ahead.append(place)
        if ahead and not self._intended:
            self._catch_up(ahead)
        if missing:
            reset = self._context.config.get("consumer.override.auto.offset.reset", "earliest")
            which = LATEST if reset == "latest" else EARLIEST
            self._positions.update(list_offsets(self._brokers, dict.fromkeys(missing, which), timeout_s=60.0))

    def _catch_up(self, places: list[WriterPlace]) -> None:
        """Commits what the target has written, and a run that was lost has not committed."""
        assert self._driver is not None
        offsets: dict[str, dict[int, int]] = {}
        for place in places:
            offsets.setdefault(place.topic, {})[place.partition] = self._positions[place]
        self._driver.commit_offsets(self._group, offsets, f"ottla {self._lineage}.{self._number}")
        self._end(self._driver)

    # -- cycles

    def cycle(self) -> bool:
        """One cycle; False if there was nothing to read."""
        assert self._fetcher is not None
        if time.monotonic() - self._refreshed > _REFRESH_S:
            self._find_positions(first=False)
        if not self._positions:
            return False
        began = time.monotonic()
        parts: list[FetchedBatches] = []
        number, ranges = self._number, self._intended
        if not ranges:
            parts = self._poll()
            if not parts:
                return False
            number += 1
            ranges = self._large_ranges(parts)
        as_job = bool(ranges) and self._jobs
        if as_job and self._context.jobs_elsewhere:
            raise LargeCycle
        if ranges and not as_job:
            parts = self._intended_parts()
        ranges = ranges or tuple(
            Range(part.topic, part.partition, part.start, part.next_offset) for part in parts
        )
        cycle = SinkCycle(self._context.name, self._lineage, number, ranges)
        records = self._run_cycle(cycle, parts, as_job=as_job)
        self._context.progress.cycle(records, time.monotonic() - began)
        self._context.progress.skipped = self._chain.tolerance.skipped
        self._context.progress.lag = self._lag_after_job() if as_job else self._lag(parts)
        return True

    def _large_ranges(self, parts: list[FetchedBatches]) -> tuple[Range, ...]:
        """The ranges of a cycle that is worth a job: what waits in all partitions, up to the limit. Else none."""
        if not self._jobs:
            return ()
        each = sum(len(part.data) for part in parts) / sum(part.next_offset - part.start for part in parts)
        behind = sum(max(0, part.high_watermark - part.start) for part in parts)
        if each * behind <= self._context.inline_max_bytes:
            return ()
        assert self._brokers is not None
        wanted = dict.fromkeys(self._positions, LATEST)
        ends = list_offsets(self._brokers, wanted, isolation=self._isolation, timeout_s=60.0)
        self._ends = ends
        waiting = {place: end for place, end in ends.items() if end > self._positions[place]}
        most = max(1, int(self._context.limit.bytes / each / max(1, len(waiting))))
        return tuple(
            Range(*place, self._positions[place], min(end, self._positions[place] + most))
            for place, end in sorted(waiting.items())
        )

    def _poll(self) -> list[FetchedBatches]:
        assert self._fetcher is not None
        try:
            found = self._fetcher.poll(self._positions, self._context.tuning.fetch_max_wait_ms)
        except OffsetGone as error:
            raise TaskFailed(
                f"{error}. Set the offset of the connector (`ottla connectors offsets set`) to go on"
            ) from error
        return [part for part in found if part.next_offset > part.start]

    def _intended_parts(self) -> list[FetchedBatches]:
        """The ranges of a cycle that was planned before a crash, read again."""
        assert self._fetcher is not None
        wanted = [OffsetRange(one.topic, one.partition, one.start, one.end) for one in self._intended]
        return list(self._fetcher.ranges(wanted))

    def _run_cycle(self, cycle: SinkCycle, parts: list[FetchedBatches], *, as_job: bool) -> int:
        driver, writer = self._driver, self._writer
        assert driver is not None and writer is not None
        if not writer.idempotent and not self._intended:
            self._intend(driver, cycle)
        messages: list[Written] = []
        counter = _Counter()
        try:
            if as_job:
                messages, counter.count = self._run_job(cycle, writer)
            else:
                messages.append(
                    writer.write_columns(cycle, counter.counted(self._records(parts)), self._refuse)
                )
            writer.commit(cycle, messages)
        except BaseException:
            self._chain.tolerance.take_failures()
            writer.abort(cycle, messages)
            raise
        self._commit(driver, cycle)
        self._intended = ()
        self._number = cycle.number
        for one in cycle.ranges:
            self._positions[WriterPlace(one.topic, one.partition)] = one.end
        return counter.count

    def _run_job(self, cycle: SinkCycle, writer: SinkWriter) -> tuple[list[Written], int]:
        from ottla.connect.run.jobs import SinkJob

        context = self._context
        assert context.spark is not None
        kind = type(self._connector).__name__
        job = SinkJob(writer, cycle, context.chain, context.settings, self._isolation, kind)
        messages, records, size, skipped = job.run(context.spark())
        context.progress.jobs += 1
        context.progress.bytes += size
        self._chain.tolerance.skipped += skipped
        return messages, records

    def _records(self, parts: list[FetchedBatches]) -> Iterator[SinkRecord | RecordColumns]:
        for part in parts:
            for batch in decode(part):
                self._context.progress.bytes += batch.nbytes
                yield from self._chain.to_columns(batch)

    def _refuse(self, record: SinkRecord, error: Exception) -> None:
        self._chain.tolerance.failed(Stage.TASK_PUT, type(self._connector).__name__, record, error)

    def _intend(self, driver: TransactionDriver, cycle: SinkCycle) -> None:
        """Records the ranges before they are written."""
        for one in cycle.ranges:
            text = f"ottla {cycle.lineage}.{cycle.number} end={one.end}"
            driver.commit_offsets(self._group, {one.topic: {one.partition: one.start}}, text)
        self._end(driver)
        self._number, self._intended = cycle.number, cycle.ranges

    def _commit(self, driver: TransactionDriver, cycle: SinkCycle) -> None:
        failures = self._chain.tolerance.take_failures()
        offsets: dict[str, dict[int, int]] = {}
        for one in cycle.ranges:
            offsets.setdefault(one.topic, {})[one.partition] = one.end
        try:
            if failures:
                letters = BatchWriter(driver.brokers, driver.grant())
                append_dead_letters(letters, driver.brokers, self._context, failures)
                letters.flush()
            driver.commit_offsets(self._group, offsets, f"ottla {cycle.lineage}.{cycle.number}")
        except SinkFenced:
            raise
        except BaseException:
            driver.abort()
            raise
        self._end(driver)

    def _end(self, driver: TransactionDriver) -> None:
        try:
            driver.commit()
        except CommitUnknown as error:
            raise ConnectionError(
                f"the answer to a commit was lost ({error}): the connector starts again from what was committed"
            ) from error

    def _lag(self, parts: list[FetchedBatches]) -> str:
        behind = sum(max(0, part.high_watermark - part.next_offset) for part in parts)
        return f"{behind} records"

    def _lag_after_job(self) -> str:
        behind = sum(max(0, end - self._positions.get(place, end)) for place, end in self._ends.items())
        return f"{behind} records"

    def wait(self) -> None:
        """Waits for topics to appear; new records are waited for by the fetch itself."""
        if not self._positions:
            self._context.stopping.wait(self._context.poll_s)
            self._refreshed = 0.0

    def stop(self) -> None:
        """Closes everything."""
        if self._writer is not None:
            self._writer.stop()
        if self._driver is not None:
            self._driver.close()


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def counted(self, found: Iterator[SinkRecord | RecordColumns]) -> Iterator[SinkRecord | RecordColumns]:
        for one in found:
            self.count += 1 if isinstance(one, SinkRecord) else len(one)
            yield one


def _intents(held: Mapping[tuple[str, int], Committed]) -> tuple[Range, ...]:
    """The ranges that were planned and not committed."""
    found = []
    for (topic, partition), one in sorted(held.items()):
        match = _INTENT.match(one.metadata or "")
        if match is not None:
            found.append(Range(topic, partition, one.offset, int(match[1])))
    return tuple(found)
