"""A request of each API of queues, for tests that ask all of them: `asked` has a version, a topic's id and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire import messages
from ottla.wire.apis import ApiKey

_GROUP = "every-share-group"
_MEMBER = "a-member"


def _heartbeat(asked: Any) -> Any:
    return messages.ShareGroupHeartbeatRequest(
        group_id=_GROUP, member_id=_MEMBER, member_epoch=0, subscribed_topic_names=[asked.name]
    )


def _fetch(asked: Any) -> Any:
    request = messages.ShareFetchRequest
    return request(
        group_id=_GROUP,
        member_id=_MEMBER,
        share_session_epoch=0,
        max_wait_ms=10,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=[
            request.FetchTopic(
                topic_id=asked.topic_id, partitions=[request.FetchPartition(partition_index=0)]
            )
        ],
    )


def _acknowledge(asked: Any) -> Any:
    request = messages.ShareAcknowledgeRequest
    batch = request.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return request(
        group_id=_GROUP,
        member_id=_MEMBER,
        share_session_epoch=1,
        topics=[request.AcknowledgeTopic(topic_id=asked.topic_id, partitions=[partition])],
    )


def _state(request: Any, data: str) -> Callable[[Any], Any]:
    def make(asked: Any) -> Any:
        topic = getattr(request, data)(
            topic_id=asked.topic_id, partitions=[request.PartitionData(partition=0)]
        )
        return request(group_id=_GROUP, topics=[topic])

    return make


def _describe_offsets(asked: Any) -> Any:
    request = messages.DescribeShareGroupOffsetsRequest
    topic = request.DescribeShareGroupOffsetsRequestTopic(topic_name=asked.name, partitions=[0])
    return request(
        groups=[
            request.DescribeShareGroupOffsetsRequestGroup(group_id=_GROUP, topics=topics)
            for topics in ([topic], None)
        ]
    )


def _alter_offsets(asked: Any) -> Any:
    request = messages.AlterShareGroupOffsetsRequest
    partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = request.AlterShareGroupOffsetsRequestTopic(topic_name=asked.name, partitions=[partition])
    return request(group_id=f"{_GROUP}-2", topics=[topic])


def _delete_offsets(asked: Any) -> Any:
    request = messages.DeleteShareGroupOffsetsRequest
    topic = request.DeleteShareGroupOffsetsRequestTopic(topic_name=asked.name)
    return request(group_id=f"{_GROUP}-2", topics=[topic])


SHARE_REQUESTS: dict[int, Callable[[Any], Any]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: lambda asked: messages.ShareGroupDescribeRequest(group_ids=[_GROUP]),
    ApiKey.SHARE_FETCH: _fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _acknowledge,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _state(
        messages.InitializeShareGroupStateRequest, "InitializeStateData"
    ),
    ApiKey.READ_SHARE_GROUP_STATE: _state(messages.ReadShareGroupStateRequest, "ReadStateData"),
    ApiKey.WRITE_SHARE_GROUP_STATE: _state(messages.WriteShareGroupStateRequest, "WriteStateData"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _state(messages.DeleteShareGroupStateRequest, "DeleteStateData"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _state(
        messages.ReadShareGroupStateSummaryRequest, "ReadStateSummaryData"
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _alter_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _delete_offsets,
}
