"""A request for each API of groups, in any version: for the test that asks everything in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire import messages
from ottla.wire.apis import ApiKey

_GROUP = "every-version-group"
_GHOST = "ghost"
_BATCHED_FETCH_FROM = 8
_BATCHED_LEAVE_FROM = 3
_TOPIC_IDS_FROM = 10


def _named(owner: Any, asked: Any, **fields: Any) -> Any:
    """A topic by name, or by id where the version has that."""
    if asked.version >= _TOPIC_IDS_FROM:
        return owner(topic_id=asked.topic_id, **fields)
    return owner(name=asked.name, **fields)


def _commit(asked: Any) -> Any:
    request = messages.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return request(
        group_id=_GROUP, topics=[_named(request.OffsetCommitRequestTopic, asked, partitions=[partition])]
    )


def _fetch(asked: Any) -> Any:
    request = messages.OffsetFetchRequest
    if asked.version < _BATCHED_FETCH_FROM:
        topic = request.OffsetFetchRequestTopic(name=asked.name, partition_indexes=[0])
        return request(group_id=_GROUP, topics=[topic])
    topic = _named(request.OffsetFetchRequestTopics, asked, partition_indexes=[0])
    return request(groups=[request.OffsetFetchRequestGroup(group_id=_GROUP, topics=[topic])])


def _delete_offsets(asked: Any) -> Any:
    request = messages.OffsetDeleteRequest
    partition = request.OffsetDeleteRequestPartition(partition_index=0)
    topic = request.OffsetDeleteRequestTopic(name=asked.name, partitions=[partition])
    return request(group_id=_GROUP, topics=[topic])


def _join(asked: Any) -> Any:
    request = messages.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=b"")
    return request(
        group_id=_GROUP,
        session_timeout_ms=10_000,
        member_id=_GHOST,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _leave(asked: Any) -> Any:
    request = messages.LeaveGroupRequest
    if asked.version < _BATCHED_LEAVE_FROM:
        return request(group_id=_GROUP, member_id=_GHOST)
    return request(group_id=_GROUP, members=[request.MemberIdentity(member_id=_GHOST)])


def _consumer_heartbeat(asked: Any) -> Any:
    return messages.ConsumerGroupHeartbeatRequest(group_id=_GROUP, member_id=_GHOST, member_epoch=1)


def _streams_heartbeat(asked: Any) -> Any:
    return messages.StreamsGroupHeartbeatRequest(group_id=_GROUP, member_id=_GHOST, member_epoch=1)


GROUP_REQUESTS: dict[int, Callable[[Any], Any]] = {
    ApiKey.OFFSET_COMMIT: _commit,
    ApiKey.OFFSET_FETCH: _fetch,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.JOIN_GROUP: _join,
    ApiKey.SYNC_GROUP: lambda asked: messages.SyncGroupRequest(group_id=_GROUP, member_id=_GHOST),
    ApiKey.HEARTBEAT: lambda asked: messages.HeartbeatRequest(group_id=_GROUP, member_id=_GHOST),
    ApiKey.LEAVE_GROUP: _leave,
    ApiKey.LIST_GROUPS: lambda asked: messages.ListGroupsRequest(),
    ApiKey.DESCRIBE_GROUPS: lambda asked: messages.DescribeGroupsRequest(groups=[_GROUP, "not-there"]),
    ApiKey.DELETE_GROUPS: lambda asked: messages.DeleteGroupsRequest(groups_names=["not-there"]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda asked: messages.ConsumerGroupDescribeRequest(group_ids=[_GROUP]),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _streams_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: lambda asked: messages.StreamsGroupDescribeRequest(group_ids=[_GROUP]),
}
