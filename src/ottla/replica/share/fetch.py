"""Reading for a ShareFetch request: records that a member may acquire, waiting for them where there are none.

Nothing is acquired before it is clear that the request is answered now. A read that would touch the disk is done in
a thread; until it is back nobody else reads for that share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ApiException, ErrorCode
from ottla.log.types import AbortedTxn, LogSlice, WouldBlock
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.control import ControlType, end_txn_marker
from ottla.replica.offload import outcome
from ottla.replica.share.manager import SharePartitions
from ottla.replica.share.partition import SharePartition
from ottla.replica.share.persister import ShareKey
from ottla.replica.share.sessions import PartitionKey
from ottla.replica.share.states import Acquired, AcquireMode

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.delayed_requests import DelayedRequest

_EMPTY: Final = b""


@dataclass(slots=True)
class Fetched:
    """What a member gets of one partition."""

    error: ApiException | None = None
    records: Any = _EMPTY
    acquired: list[Acquired] = field(default_factory=list)


Results = dict[PartitionKey, Fetched]


@dataclass(slots=True)
class _Read:
    share: SharePartition
    offset: int
    max_bytes: int
    piece: LogSlice | None = None
    error: ApiException | None = None


class ShareFetch:
    """One request's reading. `start` gives the results, or None: then `done` is called with them later."""

    __slots__ = (
        "_batch_size",
        "_cancelled",
        "_done",
        "_group_id",
        "_keys",
        "_max_bytes",
        "_max_records",
        "_max_wait_ms",
        "_member_id",
        "_min_bytes",
        "_mode",
        "_parked",
        "_read_committed",
        "_reads",
        "_results",
        "_shares",
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
        self._shares = shares
        self._group_id = group_id
        self._member_id = member_id
        self._keys = partitions
        self._done = done
        self._max_bytes = max_bytes
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_wait_ms = max_wait_ms
        self._max_records = max_records
        self._batch_size = batch_size
        self._mode = mode
        self._read_committed = shares.settings(group_id).read_committed
        self._parked: DelayedRequest | None = None
        self._cancelled = False
        self._reads: list[_Read] = []
        self._results: Results = {}

    def start(self) -> Results | None:
        """Read now. None: cold data is being read, or the request waits."""
        if not self._keys or self._max_records <= 0 or self._max_bytes <= 0:
            return self._results
        if not self._read():
            return None
        if self._enough() or self._max_wait_ms <= 0:
            return self._acquire()
        self._let_go()
        return None if self._park() else self._results

    def cancel(self) -> None:
        """The client has gone."""
        self._cancelled = True
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None

    # -- waiting

    def _park(self) -> bool:
        watched: list[Any] = []
        for share in self._found():
            watched += (share, share.partition)
        self._parked = self._shares.replicas.waiting.park(
            watched, self._need(), self._max_wait_ms / 1000, self._woken
        )
        return self._parked is not None

    def _need(self) -> int:
        # With transactions a small marker can make many bytes readable: look after every append then.
        return 1 if self._read_committed else max(1, self._min_bytes - self._total())

    def _woken(self, expired: bool) -> int:
        if not self._read():
            return 0
        if expired or self._enough():
            self._parked = None
            self._answer()
            return 0
        self._let_go()
        return self._need()

    def _total(self) -> int:
        return sum(len(read.piece.records) for read in self._reads if read.piece is not None)

    def _enough(self) -> bool:
        if len(self._results) == len(self._keys) or any(read.error is not None for read in self._reads):
            return True
        return bool(self._reads) and self._total() >= self._min_bytes

    # -- reading

    def _found(self) -> Iterator[SharePartition]:
        """The share partitions that can be used; what keeps the others from it becomes their result."""
        self._results.clear()
        for part in self._keys:
            try:
                yield self._shares.obtain(ShareKey(self._group_id, *part))
            except ApiException as error:
                self._results[part] = Fetched(error)

    def _read(self) -> bool:
        """Read for every share partition that has something to give. False: a cold one is being read in a thread."""
        ready = [share for share in self._found() if share.can_acquire()]
        self._reads = [
            _Read(share, share.next_fetch_offset(), max_bytes)
            for share, max_bytes in zip(ready, self._allotments(len(ready)), strict=True)
        ]
        for share in ready:
            share.reading = True
        return self._read_from(0)

    def _allotments(self, count: int) -> Iterator[int]:
        """The request's bytes in equal parts, what is left over to the first."""
        for number in range(count):
            yield self._max_bytes // count + (self._max_bytes % count if not number else 0)

    def _read_from(self, index: int) -> bool:
        min_one = self._total() == 0
        for place, read in enumerate(self._reads[index:], index):
            try:
                log = read.share.partition.local_log()
                read.piece = self._read_one(read, log, min_one, nowait=True)
            except WouldBlock:
                work = partial(self._read_one, read, log, min_one, nowait=False)
                self._shares.replicas.offload.run(work, partial(self._cold_done, place))
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
            piece.records = memoryview(_EMPTY)
        return piece

    def _failed(self, read: _Read, error: ApiException) -> None:
        read.error = error
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has overtaken the group: it goes on with what is still there.
            log = read.share.partition.log
            if log is not None:
                read.share.log_start_moved(log.log_start_offset)

    def _cold_done(self, place: int, future: Future[LogSlice]) -> None:
        piece = outcome(future)
        read = self._reads[place]
        if isinstance(piece, ApiException):
            self._failed(read, piece)
        else:
            read.piece = piece
        if self._cancelled:
            self._let_go()
        elif self._read_from(place + 1):
            self._answer()

    # -- acquiring

    def _let_go(self) -> None:
        for read in self._reads:
            read.share.reading = False

    def _answer(self) -> None:
        results = self._acquire()
        if not self._cancelled:
            self._done(results)

    def _acquire(self) -> Results:
        """Acquire from what was read, and let others read again."""
        self._let_go()
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
        """What this request left over is for those who were kept waiting."""
        log = share.partition.log
        if log is not None and share.can_acquire() and share.next_fetch_offset() < log.high_watermark:
            for parked in share.waiters:
                if parked is not self._parked:
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
    records: Any, batches: list[tuple[int, BatchHeader]], transactions: list[AbortedTxn]
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
