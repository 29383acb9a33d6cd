"""OffsetCommit, OffsetFetch and OffsetDelete: checks the member, writes the records, builds the response.

The APIs translate topic ids into names and refuse topics that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ottla.coordinator.group.context import GroupContext, RequestInfo
from ottla.coordinator.group.group import CommitPartitionValidator, Group
from ottla.coordinator.group.offset import NO_EXPIRY, CommittedOffset, offset_record, offset_tombstone
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.wire import messages
from ottla.wire.uuid import ZERO_UUID

DEFAULT_RETENTION: Final = -1
_GROUP_ID_NOT_FOUND_FROM: Final = 9
_NO_OFFSET: Final = -1
_NONE: Final = int(ErrorCode.NONE)
_TOO_LARGE: Final = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
_FEW: Final = 16
"""Responses with more topics and partitions than this are not cached."""


class OffsetMetadataManager:
    """The operations on offsets of one shard. `touch` restarts the session timeout of a classic member."""

    __slots__ = ("_context", "_simple_group", "_touch")

    def __init__(
        self,
        context: GroupContext,
        simple_group: Callable[[GroupId, int], Group],
        touch: Callable[[Group, str], None],
    ) -> None:
        self._context = context
        self._simple_group = simple_group
        self._touch = touch

    # -- committing

    def commit(
        self, info: RequestInfo, request: messages.OffsetCommitRequest, now_ms: int
    ) -> CoordinatorResult[messages.OffsetCommitResponse]:
        """OffsetCommit, with the names of all topics filled in."""
        check = self._may_commit(info, request, now_ms)
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != DEFAULT_RETENTION:
            expire_ms = now_ms + request.retention_time_ms
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                code = _NONE
                if self._is_too_large(partition.committed_metadata):
                    code = _TOO_LARGE
                else:
                    if check is not None:
                        check(topic.name, topic.topic_id, partition.partition_index)
                    records.append(
                        _record(request.group_id, topic.name, partition, now_ms, expire_ms, topic.topic_id)
                    )
                partitions.append((partition.partition_index, code))
            topics.append((topic.name, topic.topic_id, tuple(partitions)))
        few = sum(1 + len(partitions) for _, _, partitions in topics) <= _FEW
        response = commit_response if few else commit_response.__wrapped__
        return CoordinatorResult(records, response(tuple(topics)))

    def _may_commit(
        self, info: RequestInfo, request: messages.OffsetCommitRequest, now_ms: int
    ) -> CommitPartitionValidator | None:
        group = self._context.groups.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                if info.api_version >= _GROUP_ID_NOT_FOUND_FROM:
                    raise ApiException(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
                raise ApiException(ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} not found.")
            # An admin client, or a consumer that assigns itself: its commits create a simple group.
            group = self._simple_group(request.group_id, now_ms)
        check = group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            info.api_version,
            False,
        )
        self._touch(group, request.member_id)
        return check

    def commit_transactional(
        self, info: RequestInfo, request: messages.TxnOffsetCommitRequest, now_ms: int
    ) -> CoordinatorResult[messages.TxnOffsetCommitResponse]:
        """TxnOffsetCommit. Run it by `write_transactional`, so that the offsets are pending until the marker."""
        try:
            return self._commit_transactional(info, request, now_ms)
        except ApiException as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise ApiException(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def _commit_transactional(
        self, info: RequestInfo, request: messages.TxnOffsetCommitRequest, now_ms: int
    ) -> CoordinatorResult[messages.TxnOffsetCommitResponse]:
        group = self._context.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise ApiException(ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} not found.")
            group = self._simple_group(request.group_id, now_ms)
        check = group.validate_offset_commit(
            request.member_id, request.group_instance_id, request.generation_id, info.api_version, True
        )
        response = messages.TxnOffsetCommitResponse
        by_name = self._context.image.topics.by_name
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            image = by_name.get(topic.name)
            if check is not None and image is None:
                raise ApiException(
                    ErrorCode.ILLEGAL_GENERATION, f"Topic {topic.name} is not assigned: it does not exist"
                )
            partitions = []
            for partition in topic.partitions:
                code = ErrorCode.NONE
                if self._is_too_large(partition.committed_metadata):
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None and image is not None:
                        check(topic.name, image.id, partition.partition_index)
                    records.append(
                        _record(request.group_id, topic.name, partition, now_ms, NO_EXPIRY, ZERO_UUID)
                    )
                partitions.append(
                    response.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            topics.append(response.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(records, response(topics=topics))

    def _is_too_large(self, metadata: str | None) -> bool:
        # Most commits have none: the limit need not be looked up for those.
        if not metadata:
            return False
        return len(metadata) > self._context.config.int("offset.metadata.max.bytes")

    # -- fetching

    def fetch(
        self, request: messages.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> messages.OffsetFetchResponse.OffsetFetchResponseGroup:
        """One group of an OffsetFetch, with the names of all topics filled in; no topics: all topics."""
        group_id = request.group_id
        context = self._context
        group = context.groups.get(group_id)
        if group is not None:
            group.validate_offset_fetch(request.member_id or "", request.member_epoch)
        response = messages.OffsetFetchResponse
        topics = []
        known = {} if group is None else context.offsets.by_topic(group_id)
        if request.topics is None:
            wanted = [(TopicName(name), ZERO_UUID, list(partitions)) for name, partitions in known.items()]
        else:
            wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
        for name, topic_id, indexes in wanted:
            offsets = known.get(name, {})
            partitions = []
            for index in indexes:
                if require_stable and context.offsets.has_pending(group_id, name, index):
                    partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                    continue
                committed = offsets.get(index)
                if committed is None or _is_of_another_topic(committed, topic_id):
                    partitions.append(_no_offset(index, ErrorCode.NONE))
                    continue
                partitions.append(
                    response.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                    )
                )
            topics.append(
                response.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
            )
        return response.OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    # -- deleting

    def delete(
        self, request: messages.OffsetDeleteRequest
    ) -> CoordinatorResult[messages.OffsetDeleteResponse]:
        """OffsetDelete."""
        group = self._context.groups.require(request.group_id)
        group.validate_offset_delete()
        offsets = self._context.offsets
        response = messages.OffsetDeleteResponse
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to_topic(topic.name)
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                if not subscribed and (
                    offsets.get(request.group_id, topic.name, index) is not None
                    or offsets.has_pending(request.group_id, topic.name, index)
                ):
                    records.append(offset_tombstone(request.group_id, topic.name, index))
                partitions.append(
                    response.OffsetDeleteResponsePartition(
                        partition_index=index,
                        error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE,
                    )
                )
            topics.append(response.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(records, response(topics=topics))

    # -- expiring

    def expire(self, group_id: str, now_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones of expired offsets, and whether the group then has no offsets left."""
        offsets = self._context.offsets
        pending = offsets.has_pending_of(group_id)
        if not offsets.has_offsets(group_id):
            return [], not pending
        group = self._context.groups.require(group_id)
        base = group.expiry_base()
        if base is None:
            return [], False
        retention_ms = self._context.config.int("offsets.retention.minutes") * 60_000
        records = []
        all_expired = True
        for topic, partitions in offsets.by_topic(group_id).items():
            kept = group.is_subscribed_to_topic(topic)
            for partition, committed in partitions.items():
                if (
                    not kept
                    and _has_expired(committed, base(committed), now_ms, retention_ms)
                    and not offsets.has_pending(group_id, topic, partition)
                ):
                    records.append(offset_tombstone(group_id, topic, partition))
                else:
                    all_expired = False
        return records, all_expired and not pending


@lru_cache(maxsize=1024)
def commit_response(
    topics: tuple[tuple[TopicName, bytes, tuple[tuple[int, int], ...]], ...],
) -> messages.OffsetCommitResponse:
    """Cached, since most commits of a consumer have the same response. Do not change it."""
    response = messages.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    response.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ]
    )


def _record(
    group_id: str,
    topic: str,
    partition: messages.OffsetCommitRequest.OffsetCommitRequestPartition
    | messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
    topic_id: bytes,
) -> CoordinatorRecord:
    return offset_record(
        group_id,
        topic,
        partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata,
        commit_ms=now_ms,
        expire_ms=expire_ms,
        topic_id=topic_id,
    )


def _no_offset(index: int, code: ErrorCode) -> messages.OffsetFetchResponse.OffsetFetchResponsePartitions:
    return messages.OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def _is_of_another_topic(committed: CommittedOffset, topic_id: bytes) -> bool:
    """Whether it was committed for a deleted topic of the same name; without an id an offset or request fits any."""
    return ZERO_UUID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id


def _has_expired(committed: CommittedOffset, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - base_ms >= retention_ms
