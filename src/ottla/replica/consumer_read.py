"""Reading for a consumer's Fetch request: many partitions within its limits, waiting for data if there is too little.

The session (`ottla.replica.fetch_sessions`) decides the order of partitions and which results are sent; the log
reads its files. A read that would block is done in a thread, one partition at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ApiException
from ottla.ids import ProducerId
from ottla.log.types import LogSlice, WouldBlock
from ottla.replica.partition_reader import (
    EMPTY,
    EXPECTED_READ_ERRORS,
    DelayedReader,
    PartitionReader,
    TooManyNewLogs,
    diverging_epoch,
    end_of_batches,
    ends_before,
    failed_data,
)
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.ids import BrokerId
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.delayed_requests import Waiters
    from ottla.replica.fetch_partition import FetchPartition
    from ottla.replica.manager import ReplicaManager

Results = Sequence[FetchResponse.PartitionData | None]
FetchDone = Callable[[Results], None]

_Data = FetchResponse.PartitionData


class ConsumerRead(DelayedReader[Results]):
    """One consumer's Fetch request. In a session, partitions without news are `None` in the results."""

    __slots__ = (
        "_entries",
        "_limit",
        "_max_bytes",
        "_min_bytes",
        "_min_one",
        "_must_respond",
        "_only_leader",
        "_rack",
        "_read_committed",
        "_results",
        "_total",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        entries: Sequence[FetchPartition],
        done: FetchDone,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        read_committed: bool = False,
        only_leader: bool = True,
        rack: str = "",
    ) -> None:
        PartitionReader.__init__(self, replicas, done, max_wait_ms)  # cheaper than super()
        self._entries = entries
        self._max_bytes = max_bytes
        self._min_bytes = min(min_bytes, max_bytes)
        self._read_committed = read_committed
        self._only_leader = only_leader
        """False: the consumer's version lets it read from a follower."""
        self._rack = rack

    def _begin(self) -> None:
        self._results: list[FetchResponse.PartitionData | None] = []
        self._limit = self._max_bytes
        self._min_one = True
        self._total = 0
        self._must_respond = not self._entries

    def _complete(self) -> Results:
        return self._results

    # -- waiting

    def _enough(self) -> bool:
        return self._must_respond or self._total >= self._min_bytes or (self._total > 0 and self._cut_short())

    def _cut_short(self) -> bool:
        """Whether some partition has more to read than fitted."""
        for part, data in zip(self._entries, self._results, strict=True):
            if data is None or part.partition is None or part.partition.log is None:
                continue
            if ends_before(data, part.fetch_offset, self._upper_offset(part.partition.log)):
                return True
        return False

    def _waiters(self) -> Iterable[Waiters]:
        return [part.partition.high_watermark_waiters for part in self._entries if part.partition is not None]

    def _needed_bytes(self) -> int:
        # With transactions a small marker can make many bytes readable: read after every append then.
        return 1 if self._read_committed else max(1, self._min_bytes - self._total)

    # -- reading

    def _read(self) -> bool:
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
            except TooManyNewLogs:
                self._replicas.after_new_logs(self._resume)
                return False
        return True

    def _read_one(self, part: FetchPartition) -> FetchResponse.PartitionData | None:
        partition = part.partition
        if partition is None or partition.gone:
            partition = part.partition = self._replicas.find(part.key)
        partition.counters.fetches += 1
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
        if self._rack:
            nearer = self._replicas.nearer_replica(partition, self._rack, part.fetch_offset)
            if nearer is not None:
                return self._redirected(part, log, nearer)
        mark = log.high_watermark
        upper = log.last_stable_offset if self._read_committed else mark
        offset = part.fetch_offset
        if upper <= offset <= log.log_end_offset:
            # Caught up, by far the most common case.
            sent = part.sent
            if (
                sent is not None
                and mark == sent.high_watermark
                and log.log_start_offset == sent.log_start_offset
            ):
                return None
            return self._data(part, log, mark)
        if self._limit <= 0 and not self._min_one and log.log_start_offset <= offset < upper:
            # The response is full: no need to find where its records would begin.
            return self._data(part, log, mark)
        piece = log.read(
            offset,
            min(part.max_bytes, self._limit),
            upper_offset=upper,
            min_one_batch=self._min_one,
            nowait=True,
        )
        return self._with_records(part, log, mark, piece)

    def _diverging(self, part: FetchPartition, log: PartitionLog) -> FetchResponse.PartitionData | None:
        diverging = diverging_epoch(part, log)
        if diverging is None:
            return None
        self._must_respond = True
        data = self._data(part, log, log.high_watermark)
        data.diverging_epoch = diverging
        return data

    def _redirected(
        self, part: FetchPartition, log: PartitionLog, nearer: BrokerId
    ) -> FetchResponse.PartitionData:
        self._must_respond = True
        data = self._data(part, log, log.high_watermark)
        data.preferred_read_replica = nearer
        return data

    def _with_records(
        self, part: FetchPartition, log: PartitionLog, mark: int, piece: LogSlice
    ) -> FetchResponse.PartitionData:
        """Count what was read against the request's limits; a batch that did not fit is left out."""
        data = self._data(part, log, mark)
        if piece.first_batch_complete:
            data.records = records = piece.records
            size = len(records)
            if size:
                self._min_one = False
                self._total += size
                self._limit = max(0, self._limit - size)
                if self._read_committed:
                    data.aborted_transactions = _aborted(log, part.fetch_offset, records, piece.bound)
        return data

    def _data(self, part: FetchPartition, log: PartitionLog, mark: int) -> FetchResponse.PartitionData:
        """A result without records."""
        return _Data(
            partition_index=part.index,
            high_watermark=mark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=EMPTY,
        )

    def _failed(self, part: FetchPartition, error: ApiException) -> FetchResponse.PartitionData:
        self._must_respond = True
        if part.partition is not None and error.code not in EXPECTED_READ_ERRORS:
            part.partition.counters.failed_fetches += 1
        return failed_data(part, error)

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
        self._read_in_thread(read, partial(self._take_cold, part, log, log.high_watermark))

    def _upper_offset(self, log: PartitionLog) -> int:
        return log.last_stable_offset if self._read_committed else log.high_watermark

    def _take_cold(
        self, part: FetchPartition, log: PartitionLog, mark: int, piece: LogSlice | ApiException
    ) -> None:
        try:
            if isinstance(piece, ApiException):
                raise piece
            self._results.append(self._with_records(part, log, mark, piece))
        except ApiException as error:
            self._results.append(self._failed(part, error))


def _aborted(
    log: PartitionLog, start: int, records: Buffer, bound: int
) -> list[FetchResponse.AbortedTransaction]:
    """The aborted transactions that a reader of these records must know of."""
    found = log.aborted_transactions(start, bound)
    if not found:
        # The common case: no need to find the end of the records, batch by batch.
        return []
    end = end_of_batches(records, start)
    return [
        FetchResponse.AbortedTransaction(
            producer_id=ProducerId(txn.producer_id), first_offset=txn.first_offset
        )
        for txn in found
        if txn.first_offset < end
    ]
