"""The course of a request that reads partitions: respond now, after a cold read, or when there is enough data.

Consumers' fetches (`consumer_read`), followers' fetches (`follower_read`) and share fetches (`share.fetch`) say what
is read, when it is enough, and what the results are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import CorruptBatchError, iter_batches
from ottla.replica.offload import outcome
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.log.types import LogSlice
    from ottla.replica.delayed_requests import DelayedRequest, Waiters
    from ottla.replica.fetch_partition import FetchPartition
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition

R = TypeVar("R")

EMPTY: Final = b""
EXPECTED_READ_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""As in Kafka, these do not count as failed fetches: clients meet them in the course of things."""
_NEW_LOGS_PER_TURN: Final = 4
"""Creating a log takes most of a millisecond: a request for a thousand new partitions must not create them all."""


class TooManyNewLogs(Exception):
    """The request has created enough logs for this turn of the event loop."""


class PartitionReader(ABC, Generic[R]):
    """One request. `start` returns its results, or None: then `done` is called with them later."""

    __slots__ = ("_delayed", "_done", "_max_wait_ms", "_new_logs", "_over", "_replicas")

    _new_logs: int
    """Logs created in this turn of the event loop: `_read` resets it."""

    def __init__(self, replicas: ReplicaManager, done: Callable[[R], None], max_wait_ms: int) -> None:
        self._replicas = replicas
        self._done = done
        self._max_wait_ms = max_wait_ms
        self._delayed: DelayedRequest | None = None
        self._over = False
        """The request is answered, or its client has gone."""

    # -- what each kind of request defines

    @abstractmethod
    def _begin(self) -> None:
        """Start over: nothing is read yet."""

    @abstractmethod
    def _read(self) -> bool:
        """Read what is not read yet. False: a cold read or new logs come first, and the request goes on by itself."""

    @abstractmethod
    def _enough(self) -> bool:
        """Whether what was read is worth a response now."""

    @abstractmethod
    def _park(self) -> bool:
        """Wait for more data; False if too many requests wait already."""

    @abstractmethod
    def _complete(self) -> R:
        """The results, from what was read."""

    def _pause(self) -> None:
        """What was read is not used: release what the read holds."""

    # -- the course

    def start(self) -> R | None:
        """Read now. None: the request waits for cold data, for new logs or for more data."""
        self._begin()
        if not self._read():
            return None
        if self._enough() or self._max_wait_ms <= 0 or not self._park():
            return self._complete()
        return None

    def cancel(self) -> None:
        """The client has gone."""
        self._over = True
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None

    def _finish(self) -> None:
        self._delayed = None
        if not self._over:
            self._done(self._complete())

    # -- cold data and new logs

    def _read_in_thread(
        self, read: Callable[[], LogSlice], take: Callable[[LogSlice | ApiException], None]
    ) -> None:
        """Do a read that would block in a thread, then go on with the rest and respond."""
        self._replicas.counters.cold_reads += 1
        self._replicas.offload.run(read, partial(self._read_done, take))

    def _read_done(self, take: Callable[[LogSlice | ApiException], None], future: Future[LogSlice]) -> None:
        piece = outcome(future)
        take(piece)
        if self._over:
            self._pause()
        elif self._read():
            self._finish()

    def _new_log(self, partition: Partition) -> PartitionLog:
        if self._new_logs >= _NEW_LOGS_PER_TURN:
            raise TooManyNewLogs
        self._new_logs += 1
        return partition.local_log()

    def _resume(self) -> None:
        """Go on after new logs."""
        if self._over or not self._read():
            return
        if self._enough() or self._max_wait_ms <= 0 or not self._park():
            self._finish()


class DelayedReader(PartitionReader[R]):
    """A request that waits for data as a delayed request: it is registered with its partitions and has one timer."""

    __slots__ = ()

    @abstractmethod
    def _needed_bytes(self) -> int:
        """How many more bytes make it worth reading again (at least 1)."""

    @abstractmethod
    def _waiters(self) -> Iterable[Waiters]:
        """The waiters to register with."""

    def _park(self) -> bool:
        self._pause()
        self._delayed = self._replicas.delayed_requests.park(
            self._waiters(), self._needed_bytes(), self._max_wait_ms / 1000, self._woken
        )
        return self._delayed is not None

    def _woken(self, expired: bool) -> int:
        self._begin()
        if not self._read():
            return 0
        if not expired and not self._enough():
            self._pause()
            return self._needed_bytes()
        self._finish()
        return 0


def failed_data(part: FetchPartition, error: ApiException) -> FetchResponse.PartitionData:
    """The result for a partition that cannot be read."""
    return FetchResponse.PartitionData(
        partition_index=part.index,
        error_code=error.code,
        high_watermark=-1,
        aborted_transactions=None,
        records=EMPTY,
    )


def diverging_epoch(part: FetchPartition, log: PartitionLog) -> FetchResponse.EpochEndOffset | None:
    """The end of the last epoch that the log shares with the client's, if the client's log diverges from it."""
    requested = part.last_fetched_epoch
    if requested < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(requested)
    if epoch < 0 or end_offset < 0 or part.fetch_offset < log.log_start_offset:
        raise ApiException(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {part.fetch_offset} of epoch {requested} is not in the log",
        )
    if epoch >= requested and end_offset >= part.fetch_offset:
        return None
    return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)


def end_of_batches(records: Buffer, start: int) -> int:
    """The offset after the last whole batch of `records`, or `start` if there is none."""
    end = start
    for _, header in iter_batches(records):
        end = header.next_offset
    return end


def ends_before(data: FetchResponse.PartitionData, start: int, upper_offset: int) -> bool:
    """Whether the partition has more to read than `data` holds, because of a size limit or a segment's end."""
    if not data.records:
        return False
    try:
        return end_of_batches(data.records, start) < upper_offset
    except CorruptBatchError:
        # The disk is damaged; the client finds out by the checksum.
        return True
