"""Copying partitions from one leader: what to ask for next, and what to do with the answers. No sockets, no clock.

A `ReplicaFetcher` is the follower's side of one incremental fetch session: a request holds only what changed.
The requests travel in `ottla.replica.replica_fetcher_manager`; the records go to `Partition.append_from_leader`.

    partition   fetching ──error──▶ resting (left out of the session) ──its time is up──▶ fetching
                fetching ──the leader's log went another way──▶ truncated, fetching
                fetching ──out of the leader's range──▶ asking for the leader's bounds ──▶ truncated, fetching
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import FetchRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.partition import Partition

_logger = logging.getLogger(__name__)

Message = Any
Key = tuple[bytes, int]

EARLIEST: Final = -2
LATEST: Final = -1
FIRST_REST_MS: Final = 20
"""The first pause after an error. Most pass when the metadata has reached the other broker."""

_UNTIL_METADATA_MS: Final = 80
"""The longest pause while the leader has yet to read that it leads: whoever writes there waits for us."""
_LEADER_IS_BEHIND: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

_SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_MAX_EPOCH: Final = 2**31 - 1

_Topic: Any = FetchRequest.FetchTopic
_Part: Any = FetchRequest.FetchPartition
_Forgotten: Any = FetchRequest.ForgottenTopic


class FetchState:
    """A partition that is copied, and what the leader's session knows of it."""

    __slots__ = (
        "asked_in",
        "asked_offset",
        "behind",
        "key",
        "leader_epoch",
        "partition",
        "rest_ms",
        "resting_until_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.asked_offset = -1
        """From where it was asked for last; -1 while it was not. Answers for another offset are old ..."""
        self.asked_in = 0
        """... and so are those to requests before this one."""
        self.behind = True
        """It has not been seen to have all that the leader has committed."""
        self.rest_ms = 0
        self.resting_until_ms = 0.0


class ReplicaFetcher:
    """All that is copied from one leader."""

    __slots__ = (
        "_broker_epoch",
        "_changed",
        "_forgotten",
        "_max_bytes",
        "_max_rest_ms",
        "_max_wait_ms",
        "_min_bytes",
        "_node_id",
        "_partition_bytes",
        "_resting",
        "_session_epoch",
        "_session_id",
        "_throttle",
        "_valid_from",
        "appended_bytes",
        "followed",
        "out_of_range",
        "sequence",
    )

    def __init__(
        self,
        node_id: int,
        throttle: Any,
        *,
        max_bytes: int,
        partition_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        max_rest_ms: int,
    ) -> None:
        self.followed: dict[Key, FetchState] = {}
        self.appended_bytes = 0
        """For whoever counts them: he sets it back."""
        self.out_of_range: dict[Key, FetchState] = {}
        """Those for which the leader has to be asked for its bounds (`bounds_request`)."""
        self._node_id = node_id
        self._throttle = throttle
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._min_bytes = min_bytes
        self._max_wait_ms = max_wait_ms
        self._max_rest_ms = max_rest_ms
        self._changed: dict[Key, FetchState] = {}
        self._forgotten: set[Key] = set()
        self._resting: dict[Key, FetchState] = {}
        self._broker_epoch = -1
        self._session_id = 0
        self._session_epoch = 0
        self.sequence = 0
        """The number of the request made last."""
        self._valid_from = 0
        """Answers to requests before this one belong to a session that is over."""

    # -- what is copied

    def follow(self, partition: Partition) -> None:
        """Copy a partition, from where its log ends; begins anew with another leader epoch."""
        key = (partition.topic_id, partition.index)
        known = self.followed.get(key)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                return
            self.unfollow(partition)
        log = partition.local_log()
        if log.leader_epochs.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            # Nothing tells whose records these are: only what was committed can be trusted.
            log.truncate_to(log.high_watermark)
        self.followed[key] = self._changed[key] = FetchState(partition)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        followed = self.followed.pop(key, None)
        if followed is not None:
            self._changed.pop(key, None)
            self._resting.pop(key, None)
            self.out_of_range.pop(key, None)
            self._forget(followed)

    def _forget(self, followed: FetchState) -> None:
        if followed.asked_offset >= 0 and self._session_epoch > 0:
            self._forgotten.add(followed.key)
        followed.asked_offset = -1

    @property
    def has_changes(self) -> bool:
        """Whether the leader should hear something before it answers what it was asked last."""
        return self._session_epoch > 0 and bool(self._changed or self._forgotten)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to ask for."""
        return bool(self._forgotten) or len(self._resting) + len(self.out_of_range) < len(self.followed)

    # -- resting

    def rest(self, followed: FetchState, now_ms: float, most_ms: int | None = None) -> None:
        """Leave a partition alone for a while, each time a little longer."""
        longest = self._max_rest_ms if most_ms is None else min(most_ms, self._max_rest_ms)
        followed.rest_ms = min(max(2 * followed.rest_ms, FIRST_REST_MS), max(longest, 1))
        self._rest_until(followed, now_ms + followed.rest_ms)

    def _rest_until(self, followed: FetchState, until_ms: float) -> None:
        key = followed.key
        followed.resting_until_ms = until_ms
        self._changed.pop(key, None)
        self._resting[key] = followed
        self._forget(followed)

    def wake(self, now_ms: float) -> float | None:
        """Let those go on whose rest is over; when the next one's is, or None where nobody rests."""
        due = [each for each in self._resting.values() if each.resting_until_ms <= now_ms]
        for followed in due:
            del self._resting[followed.key]
            self._changed[followed.key] = followed
        return min((each.resting_until_ms for each in self._resting.values()), default=None)

    # -- asking

    def request(self, broker_epoch: int, now_ms: float) -> Message:
        """The next fetch: everything where a session has yet to begin, else what changed."""
        if broker_epoch != self._broker_epoch:
            # The leader has to hear of the new epoch for every partition.
            self._broker_epoch = broker_epoch
            self.reset()
        self.sequence += 1
        full = self._session_epoch == 0
        asked = self._changed
        if full:
            left_out = self._resting.keys() | self.out_of_range.keys()
            asked = {key: each for key, each in self.followed.items() if key not in left_out}
            self._forgotten.clear()
        self._changed = {}
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(asked, now_ms),
            forgotten_topics_data=self._forgotten_topics(),
        )
        if not full:
            self._session_epoch = 1 if self._session_epoch == _MAX_EPOCH else self._session_epoch + 1
        return request

    def _topics(self, asked: dict[Key, FetchState], now_ms: float) -> list[Any]:
        topics: dict[bytes, Any] = {}
        for (topic_id, index), followed in asked.items():
            partition = followed.partition
            log = partition.log
            if log is None or log.failed is not None:
                continue  # it is about to leave
            if followed.behind and self._throttle.holds(partition, self._node_id):
                self._rest_until(followed, now_ms + self._throttle.free_in_ms())
                continue
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = _Topic(topic_id=topic_id, partitions=[])
            followed.asked_offset = log.log_end_offset
            followed.asked_in = self.sequence
            self._forgotten.discard(followed.key)
            topic.partitions.append(
                _Part(
                    partition=index,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.leader_epochs.latest_epoch,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        return list(topics.values())

    def _forgotten_topics(self) -> list[Any]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            topics.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return [_Forgotten(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]

    def reset(self) -> None:
        """The session is lost, or the connection that had it: begin another."""
        self._session_id = 0
        self._session_epoch = 0
        self._valid_from = self.sequence + 1
        self._changed.clear()
        self._forgotten.clear()
        for followed in self.followed.values():
            followed.asked_offset = -1

    # -- answers

    def answered(self, sequence: int, response: Message, now_ms: float) -> ErrorCode:
        """Take the answer to a request in; an error that concerns all of it is given back."""
        if sequence < self._valid_from:
            return ErrorCode.NONE
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self.reset()
            return ErrorCode.NONE if code in _SESSION_LOST else code
        if self._session_epoch == 0 and response.session_id:
            self._session_id = response.session_id
            self._session_epoch = 1
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                followed = self.followed.get((topic_id, data.partition_index))
                if followed is not None and followed.asked_in <= sequence:
                    self._take(followed, data, now_ms)
        if self._session_epoch == 0:
            # The leader keeps no session: everything is asked for each time.
            self._changed.clear()
        return ErrorCode.NONE

    def _take(self, followed: FetchState, data: Message, now_ms: float) -> None:
        partition = followed.partition
        log = partition.log
        if log is None or followed.asked_offset != log.log_end_offset:
            return  # an answer to what was asked before
        try:
            if data.error_code:
                self._refused(followed, ErrorCode.of(data.error_code), now_ms)
                return
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                _truncate(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._changed[followed.key] = followed
                return
            if data.records:
                self._append(followed, log, data.records)
            start = log.log_start_offset
            partition.follow_marks(log, data.high_watermark, data.log_start_offset)
            if log.log_start_offset != start:
                self._changed[followed.key] = followed  # whoever deletes records there waits to hear of it
            followed.behind = log.log_end_offset < data.high_watermark
            followed.rest_ms = 0
        except ApiException as error:
            _logger.error("%s cannot be copied on: %s", partition.topic_partition, error.message)
            self.rest(followed, now_ms)

    def _append(self, followed: FetchState, log: PartitionLog, records: Any) -> None:
        info = followed.partition.append_from_leader(records)
        if info.size:
            self.appended_bytes += info.size
            self._throttle.record(followed.partition, self._node_id, info.size)
            self._changed[followed.key] = followed

    def _refused(self, followed: FetchState, code: ErrorCode, now_ms: float) -> None:
        partition = followed.partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._forget(followed)
            self._changed.pop(followed.key, None)
            self.out_of_range[followed.key] = followed
            return
        level = logging.DEBUG if code.retriable else logging.WARNING
        _logger.log(
            level, "%s: its leader %d answers %s", partition.topic_partition, partition.leader, code.name
        )
        self.rest(followed, now_ms, _UNTIL_METADATA_MS if code in _LEADER_IS_BEHIND else None)

    # -- out of the leader's range

    def bounds_request(self, timestamp: int) -> tuple[Message, dict[tuple[str, int], FetchState]]:
        """Ask for the end (or the start) of the leader's logs that ours does not fit."""
        asked: dict[tuple[str, int], FetchState] = {
            each.partition.topic_partition: each for each in self.out_of_range.values()
        }
        topics: dict[str, list[Any]] = {}
        for followed in asked.values():
            topics.setdefault(followed.partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=followed.partition.index,
                    current_leader_epoch=followed.leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return request, asked

    def bounds_answered(
        self,
        asked: dict[tuple[str, int], FetchState],
        response: Message,
        timestamp: int,
        now_ms: float,
    ) -> None:
        """Fit the logs into what the leader has. One that is not beyond the leader's end needs to know its start."""
        for topic in response.topics:
            for result in topic.partitions:
                followed = asked.get((topic.name, result.partition_index))
                if followed is not None and self.out_of_range.get(followed.key) is followed:
                    self._fit(followed, result, timestamp, now_ms)

    def _fit(self, followed: FetchState, result: Message, timestamp: int, now_ms: float) -> None:
        partition = followed.partition
        log = partition.log
        try:
            if log is None or result.error_code:
                self.bounds_failed([followed], now_ms)
                return
            if timestamp == LATEST:
                if result.offset >= log.log_end_offset:
                    return
                _logger.warning("%s: cut to where its leader ends, %d", log.topic_partition, result.offset)
                log.truncate_to(result.offset)
            elif result.offset > log.log_end_offset:
                _logger.warning(
                    "%s: begun anew where its leader begins, %d", log.topic_partition, result.offset
                )
                log.truncate_fully_and_start_at(result.offset)
            del self.out_of_range[followed.key]
            self._changed[followed.key] = followed
        except ApiException as error:
            _logger.error("%s cannot be copied on: %s", partition.topic_partition, error.message)
            self.bounds_failed([followed], now_ms)

    def bounds_failed(self, asked: list[FetchState], now_ms: float) -> None:
        """The leader did not say; try the fetch again in a while."""
        for followed in asked:
            if self.out_of_range.pop(followed.key, None) is not None:
                self.rest(followed, now_ms)


def _truncate(log: PartitionLog, leader_epoch: int, leader_end: int) -> None:
    """Cut off what the leader's log does not have: after the last epoch that both know."""
    end = log.log_end_offset
    if leader_end < 0:
        target = log.high_watermark
    elif leader_epoch < 0:
        target = leader_end
    else:
        epoch, end_of_epoch = log.end_offset_for_epoch(leader_epoch)
        if epoch == leader_epoch:
            target = min(end_of_epoch, leader_end)
        elif epoch >= 0:
            # The epoch is unknown here: cut to the end of the one before it, and ask again from there.
            target = end_of_epoch
        else:
            target = leader_end
    target = min(target, end)
    _logger.info(
        "%s: cut from %d to %d, as its leader's epoch %d ends at %d",
        log.topic_partition,
        end,
        target,
        leader_epoch,
        leader_end,
    )
    log.truncate_to(target)
