"""Reading for a follower's Fetch request: the partitions of its session that have news, waiting for appends.

The session knows which partitions those are (`ottla.replica.fetch_sessions`). The offsets that a follower requests
show what it has replicated (`Partition.follower_fetched`). A full fetch covers every partition of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import LogSlice, WouldBlock
from ottla.replica.fetch_sessions import NO_SESSION, FollowerSession
from ottla.replica.partition_reader import (
    EMPTY,
    PartitionReader,
    TooManyNewLogs,
    diverging_epoch,
    ends_before,
    failed_data,
)
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.ids import BrokerId
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.fetch_partition import FollowerPartition
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition

Sent = list[tuple["FollowerPartition", FetchResponse.PartitionData]]

NEWS_PAUSE_S: Final = 0.02
"""How long a new high watermark alone waits for records to be sent with."""


class FollowerRead(PartitionReader[Sent]):
    """One Fetch request of a follower. Its results are the partitions to send."""

    __slots__ = (
        "_full",
        "_limit",
        "_min_bytes",
        "_news_timer",
        "_reading",
        "_replica_epoch",
        "_replica_id",
        "_results",
        "_session",
        "_timer",
        "_total",
        "_urgent",
        "_wake_scheduled",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        session: FollowerSession,
        done: Callable[[Sent], None],
        *,
        replica_id: BrokerId,
        replica_epoch: int,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
    ) -> None:
        super().__init__(replicas, done, max_wait_ms)
        self._session = session
        self._full = session.id == NO_SESSION
        """The follower knows nothing of the partitions yet: each of them is sent, also without news."""
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._min_bytes = min(min_bytes, max_bytes) if self._full else max(1, min_bytes)
        self._results: dict[FollowerPartition, FetchResponse.PartitionData] = {}
        self._limit = max_bytes
        self._total = 0
        self._urgent = self._full and not session.partitions
        """The response must not wait for records: it holds an error, or a log that diverges, or nothing."""
        self._reading = False
        """A cold read or new logs are under way."""
        self._wake_scheduled = False
        self._timer: Timer | None = None
        self._news_timer: Timer | None = None

    def _begin(self) -> None:
        """Take the place of the session's request that waits."""
        session = self._session
        if session.parked is not None:
            session.parked.give_way()
        session.parked = self

    def _complete(self) -> Sent:
        self._over = True
        for timer in (self._timer, self._news_timer):
            if timer is not None:
                timer.cancel()
        session, results = self._session, self._results
        if session.parked is self:
            session.parked = None
        if self._full:
            return [(part, results[part]) for part in session.partitions.values() if part in results]
        return list(results.items())

    def cancel(self) -> None:
        """The follower has gone."""
        self._complete()
        if self._full:
            self._session.close()

    # -- waiting

    def _enough(self) -> bool:
        if self._urgent or self._total >= self._min_bytes:
            return True
        return self._full and self._total > 0 and self._cut_short()

    def _cut_short(self) -> bool:
        """Whether some partition has more to read than fitted."""
        return any(
            part.partition is not None
            and part.partition.log is not None
            and ends_before(data, part.fetch_offset, part.partition.log.log_end_offset)
            for part, data in self._results.items()
        )

    def _has_news(self) -> bool:
        return self._enough() if self._full else bool(self._results)

    def _park(self) -> bool:
        """Wait for the session's partitions: they are registered with their hosted partitions already."""
        self._timer = self._replicas.clock.call_later(self._max_wait_ms / 1000, self.expire)
        if self._has_news():
            self.wake_soon()
        return True

    def wake(self) -> None:
        """There are records: read on the loop's next turn."""
        if not self._wake_scheduled and not self._over:
            self._wake_scheduled = True
            self._replicas.clock.call_later(0.0, self._look)

    def wake_soon(self) -> None:
        """There is other news, which can wait a moment for records to be sent with."""
        if self._news_timer is None and not self._over:
            self._news_timer = self._replicas.clock.call_later(NEWS_PAUSE_S, self._look_for_news)

    def _look(self) -> None:
        self._wake_scheduled = False
        if not self._over and not self._reading and self._read() and self._enough():
            self._finish()

    def _look_for_news(self) -> None:
        self._news_timer = None
        if not self._over and not self._reading and self._read() and self._has_news():
            self._finish()

    def expire(self) -> None:
        """Respond with what is there."""
        if not self._over and (self._reading or self._read()):
            self._finish()

    def give_way(self) -> None:
        """The follower has sent its next request: respond to this one first, without partitions requested again.

        The follower would ignore data for offsets that it no longer requests. The next response brings them.
        """
        for part in [part for part in self._results if part.requested]:
            self._put_back(part, self._results.pop(part))
        self._finish()

    # -- reading

    def _read(self) -> bool:
        """Read the fresh partitions. False: a cold read or new logs come first."""
        fresh = self._session.fresh
        later: list[FollowerPartition] = []
        results = self._results
        self._new_logs = 0
        while fresh:
            part = next(iter(fresh))
            del fresh[part]
            if part in results:
                self._put_back(part, results.pop(part))
            try:
                data = self._read_one(part, later)
            except ApiException as error:
                self._urgent = True
                part.sent.high_watermark = -1
                data = failed_data(part, error)
            except (WouldBlock, TooManyNewLogs) as obstacle:
                self._reading = True
                if isinstance(obstacle, WouldBlock):
                    self._read_cold(part)
                else:
                    later.append(part)
                    self._replicas.after_new_logs(self._resume)
                fresh.update(dict.fromkeys(later))
                return False
            if data is not None:
                results[part] = data
        fresh.update(dict.fromkeys(later))
        return True

    def _resume(self) -> None:
        self._reading = False
        super()._resume()

    def _put_back(self, part: FollowerPartition, data: FetchResponse.PartitionData) -> None:
        """Take back what was read of a partition and not sent yet: it is read again."""
        part.sent.high_watermark = -1
        size = len(data.records or EMPTY)
        self._total -= size
        self._limit += size

    def _read_one(
        self, part: FollowerPartition, later: list[FollowerPartition]
    ) -> FetchResponse.PartitionData | None:
        partition = part.partition
        if partition is None or partition.gone:
            partition = part.partition = self._replicas.find(part.key)
            partition.log_end_waiters[part] = None
        partition.counters.fetches += 1
        epoch = part.leader_epoch
        if (epoch >= 0 and epoch != partition.leader_epoch) or not partition.is_leader:
            partition.check_leader(epoch)
        log = partition.log
        if log is None:
            if not self._full:
                return None  # the log is being opened, and the partition is fresh afterwards
            log = self._new_log(partition)
            self._session.fresh.pop(part, None)
        if part.requested:
            diverging = self._note_request(part, partition, log)
            if diverging is not None:
                return diverging
        mark = log.high_watermark
        offset = part.fetch_offset
        if offset < log.log_end_offset:
            if self._limit <= 0:
                return self._left_for_later(part, log, mark, later)
            if self._replicas.leader_throttle.holds(partition, self._replica_id):
                self._replicas.leader_throttle.when_free(part.ready)
                return _data(part, log, mark, EMPTY) if self._full else None
            piece = log.read(
                offset, min(part.max_bytes, self._limit), min_one_batch=not self._total, nowait=True
            )
            return self._with_records(part, partition, log, mark, piece, later)
        if mark == part.sent.high_watermark and log.log_start_offset == part.sent.log_start_offset:
            return None
        return _data(part, log, mark, EMPTY)

    def _note_request(
        self, part: FollowerPartition, partition: Partition, log: PartitionLog
    ) -> FetchResponse.PartitionData | None:
        """Note what the follower has; if its log diverges, the result reports from where."""
        part.requested = False
        self._replicas.check_follower(partition, part, self._replica_id, self._replica_epoch)
        offset = part.fetch_offset
        diverging = diverging_epoch(part, log)
        if diverging is not None:
            self._urgent = True
            data = _data(part, log, log.high_watermark, EMPTY)
            data.diverging_epoch = diverging
            return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ApiException(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.topic}-{partition.index} holds offsets {log.log_start_offset} to "
                f"{log.log_end_offset}, not {offset}",
            )
        if self._replica_epoch >= 0:
            partition.follower_fetched(
                log,
                self._replica_id,
                offset,
                start_offset=part.log_start_offset,
                broker_epoch=self._replica_epoch,
                pulse=self._session,
            )
            # A high watermark that this has advanced is read next: the partition need not be read again.
            self._session.fresh.pop(part, None)
        return None

    def _with_records(
        self,
        part: FollowerPartition,
        partition: Partition,
        log: PartitionLog,
        mark: int,
        piece: LogSlice,
        later: list[FollowerPartition],
    ) -> FetchResponse.PartitionData | None:
        """Count what was read against the request's limits; a batch that did not fit waits for the next request."""
        if not piece.first_batch_complete:
            return self._left_for_later(part, log, mark, later)
        size = len(piece.records)
        self._total += size
        self._limit -= size
        self._replicas.leader_throttle.record(partition, self._replica_id, size)
        return _data(part, log, mark, piece.records)

    def _left_for_later(
        self, part: FollowerPartition, log: PartitionLog, mark: int, later: list[FollowerPartition]
    ) -> FetchResponse.PartitionData | None:
        later.append(part)
        return _data(part, log, mark, EMPTY) if self._full else None

    # -- cold data

    def _read_cold(self, part: FollowerPartition) -> None:
        partition = part.partition
        assert partition is not None and partition.log is not None  # it was just read from
        log = partition.log
        read = partial(
            log.read, part.fetch_offset, min(part.max_bytes, self._limit), min_one_batch=not self._total
        )
        self._read_in_thread(read, partial(self._take_cold, part, partition, log, log.high_watermark))

    def _take_cold(
        self,
        part: FollowerPartition,
        partition: Partition,
        log: PartitionLog,
        mark: int,
        piece: LogSlice | ApiException,
    ) -> None:
        self._reading = False
        if self._over:
            if part.session is not None:
                part.session.fresh[part] = None
        elif isinstance(piece, ApiException):
            self._urgent = True
            self._results[part] = failed_data(part, piece)
        else:
            later: list[FollowerPartition] = []
            data = self._with_records(part, partition, log, mark, piece, later)
            if data is not None:
                self._results[part] = data
            self._session.fresh.update(dict.fromkeys(later))


def _data(
    part: FollowerPartition, log: PartitionLog, mark: int, records: Buffer
) -> FetchResponse.PartitionData:
    """The result of a partition; notes in the session what it reports."""
    sent = part.sent
    sent.high_watermark = mark
    sent.log_start_offset = start = log.log_start_offset
    return FetchResponse.PartitionData(
        partition_index=part.index,
        high_watermark=mark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=start,
        aborted_transactions=None,
        records=records,
    )
