"""Reading for a ConsumerRead request: many partitions within its bounds, waiting for data where there is too little.

The order of partitions and what of the result is sent are the session's business (`ottla.replica.fetch_sessions`),
the files the log's. A read that would touch the disk is done in a thread, one partition at a time, and the request
goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ApiException
from ottla.log.types import LogSlice, WouldBlock
from ottla.records.batch import CorruptBatchError, iter_batches
from ottla.replica.fetch_sessions import FetchPartition, PartitionData
from ottla.replica.follower_read import diverging_epoch
from ottla.replica.offload import outcome
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.delayed_requests import DelayedRequest
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition

Results = Sequence[PartitionData | None]
FetchDone = Callable[[Results], None]

_Data: Any = FetchResponse.PartitionData
_EMPTY: Final = b""
_CONSUMER: Final = -1
_NEW_LOGS_AT_ONCE: Final = 4
"""A log takes most of a millisecond to be made: a request for a thousand new partitions must not make them all."""


class _TooManyNewLogs(Exception):
    """Go on in another turn of the event loop."""


class ConsumerRead:
    """One ConsumerRead request's reading. `start` gives the results, or None: then `done` is called with them later."""

    __slots__ = (
        "_cancelled",
        "_done",
        "_entries",
        "_incremental",
        "_limit",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_min_one",
        "_must_answer",
        "_new_logs",
        "_only_leader",
        "_parked",
        "_rack",
        "_read_committed",
        "_replica_epoch",
        "_replica_id",
        "_replicas",
        "_results",
        "_total",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        entries: list[FetchPartition],
        done: FetchDone,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        read_committed: bool = False,
        replica_id: int = _CONSUMER,
        replica_epoch: int = -1,
        only_leader: bool = True,
        rack: str = "",
        incremental: bool = False,
    ) -> None:
        self._replicas = replicas
        self._entries = entries
        self._done = done
        self._max_bytes = max_bytes
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_wait_ms = max_wait_ms
        self._read_committed = read_committed
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._only_leader = only_leader or replica_id >= 0
        """A consumer that knows of it may read from a follower."""
        self._rack = rack
        self._incremental = incremental
        """Partitions of which there is nothing new may be `None` in the results."""
        self._parked: DelayedRequest | None = None
        self._new_logs = 0
        self._cancelled = False

    def start(self) -> Results | None:
        """Read now. None: cold data is being read, logs are being made, or the request waits for data."""
        self._begin()
        if not self._read():
            return None
        if self._enough() or self._max_wait_ms <= 0 or not self._entries:
            return self._results
        return None if self._park() else self._results

    def cancel(self) -> None:
        """The client has gone."""
        self._cancelled = True
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None

    # -- waiting

    def _enough(self) -> bool:
        return self._must_answer or self._total >= self._min_bytes or (self._total > 0 and self._cut_short())

    def _cut_short(self) -> bool:
        """Whether some partition has more to give than it was asked for, or than its segment had."""
        for part, data in zip(self._entries, self._results, strict=True):
            if data is None or not data.records or part.partition is None or part.partition.log is None:
                continue
            try:
                end_offset = _end_offset(data.records, part.fetch_offset)
            except CorruptBatchError:
                # The disk is at fault; the client will find out by the checksum.
                return True
            if end_offset < self._upper_offset(part.partition.log):
                return True
        return False

    def _park(self) -> bool:
        partitions = [part.partition for part in self._entries if part.partition is not None]
        self._parked = self._replicas.waiting.park(
            partitions,
            self._need(),
            self._max_wait_ms / 1000,
            self._woken,
            at_end=self._replica_id >= 0,
        )
        return self._parked is not None

    def _need(self) -> int:
        # With transactions a small marker can make many bytes readable: look after every append then.
        return 1 if self._read_committed else max(1, self._min_bytes - self._total)

    def _woken(self, expired: bool) -> int:
        self._begin()
        if not self._read():
            return 0
        if not expired and not self._enough():
            return self._need()
        self._finish()
        return 0

    def _finish(self) -> None:
        self._parked = None
        if not self._cancelled:
            self._done(self._results)

    # -- reading

    def _begin(self) -> None:
        self._results: list[PartitionData | None] = []
        self._limit = self._max_bytes
        self._min_one = True
        self._total = 0
        self._must_answer = False

    def _read(self) -> bool:
        """Read the partitions that have no result yet. False: a cold or new one comes first, and then the rest."""
        results = self._results
        read_one = self._read_one
        self._new_logs = 0
        for part in self._entries[len(results) :] if results else self._entries:
            try:
                results.append(read_one(part))
            except ApiException as error:
                results.append(self._failed(part, error))
            except WouldBlock:
                self._read_cold(part)
                return False
            except _TooManyNewLogs:
                self._replicas.after_new_logs(self._go_on)
                return False
        return True

    def _go_on(self) -> None:
        if self._cancelled or not self._read():
            return
        if self._enough() or self._max_wait_ms <= 0 or not self._park():
            self._finish()

    def _read_one(self, part: FetchPartition) -> PartitionData | None:
        partition = part.partition
        if partition is None or partition.gone:
            partition = part.partition = self._replicas.find(part.key)
        epoch = part.leader_epoch
        if (epoch >= 0 and epoch != partition.leader_epoch) or not partition.is_leader:
            if self._only_leader:
                partition.check_leader(epoch)
            else:
                partition.check_replica(epoch)
        log = partition.log or self._new_log(partition)
        if part.last_fetched_epoch >= 0:
            diverging = self._diverging(part, log)
            if diverging is not None:
                return diverging
        if self._replica_id >= 0:
            return self._read_for_follower(part, partition, log)
        if self._rack:
            nearer = self._replicas.nearer_replica(partition, self._rack, part.fetch_offset)
            if nearer is not None:
                self._must_answer = True
                data = self._data(part, log, log.high_watermark)
                data.preferred_read_replica = nearer
                return data
        mark = log.high_watermark
        upper = log.last_stable_offset if self._read_committed else mark
        offset = part.fetch_offset
        if upper <= offset <= log.log_end_offset:
            # Caught up, by far the most common case.
            start = log.log_start_offset
            if self._incremental and mark == part.sent_high_watermark and start == part.sent_log_start_offset:
                return None
            return self._data(part, log, mark)
        if self._limit <= 0 and not self._min_one and log.log_start_offset <= offset < upper:
            # The answer is full: no need to look where its records would begin.
            return self._data(part, log, mark)
        piece = log.read(
            offset,
            min(part.max_bytes, self._limit),
            upper_offset=upper,
            min_one_batch=self._min_one,
            nowait=True,
        )
        return self._with_records(part, log, mark, piece)

    def _new_log(self, partition: Partition) -> PartitionLog:
        if self._new_logs >= _NEW_LOGS_AT_ONCE:
            raise _TooManyNewLogs
        self._new_logs += 1
        return partition.local_log()

    def _read_for_follower(
        self, part: FetchPartition, partition: Partition, log: PartitionLog
    ) -> PartitionData:
        self._replicas.check_follower(partition, part, self._replica_id, self._replica_epoch)
        piece = log.read(
            part.fetch_offset, min(part.max_bytes, self._limit), min_one_batch=self._min_one, nowait=True
        )
        if self._parked is None and self._replica_epoch >= 0:
            partition.follower_fetched(
                log,
                self._replica_id,
                part.fetch_offset,
                start_offset=part.log_start_offset,
                broker_epoch=self._replica_epoch,
            )
        return self._with_records(part, log, log.high_watermark, piece)

    def _diverging(self, part: FetchPartition, log: PartitionLog) -> PartitionData | None:
        diverging = diverging_epoch(part, log)
        if diverging is None:
            return None
        self._must_answer = True
        data = self._data(part, log, log.high_watermark)
        data.diverging_epoch = diverging
        return data

    def _take(self, piece: LogSlice) -> Any:
        """Count what was read against the request's bounds; a batch that did not fit is left out whole."""
        if not piece.first_batch_complete:
            return _EMPTY
        records = piece.records
        size = len(records)
        if size:
            self._min_one = False
            self._total += size
            self._limit = max(0, self._limit - size)
        return records

    def _with_records(
        self, part: FetchPartition, log: PartitionLog, mark: int, piece: LogSlice
    ) -> PartitionData:
        data = self._data(part, log, mark)
        data.records = records = self._take(piece)
        if self._read_committed and records:
            data.aborted_transactions = _aborted(log, part.fetch_offset, records, piece.bound)
        return data

    def _data(self, part: FetchPartition, log: PartitionLog, mark: int) -> PartitionData:
        """An answer without records."""
        return _Data(
            partition_index=part.index,
            high_watermark=mark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=_EMPTY,
        )

    def _failed(self, part: FetchPartition, error: ApiException) -> PartitionData:
        self._must_answer = True
        return _Data(
            partition_index=part.index,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=_EMPTY,
        )

    # -- cold data

    def _read_cold(self, part: FetchPartition) -> None:
        partition = part.partition
        assert partition is not None and partition.log is not None  # it was just read from
        log = partition.log
        read = partial(
            log.read,
            part.fetch_offset,
            min(part.max_bytes, self._limit),
            upper_offset=self._upper_offset(log),
            min_one_batch=self._min_one,
        )
        self._replicas.offload.run(read, partial(self._cold_done, part, log, log.high_watermark))

    def _upper_offset(self, log: PartitionLog) -> int:
        if self._replica_id >= 0:
            return log.log_end_offset
        return log.last_stable_offset if self._read_committed else log.high_watermark

    def _cold_done(
        self, part: FetchPartition, log: PartitionLog, mark: int, future: Future[LogSlice]
    ) -> None:
        if self._cancelled:
            return
        piece = outcome(future)
        try:
            if isinstance(piece, ApiException):
                raise piece
            self._results.append(self._with_records(part, log, mark, piece))
        except ApiException as error:
            self._results.append(self._failed(part, error))
        if self._read():
            self._finish()


def _end_offset(records: Any, start: int) -> int:
    """The offset after the last whole batch of a piece of log."""
    end = start
    for _, header in iter_batches(records):
        end = header.next_offset
    return end


def _aborted(log: PartitionLog, start: int, records: Any, bound: int) -> list[Any]:
    """The aborted transactions that a reader of these records must know of."""
    found = log.aborted_transactions(start, bound)
    if not found:
        # Mostly: then there is no need to look for the end of the records, batch by batch.
        return []
    end = _end_offset(records, start)
    return [
        FetchResponse.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in found
        if txn.first_offset < end
    ]
