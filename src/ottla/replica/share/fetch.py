"""Reading for a ShareFetch request: records that a member may acquire, waiting for them if there are none.

Records are acquired only when the request is answered. A read that would block is done in a thread; until it is
done no other request reads for that share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ApiException, ErrorCode
from ottla.log.types import AbortedTxn, LogSlice, WouldBlock
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.control import ControlType, end_txn_marker
from ottla.replica.partition_reader import EMPTY, DelayedReader
from ottla.replica.share.manager import SharePartitions
from ottla.replica.share.partition import SharePartition
from ottla.replica.share.persister import ShareKey
from ottla.replica.share.sessions import PartitionKey
from ottla.replica.share.states import Acquired, AcquireMode

if TYPE_CHECKING:
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.delayed_requests import Waiters


@dataclass(slots=True)
class Fetched:
    """What a member gets from one partition."""

    error: ApiException | None = None
    records: Buffer = EMPTY
    acquired: list[Acquired] = field(default_factory=list)


Results = dict[PartitionKey, Fetched]


@dataclass(slots=True)
class _Read:
    share: SharePartition
    offset: int
    max_bytes: int
    piece: LogSlice | None = None
    error: ApiException | None = None


class ShareFetch(DelayedReader[Results]):
    """One ShareFetch request."""

    __slots__ = (
        "_batch_size",
        "_group_id",
        "_keys",
        "_max_bytes",
        "_max_records",
        "_member_id",
        "_min_bytes",
        "_mode",
        "_read_committed",
        "_reads",
        "_results",
        "_shares",
        "_unread",
    )

    def __init__(
        self,
        shares: SharePartitions,
        group_id: str,
        member_id: str,
        partitions: list[PartitionKey],
        done: Callable[[Results], None],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
    ) -> None:
        super().__init__(shares.replicas, done, max_wait_ms)
        self._shares = shares
        self._group_id = group_id
        self._member_id = member_id
        self._keys = partitions
        self._max_bytes = max_bytes
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_records = max_records
        self._batch_size = batch_size
        self._mode = mode
        self._read_committed = shares.settings(group_id).read_committed
        self._reads: list[_Read] = []
        self._unread: Iterator[_Read] = iter(())
        self._results: Results = {}

    def start(self) -> Results | None:
        """Read now. None: cold data is being read, or the request waits."""
        if self._max_records <= 0 or self._max_bytes <= 0:
            return self._results
        return super().start()

    # -- waiting

    def _waiters(self) -> Iterable[Waiters]:
        for share in self._found():
            yield share.waiters
            yield share.partition.high_watermark_waiters

    def _needed_bytes(self) -> int:
        # With transactions a small marker can make many bytes readable: read after every append then.
        return 1 if self._read_committed else max(1, self._min_bytes - self._total())

    def _total(self) -> int:
        return sum(len(read.piece.records) for read in self._reads if read.piece is not None)

    def _enough(self) -> bool:
        if len(self._results) == len(self._keys) or any(read.error is not None for read in self._reads):
            return True
        return bool(self._reads) and self._total() >= self._min_bytes

    # -- reading

    def _found(self) -> Iterator[SharePartition]:
        """The share partitions that can be used. The errors of the others become their results."""
        self._results.clear()
        for part in self._keys:
            try:
                yield self._shares.obtain(ShareKey(self._group_id, *part))
            except ApiException as error:
                self._results[part] = Fetched(error)

    def _begin(self) -> None:
        """Reserve every share partition that has records to give: no other request reads for it meanwhile."""
        ready = [share for share in self._found() if share.can_acquire()]
        self._reads = [
            _Read(share, share.next_fetch_offset(), max_bytes)
            for share, max_bytes in zip(ready, self._allotments(len(ready)), strict=True)
        ]
        self._unread = iter(self._reads)
        for share in ready:
            share.reading = True

    def _allotments(self, count: int) -> Iterator[int]:
        """The request's bytes in equal parts; the first part also gets the remainder."""
        for number in range(count):
            yield self._max_bytes // count + (self._max_bytes % count if not number else 0)

    def _read(self) -> bool:
        min_one = self._total() == 0
        for read in self._unread:
            try:
                log = read.share.partition.local_log()
                read.piece = self._read_one(read, log, min_one, nowait=True)
            except WouldBlock:
                work = partial(self._read_one, read, log, min_one, nowait=False)
                self._read_in_thread(work, partial(self._take_cold, read))
                return False
            except ApiException as error:
                self._failed(read, error)
            else:
                min_one = min_one and not len(read.piece.records)
        return True

    def _read_one(self, read: _Read, log: PartitionLog, min_one: bool, *, nowait: bool) -> LogSlice:
        upper = log.last_stable_offset if self._read_committed else log.high_watermark
        piece = log.read(
            read.offset, read.max_bytes, upper_offset=upper, min_one_batch=min_one, nowait=nowait
        )
        if not piece.first_batch_complete:
            piece.records = memoryview(EMPTY)
        return piece

    def _failed(self, read: _Read, error: ApiException) -> None:
        read.error = error
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has deleted records before the group got them: it goes on with what is still there.
            log = read.share.partition.log
            if log is not None:
                read.share.log_start_moved(log.log_start_offset)

    def _take_cold(self, read: _Read, piece: LogSlice | ApiException) -> None:
        if isinstance(piece, ApiException):
            self._failed(read, piece)
        else:
            read.piece = piece

    # -- acquiring

    def _pause(self) -> None:
        """Let other requests read for the share partitions."""
        for read in self._reads:
            read.share.reading = False

    def _complete(self) -> Results:
        """Acquire from what was read, and let other requests read again."""
        self._pause()
        wanted = self._max_records
        for read in self._reads:
            key = read.share.key
            fetched = self._acquire_one(read, wanted)
            wanted -= sum(part.size for part in fetched.acquired)
            self._results[key.topic_id, key.partition] = fetched
        for read in self._reads:
            self._wake_others(read.share)
        return self._results

    def _wake_others(self, share: SharePartition) -> None:
        """Wake the requests that waited for this one: it may have left records."""
        log = share.partition.log
        if log is not None and share.can_acquire() and share.next_fetch_offset() < log.high_watermark:
            for parked in share.waiters:
                if parked is not self._delayed:
                    parked.ready()

    def _acquire_one(self, read: _Read, wanted: int) -> Fetched:
        if read.error is not None:
            return Fetched() if read.error.code == ErrorCode.OFFSET_OUT_OF_RANGE else Fetched(read.error)
        assert read.piece is not None  # read or failed
        records = read.piece.records
        try:
            batches = list(iter_batches(records))
            headers = [header for _, header in batches]
            acquired = read.share.acquire(
                self._member_id,
                headers,
                read.offset,
                max_records=wanted,
                batch_size=self._batch_size,
                mode=self._mode,
                aborted=self._aborted(read, batches) if self._read_committed and batches else (),
            )
        except ApiException as error:
            return Fetched(error)
        if not acquired:
            return Fetched()
        first, last = acquired[0].first, acquired[-1].last
        spans = [
            (position, position + header.size_in_bytes)
            for position, header in batches
            if header.last_offset >= first and header.base_offset <= last
        ]
        return Fetched(records=records[spans[0][0] : spans[-1][1]], acquired=acquired)

    def _aborted(self, read: _Read, batches: list[tuple[int, BatchHeader]]) -> Iterator[tuple[int, int]]:
        assert read.piece is not None
        log = read.share.partition.local_log()
        transactions = log.aborted_transactions(read.offset, batches[-1][1].next_offset)
        return aborted_ranges(read.piece.records, batches, transactions)


def aborted_ranges(
    records: Buffer, batches: list[tuple[int, BatchHeader]], transactions: list[AbortedTxn]
) -> Iterator[tuple[int, int]]:
    """The offsets of batches that belong to aborted transactions."""
    coming = sorted(transactions, key=lambda transaction: transaction.first_offset)
    aborting: set[int] = set()
    for position, header in batches:
        if not header.has_producer_id:
            continue
        while coming and coming[0].first_offset <= header.last_offset:
            aborting.add(coming.pop(0).producer_id)
        if header.is_control:
            marker = end_txn_marker(records, position, header)
            if marker is not None and marker[0] is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            yield header.base_offset, header.last_offset
