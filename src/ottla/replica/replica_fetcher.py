"""Replicating partitions from one leader: what to request next, and how to apply the responses. No sockets, no clock.

A `ReplicaFetcher` is the follower's side of one incremental fetch session: a request holds only what changed.
`ottla.replica.replica_fetcher_manager` sends the requests; the records go to `Partition.append_from_leader`.

    partition   fetching ──error──▶ backing off (left out of the session) ──back-off is over──▶ fetching
                fetching ──the leader's log diverges──▶ truncated, fetching
                fetching ──out of the leader's range──▶ waiting for the leader's bounds ──▶ truncated, fetching
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.wire.enums import OffsetSpec
from ottla.wire.messages import FetchRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.replica.partition import Partition
    from ottla.replica.throttle import ReplicationThrottle
    from ottla.wire.messages import FetchResponse, ListOffsetsResponse

_logger = logging.getLogger(__name__)

Key = tuple[bytes, int]
"""Topic id and partition index."""
Bounds = dict[tuple[str, int], "FetchState"]
"""The partitions whose bounds were requested, by topic name and index."""

FIRST_BACKOFF_MS: Final = 20
"""The first back-off after an error. Most errors end when the metadata has reached the other broker."""

_METADATA_BACKOFF_MS: Final = 80
"""The longest back-off while the leader has not read yet that it leads: producers with acks=all wait meanwhile."""
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


class FetchState:
    """A partition that is replicated, and what the leader's session knows of it."""

    __slots__ = (
        "backoff_ms",
        "backoff_until_ms",
        "behind",
        "key",
        "leader_end",
        "leader_epoch",
        "partition",
        "requested_in",
        "requested_offset",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.requested_offset = -1
        """The offset requested last; -1 if there is none. Responses for another offset are outdated ..."""
        self.requested_in = 0
        """... and so are responses to requests before this one."""
        self.behind = True
        """The last response did not show that it has all that the leader has committed."""
        self.leader_end = 0
        """The leader's high watermark, as its last response reported it."""
        self.backoff_ms = 0
        self.backoff_until_ms = 0.0


class ReplicaFetcher:
    """All partitions that are replicated from one leader."""

    __slots__ = (
        "_backing_off",
        "_broker_epoch",
        "_changed",
        "_forgotten",
        "_max_backoff_ms",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_node_id",
        "_partition_bytes",
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
        node_id: BrokerId,
        throttle: ReplicationThrottle,
        *,
        max_bytes: int,
        partition_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        max_backoff_ms: int,
    ) -> None:
        self.followed: dict[Key, FetchState] = {}
        self.appended_bytes = 0
        """Bytes appended since the caller last reset it."""
        self.out_of_range: dict[Key, FetchState] = {}
        """The partitions that need the leader's bounds (`bounds_request`)."""
        self._node_id = node_id
        self._throttle = throttle
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._min_bytes = min_bytes
        self._max_wait_ms = max_wait_ms
        self._max_backoff_ms = max_backoff_ms
        self._changed: dict[Key, FetchState] = {}
        self._forgotten: set[Key] = set()
        self._backing_off: dict[Key, FetchState] = {}
        self._broker_epoch = -1
        self._session_id = 0
        self._session_epoch = 0
        self.sequence = 0
        """The number of the last request."""
        self._valid_from = 0
        """Responses to requests before this one belong to a session that has ended."""

    # -- what is replicated

    def follow(self, partition: Partition) -> None:
        """Replicate a partition from the end of its log; start over if the leader epoch changed."""
        key = (partition.topic_id, partition.index)
        known = self.followed.get(key)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                return
            self.unfollow(partition)
        log = partition.local_log()
        if log.leader_epochs.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            # It is not known who wrote these records: only what was committed can be trusted.
            log.truncate_to(log.high_watermark)
        self.followed[key] = self._changed[key] = FetchState(partition)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        followed = self.followed.pop(key, None)
        if followed is not None:
            self._changed.pop(key, None)
            self._backing_off.pop(key, None)
            self.out_of_range.pop(key, None)
            self._forget(followed)

    def _forget(self, followed: FetchState) -> None:
        if followed.requested_offset >= 0 and self._session_epoch > 0:
            self._forgotten.add(followed.key)
        followed.requested_offset = -1

    @property
    def has_changes(self) -> bool:
        """Whether there are changes to send before the leader responds to the last request."""
        return self._session_epoch > 0 and bool(self._changed or self._forgotten)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to request."""
        return bool(self._forgotten) or len(self._backing_off) + len(self.out_of_range) < len(self.followed)

    # -- back-off

    def back_off(self, followed: FetchState, now_ms: float, most_ms: int | None = None) -> None:
        """Leave a partition out of the session for a while, longer each time."""
        longest = self._max_backoff_ms if most_ms is None else min(most_ms, self._max_backoff_ms)
        followed.backoff_ms = min(max(2 * followed.backoff_ms, FIRST_BACKOFF_MS), max(longest, 1))
        self._back_off_until(followed, now_ms + followed.backoff_ms)

    def _back_off_until(self, followed: FetchState, until_ms: float) -> None:
        key = followed.key
        followed.backoff_until_ms = until_ms
        self._changed.pop(key, None)
        self._backing_off[key] = followed
        self._forget(followed)

    def wake(self, now_ms: float) -> float | None:
        """End the back-offs that are over; returns when the next one ends, or None if there is none."""
        due = [each for each in self._backing_off.values() if each.backoff_until_ms <= now_ms]
        for followed in due:
            del self._backing_off[followed.key]
            self._changed[followed.key] = followed
        return min((each.backoff_until_ms for each in self._backing_off.values()), default=None)

    # -- requests

    def request(self, broker_epoch: int, now_ms: float) -> FetchRequest:
        """The next fetch: all partitions if it opens a session, else those that changed."""
        if broker_epoch != self._broker_epoch:
            # The leader has to get the new epoch with every partition.
            self._broker_epoch = broker_epoch
            self.reset()
        self.sequence += 1
        full = self._session_epoch == 0
        asked = self._changed
        if full:
            left_out = self._backing_off.keys() | self.out_of_range.keys()
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

    def _topics(self, asked: dict[Key, FetchState], now_ms: float) -> list[FetchRequest.FetchTopic]:
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, index), followed in asked.items():
            partition = followed.partition
            log = partition.log
            if log is None or log.failed is not None:
                continue  # it is about to be removed
            if followed.behind and self._throttle.holds(partition, self._node_id):
                self._back_off_until(followed, now_ms + self._throttle.free_in_ms())
                continue
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            followed.requested_offset = log.log_end_offset
            followed.requested_in = self.sequence
            self._forgotten.discard(followed.key)
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.leader_epochs.latest_epoch,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=self._partition_bytes,
                )
            )
        return list(topics.values())

    def _forgotten_topics(self) -> list[FetchRequest.ForgottenTopic]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            topics.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return [
            FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in topics.items()
        ]

    def reset(self) -> None:
        """The session or its connection is lost: open another session."""
        self._session_id = 0
        self._session_epoch = 0
        self._valid_from = self.sequence + 1
        self._changed.clear()
        self._forgotten.clear()
        for followed in self.followed.values():
            followed.requested_offset = -1

    # -- responses

    def answered(self, sequence: int, response: FetchResponse, now_ms: float) -> ErrorCode:
        """Apply the response to a request; returns an error that concerns all of it."""
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
                if followed is not None and followed.requested_in <= sequence:
                    self._take(followed, data, now_ms)
        if self._session_epoch == 0:
            # The leader keeps no session: every request is a full fetch.
            self._changed.clear()
        return ErrorCode.NONE

    def _take(self, followed: FetchState, data: FetchResponse.PartitionData, now_ms: float) -> None:
        partition = followed.partition
        log = partition.log
        if log is None or followed.requested_offset != log.log_end_offset:
            return  # a response to an earlier request
        try:
            if data.error_code:
                self._refused(followed, ErrorCode.of(data.error_code), now_ms)
                return
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                _truncate(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._changed[followed.key] = followed
                return
            if data.records:
                self._append(followed, data.records)
            start = log.log_start_offset
            partition.follow_marks(log, data.high_watermark, data.log_start_offset)
            if log.log_start_offset != start:
                # A DeleteRecords request at the leader may wait for it.
                self._changed[followed.key] = followed
            followed.leader_end = data.high_watermark
            followed.behind = log.log_end_offset < data.high_watermark
            followed.backoff_ms = 0
        except ApiException as error:
            _logger.error("%s cannot be replicated: %s", partition.topic_partition, error.message)
            self.back_off(followed, now_ms)

    def _append(self, followed: FetchState, records: Buffer) -> None:
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
            level, "%s: its leader %d responds %s", partition.topic_partition, partition.leader, code.name
        )
        self.back_off(followed, now_ms, _METADATA_BACKOFF_MS if code in _LEADER_IS_BEHIND else None)

    # -- out of the leader's range

    def bounds_request(self, timestamp: int) -> tuple[ListOffsetsRequest, Bounds]:
        """Request the end (or the start) of the leader's logs that do not match the local ones."""
        asked: Bounds = {each.partition.topic_partition: each for each in self.out_of_range.values()}
        topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
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
                ListOffsetsRequest.ListOffsetsTopic(name=TopicName(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return request, asked

    def bounds_answered(
        self, asked: Bounds, response: ListOffsetsResponse, timestamp: int, now_ms: float
    ) -> None:
        """Fit the logs into the leader's bounds. A log that is not beyond the leader's end needs its start next."""
        for topic in response.topics:
            for result in topic.partitions:
                followed = asked.get((topic.name, result.partition_index))
                if followed is not None and self.out_of_range.get(followed.key) is followed:
                    self._fit(followed, result, timestamp, now_ms)

    def _fit(
        self,
        followed: FetchState,
        result: ListOffsetsResponse.ListOffsetsPartitionResponse,
        timestamp: int,
        now_ms: float,
    ) -> None:
        partition = followed.partition
        log = partition.log
        try:
            if log is None or result.error_code:
                self.bounds_failed([followed], now_ms)
                return
            if timestamp == OffsetSpec.LATEST:
                if result.offset >= log.log_end_offset:
                    return
                _logger.warning("%s: truncated to its leader's end, %d", log.topic_partition, result.offset)
                log.truncate_to(result.offset)
            elif result.offset > log.log_end_offset:
                _logger.warning(
                    "%s: emptied, starts at its leader's start, %d", log.topic_partition, result.offset
                )
                log.truncate_fully_and_start_at(result.offset)
            del self.out_of_range[followed.key]
            self._changed[followed.key] = followed
        except ApiException as error:
            _logger.error("%s cannot be replicated: %s", partition.topic_partition, error.message)
            self.bounds_failed([followed], now_ms)

    def bounds_failed(self, asked: list[FetchState], now_ms: float) -> None:
        """The leader did not return its bounds: fetch again after a back-off."""
        for followed in asked:
            if self.out_of_range.pop(followed.key, None) is not None:
                self.back_off(followed, now_ms)


def _truncate(log: PartitionLog, leader_epoch: int, leader_end: int) -> None:
    """Truncate what the leader's log does not have: after the last epoch that both logs have."""
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
            # The epoch is unknown here: truncate to the end of the one before it, and fetch from there.
            target = end_of_epoch
        else:
            target = leader_end
    target = min(target, end)
    _logger.info(
        "%s: truncated from %d to %d, because its leader's epoch %d ends at %d",
        log.topic_partition,
        end,
        target,
        leader_epoch,
        leader_end,
    )
    log.truncate_to(target)
