"""Reading for a follower that fetches in a session: only the partitions with news, waiting for appends.

The session knows which partitions those are (`ottla.replica.fetch_sessions`). What a follower asks for tells the
partition what it has (`Partition.follower_fetched`). Fetches without a session are `ottla.replica.consumer_read`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import LogSlice, WouldBlock
from ottla.replica.fetch_sessions import FetchPartition, FetchSession, PartitionData
from ottla.replica.offload import outcome
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition

Sent = list[tuple[FetchPartition, PartitionData]]
FollowerDone = Callable[[Sent], None]

_Data: Any = FetchResponse.PartitionData
_EMPTY: Final = b""
NEWS_PAUSE_S: Final = 0.02
"""A high watermark alone may wait so long for records to travel with."""


class FollowerRead:
    """One request of a follower. `start` gives what to send, or None: then `done` is called with it later."""

    __slots__ = (
        "_done",
        "_epoch",
        "_limit",
        "_max_bytes",
        "_max_wait_s",
        "_min_bytes",
        "_news_timer",
        "_over",
        "_reading",
        "_replica",
        "_replicas",
        "_results",
        "_session",
        "_timer",
        "_total",
        "_urgent",
        "_woken",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        session: FetchSession,
        done: FollowerDone,
        *,
        replica_id: int,
        replica_epoch: int,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
    ) -> None:
        self._replicas = replicas
        self._session = session
        self._done = done
        self._replica = replica_id
        self._epoch = replica_epoch
        self._max_bytes = max_bytes
        self._min_bytes = min_bytes
        self._max_wait_s = max_wait_ms / 1000
        self._results: dict[FetchPartition, PartitionData] = {}
        self._limit = max_bytes
        self._total = 0
        self._urgent = False
        """There is something that must not wait for records: an error, a log that went another way."""
        self._reading = False
        self._woken = False
        self._over = False
        self._timer: Timer | None = None
        self._news_timer: Timer | None = None

    def start(self) -> Sent | None:
        """Read now. None: there is nothing yet, or it is being read from the disk."""
        session = self._session
        if session.parked is not None:
            session.parked.give_way()
        session.parked = self
        if not self._read():
            return None
        if self._enough() or self._max_wait_s <= 0:
            return self._finished()
        self._timer = self._replicas.clock.call_later(self._max_wait_s, self.expire)
        if self._results:
            self.wake_soon()
        return None

    # -- waiting

    def _enough(self) -> bool:
        return self._urgent or self._total >= max(1, self._min_bytes)

    def wake(self) -> None:
        """There are records: look on the loop's next turn."""
        if not self._woken and not self._over:
            self._woken = True
            self._replicas.clock.call_later(0.0, self._look)

    def wake_soon(self) -> None:
        """There is other news, which can wait a moment for records to go with."""
        if self._news_timer is None and not self._over:
            self._news_timer = self._replicas.clock.call_later(NEWS_PAUSE_S, self._look_for_news)

    def _look(self) -> None:
        self._woken = False
        if not self._over and not self._reading and self._read() and self._enough():
            self._send()

    def _look_for_news(self) -> None:
        self._news_timer = None
        if not self._over and not self._reading and self._read() and self._results:
            self._send()

    def expire(self) -> None:
        """Answer with what there is."""
        if not self._over and (self._reading or self._read()):
            self._send()

    def give_way(self) -> None:
        """The follower has asked for more than it had when it sent this one: answer without looking at that.

        What it asks for anew it would not take from this answer any more: the next one has to bring it.
        """
        for part in [part for part in self._results if part.asked]:
            self._put_back(part, self._results.pop(part))
        self._send()

    def cancel(self) -> None:
        """The follower has gone."""
        self._finished()

    def _finished(self) -> Sent:
        self._over = True
        for timer in (self._timer, self._news_timer):
            if timer is not None:
                timer.cancel()
        if self._session.parked is self:
            self._session.parked = None
        return list(self._results.items())

    def _send(self) -> None:
        self._done(self._finished())

    # -- reading

    def _read(self) -> bool:
        """Take what is fresh. False: something is being read from the disk first."""
        fresh = self._session.fresh
        later: list[FetchPartition] = []
        results = self._results
        while fresh:
            part = next(iter(fresh))
            del fresh[part]
            if part in results:
                self._put_back(part, results.pop(part))
            try:
                data = self._read_one(part, later)
            except ApiException as error:
                self._urgent = True
                part.sent_high_watermark = -1
                data = _failed(part, error)
            except WouldBlock:
                self._read_cold(part)
                for each in later:
                    fresh[each] = None
                return False
            if data is not None:
                results[part] = data
        for each in later:
            fresh[each] = None
        return True

    def _put_back(self, part: FetchPartition, data: PartitionData) -> None:
        """What was read for the partition, and not sent yet, is read anew."""
        part.sent_high_watermark = -1
        self._total -= len(data.records)
        self._limit += len(data.records)

    def _read_one(self, part: FetchPartition, later: list[FetchPartition]) -> PartitionData | None:
        partition = part.partition
        if partition is None or partition.gone:
            partition = part.partition = self._replicas.find(part.key)
            partition.tails[part] = None
        epoch = part.leader_epoch
        if (epoch >= 0 and epoch != partition.leader_epoch) or not partition.is_leader:
            partition.check_leader(epoch)
        log = partition.log
        if log is None:
            return None  # it is being opened, and then there is news
        offset = part.fetch_offset
        if part.asked:
            diverging = self._take_note(part, partition, log)
            if diverging is not None:
                return diverging
        mark = log.high_watermark
        if offset < log.log_end_offset:
            if self._limit <= 0:
                later.append(part)
                return None
            if self._replicas.leader_throttle.holds(partition, self._replica):
                self._replicas.leader_throttle.when_free(part.ready)
                return None
            piece = log.read(
                offset, min(part.max_bytes, self._limit), min_one_batch=not self._total, nowait=True
            )
            return self._data(part, partition, log, mark, piece, later)
        if mark == part.sent_high_watermark and log.log_start_offset == part.sent_log_start_offset:
            return None
        return _told(part, log, mark, _EMPTY)

    def _take_note(
        self, part: FetchPartition, partition: Partition, log: PartitionLog
    ) -> PartitionData | None:
        """Note what the follower has; where its log went another way, tell it from where."""
        part.asked = False
        self._replicas.check_follower(partition, part, self._replica, self._epoch)
        offset = part.fetch_offset
        diverging = diverging_epoch(part, log)
        if diverging is not None:
            self._urgent = True
            data = _told(part, log, log.high_watermark, _EMPTY)
            data.diverging_epoch = diverging
            return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ApiException(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic}-{partition.index} holds offsets {log.log_start_offset} to "
                f"{log.log_end_offset}, not {offset}",
            )
        if self._epoch >= 0:
            partition.follower_fetched(
                log,
                self._replica,
                offset,
                start_offset=part.log_start_offset,
                broker_epoch=self._epoch,
                pulse=self._session,
            )
        return None

    def _data(
        self,
        part: FetchPartition,
        partition: Partition,
        log: PartitionLog,
        mark: int,
        piece: LogSlice,
        later: list[FetchPartition],
    ) -> PartitionData | None:
        """Count what was read against the request's bounds; a batch that did not fit waits for the next."""
        if not piece.first_batch_complete:
            later.append(part)
            return None
        size = len(piece.records)
        self._total += size
        self._limit -= size
        self._replicas.leader_throttle.record(partition, self._replica, size)
        return _told(part, log, mark, piece.records)

    # -- cold data

    def _read_cold(self, part: FetchPartition) -> None:
        partition = part.partition
        assert partition is not None and partition.log is not None  # it was just read from
        log = partition.log
        read = partial(
            log.read, part.fetch_offset, min(part.max_bytes, self._limit), min_one_batch=not self._total
        )
        self._reading = True
        done = partial(self._cold_done, part, partition, log, log.high_watermark)
        self._replicas.offload.run(read, done)

    def _cold_done(
        self,
        part: FetchPartition,
        partition: Partition,
        log: PartitionLog,
        mark: int,
        future: Future[LogSlice],
    ) -> None:
        self._reading = False
        if self._over:
            if part.session is not None:
                part.session.fresh[part] = None
            return
        piece = outcome(future)
        if isinstance(piece, ApiException):
            self._urgent = True
            self._results[part] = _failed(part, piece)
        else:
            later: list[FetchPartition] = []
            data = self._data(part, partition, log, mark, piece, later)
            if data is not None:
                self._results[part] = data
            for each in later:
                self._session.fresh[each] = None
        if self._read():
            self._send()


def diverging_epoch(part: FetchPartition, log: PartitionLog) -> Any | None:
    """The end of the last epoch that the log has in common with the client's, where they went apart."""
    asked = part.last_fetched_epoch
    if asked < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(asked)
    if epoch < 0 or end_offset < 0 or part.fetch_offset < log.log_start_offset:
        raise ApiException(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {part.fetch_offset} of epoch {asked} is not in the log",
        )
    if epoch >= asked and end_offset >= part.fetch_offset:
        return None
    return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _told(part: FetchPartition, log: PartitionLog, mark: int, records: Any) -> PartitionData:
    start = log.log_start_offset
    part.sent_high_watermark = mark
    part.sent_log_start_offset = start
    return _Data(
        partition_index=part.index,
        high_watermark=mark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=start,
        aborted_transactions=None,
        records=records,
    )


def _failed(part: FetchPartition, error: ApiException) -> PartitionData:
    return _Data(
        partition_index=part.index,
        error_code=error.code,
        high_watermark=-1,
        aborted_transactions=None,
        records=_EMPTY,
    )
