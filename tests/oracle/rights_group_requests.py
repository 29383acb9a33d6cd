"""A request of each API of groups, transactions and queues that needs a right: see `rights_requests`."""

from __future__ import annotations

from typing import Any

from oracle.rights_names import Build, Names
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey

_GHOST = "ghost"


def _commit(n: Names) -> Any:
    request = m.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        request.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in (n.topic, n.missing)
    ]
    return request(group_id=n.group, topics=topics)


def _offset_fetch(n: Names, *, everything: bool = False) -> Any:
    request = m.OffsetFetchRequest
    topics = [
        request.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (n.topic, n.missing)
    ]
    group = request.OffsetFetchRequestGroup(group_id=n.group, topics=None if everything else topics)
    return request(groups=[group])


def _old_offset_fetch(n: Names) -> Any:
    request = m.OffsetFetchRequest
    return request(
        group_id=n.group, topics=[request.OffsetFetchRequestTopic(name=n.topic, partition_indexes=[0])]
    )


def _join(n: Names) -> Any:
    request = m.JoinGroupRequest
    protocol = request.JoinGroupRequestProtocol(name="range", metadata=b"")
    return request(
        group_id=n.group,
        session_timeout_ms=10_000,
        member_id=_GHOST,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _leave(n: Names) -> Any:
    request = m.LeaveGroupRequest
    return request(group_id=n.group, members=[request.MemberIdentity(member_id=_GHOST)])


def _add_partitions(n: Names) -> Any:
    request = m.AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name=n.topic, partitions=[0])]
    return request(
        v3_and_below_transactional_id=n.transactional_id,
        v3_and_below_producer_id=9_999_999,  # type: ignore[arg-type]
        v3_and_below_topics=topics,
    )


def _add_partitions_of_brokers(n: Names) -> Any:
    request = m.AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name=n.topic, partitions=[0])]
    transaction = request.AddPartitionsToTxnTransaction(
        transactional_id=n.transactional_id, topics=topics, verify_only=True
    )
    return request(transactions=[transaction])


def _markers(n: Names) -> Any:
    request = m.WriteTxnMarkersRequest
    topic = request.WritableTxnMarkerTopic(name=n.topic, partition_indexes=[0])
    return request(
        markers=[
            request.WritableTxnMarker(
                producer_id=987_654,  # type: ignore[arg-type]
                transaction_result=True,
                topics=[topic],
            )
        ]
    )


def _txn_offsets(n: Names) -> Any:
    request = m.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [
        request.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
        for name in (n.topic, n.missing)
    ]
    return request(
        transactional_id=n.transactional_id,
        group_id=n.group,
        producer_id=9_999_999,  # type: ignore[arg-type]
        member_id="",
        topics=topics,
    )


def _offset_delete(n: Names) -> Any:
    request = m.OffsetDeleteRequest
    partition = request.OffsetDeleteRequestPartition(partition_index=0)
    topics = [
        request.OffsetDeleteRequestTopic(name=name, partitions=[partition]) for name in (n.topic, n.missing)
    ]
    return request(group_id=n.group, topics=topics)


def _consumer_heartbeat(n: Names) -> Any:
    return m.ConsumerGroupHeartbeatRequest(
        group_id=n.group, member_id=_GHOST, member_epoch=1, subscribed_topic_names=[n.topic]
    )


def _share_heartbeat(n: Names) -> Any:
    return m.ShareGroupHeartbeatRequest(
        group_id=n.group, member_id=_GHOST, member_epoch=1, subscribed_topic_names=[n.topic]
    )


def _streams_heartbeat(n: Names) -> Any:
    return m.StreamsGroupHeartbeatRequest(group_id=n.group, member_id=_GHOST, member_epoch=1)


def _share_offsets(n: Names) -> Any:
    request = m.DescribeShareGroupOffsetsRequest
    topics = [
        request.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
        for name in (n.topic, n.missing)
    ]
    return request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=n.group, topics=topics)])


def _alter_share_offsets(n: Names) -> Any:
    request = m.AlterShareGroupOffsetsRequest
    partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topics = [
        request.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition])
        for name in (n.topic, n.missing)
    ]
    return request(group_id=n.group, topics=topics)


def _delete_share_offsets(n: Names) -> Any:
    request = m.DeleteShareGroupOffsetsRequest
    topics = [request.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (n.topic, n.missing)]
    return request(group_id=n.group, topics=topics)


def _share_fetch(n: Names) -> Any:
    request = m.ShareFetchRequest
    partitions = [request.FetchPartition(partition_index=0)]
    return request(
        group_id=n.group,
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        max_records=10,
        batch_size=10,
        topics=[request.FetchTopic(topic_id=n.topic_id, partitions=partitions)],
    )


def _share_acknowledge(n: Names) -> Any:
    request = m.ShareAcknowledgeRequest
    batch = request.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return request(
        group_id=n.group,
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        share_session_epoch=1,
        topics=[request.AcknowledgeTopic(topic_id=n.topic_id, partitions=[partition])],
    )


def _share_state(request: Any, data: str) -> Build:
    def build(n: Names) -> Any:
        part = request.PartitionData(partition=0)
        return request(
            group_id=n.group, topics=[getattr(request, data)(topic_id=n.topic_id, partitions=[part])]
        )

    return build


GROUP_REQUESTS: list[tuple[str, int, int, Build]] = [
    ("offset commit", ApiKey.OFFSET_COMMIT, 9, _commit),
    ("offset fetch", ApiKey.OFFSET_FETCH, 9, _offset_fetch),
    ("offset fetch of all", ApiKey.OFFSET_FETCH, 9, lambda n: _offset_fetch(n, everything=True)),
    ("offset fetch, old", ApiKey.OFFSET_FETCH, 7, _old_offset_fetch),
    (
        "find group",
        ApiKey.FIND_COORDINATOR,
        6,
        lambda n: m.FindCoordinatorRequest(coordinator_keys=[n.group]),
    ),
    ("find group, old", ApiKey.FIND_COORDINATOR, 3, lambda n: m.FindCoordinatorRequest(key=n.group)),
    (
        "find transaction",
        ApiKey.FIND_COORDINATOR,
        6,
        lambda n: m.FindCoordinatorRequest(key_type=1, coordinator_keys=[n.transactional_id]),
    ),
    ("join", ApiKey.JOIN_GROUP, 9, _join),
    ("heartbeat", ApiKey.HEARTBEAT, 4, lambda n: m.HeartbeatRequest(group_id=n.group, member_id=_GHOST)),
    ("leave", ApiKey.LEAVE_GROUP, 5, _leave),
    (
        "sync",
        ApiKey.SYNC_GROUP,
        5,
        lambda n: m.SyncGroupRequest(
            group_id=n.group, member_id=_GHOST, protocol_type="consumer", protocol_name="range"
        ),
    ),
    (
        "describe groups",
        ApiKey.DESCRIBE_GROUPS,
        6,
        lambda n: m.DescribeGroupsRequest(groups=[n.group], include_authorized_operations=True),
    ),
    ("delete groups", ApiKey.DELETE_GROUPS, 2, lambda n: m.DeleteGroupsRequest(groups_names=[n.group])),
    (
        "init producer id",
        ApiKey.INIT_PRODUCER_ID,
        5,
        lambda n: m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    ),
    (
        "init transactions",
        ApiKey.INIT_PRODUCER_ID,
        5,
        lambda n: m.InitProducerIdRequest(transactional_id=n.transactional_id, transaction_timeout_ms=0),
    ),
    ("add partitions", ApiKey.ADD_PARTITIONS_TO_TXN, 3, _add_partitions),
    ("add partitions of brokers", ApiKey.ADD_PARTITIONS_TO_TXN, 5, _add_partitions_of_brokers),
    (
        "add offsets",
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        lambda n: m.AddOffsetsToTxnRequest(transactional_id=n.transactional_id, group_id=n.group),
    ),
    (
        "end transaction",
        ApiKey.END_TXN,
        4,
        lambda n: m.EndTxnRequest(transactional_id=n.transactional_id, committed=True),
    ),
    ("write markers", ApiKey.WRITE_TXN_MARKERS, 1, _markers),
    ("commit offsets in a transaction", ApiKey.TXN_OFFSET_COMMIT, 4, _txn_offsets),
    ("delete offsets", ApiKey.OFFSET_DELETE, 0, _offset_delete),
    (
        "describe transactions",
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda n: m.DescribeTransactionsRequest(transactional_ids=[n.transactional_id]),
    ),
    ("list transactions", ApiKey.LIST_TRANSACTIONS, 1, lambda n: m.ListTransactionsRequest()),
    ("consumer heartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _consumer_heartbeat),
    (
        "describe consumer groups",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda n: m.ConsumerGroupDescribeRequest(group_ids=[n.group], include_authorized_operations=True),
    ),
    ("share heartbeat", ApiKey.SHARE_GROUP_HEARTBEAT, 1, _share_heartbeat),
    (
        "describe share groups",
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        lambda n: m.ShareGroupDescribeRequest(group_ids=[n.group], include_authorized_operations=True),
    ),
    ("share fetch", ApiKey.SHARE_FETCH, 1, _share_fetch),
    ("share acknowledge", ApiKey.SHARE_ACKNOWLEDGE, 1, _share_acknowledge),
    (
        "initialize share state",
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        0,
        _share_state(m.InitializeShareGroupStateRequest, "InitializeStateData"),
    ),
    (
        "read share state",
        ApiKey.READ_SHARE_GROUP_STATE,
        0,
        _share_state(m.ReadShareGroupStateRequest, "ReadStateData"),
    ),
    (
        "write share state",
        ApiKey.WRITE_SHARE_GROUP_STATE,
        0,
        _share_state(m.WriteShareGroupStateRequest, "WriteStateData"),
    ),
    (
        "delete share state",
        ApiKey.DELETE_SHARE_GROUP_STATE,
        0,
        _share_state(m.DeleteShareGroupStateRequest, "DeleteStateData"),
    ),
    (
        "summarize share state",
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        0,
        _share_state(m.ReadShareGroupStateSummaryRequest, "ReadStateSummaryData"),
    ),
    ("streams heartbeat", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, _streams_heartbeat),
    (
        "describe streams groups",
        ApiKey.STREAMS_GROUP_DESCRIBE,
        0,
        lambda n: m.StreamsGroupDescribeRequest(group_ids=[n.group], include_authorized_operations=True),
    ),
    ("describe share offsets", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, _share_offsets),
    ("alter share offsets", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, _alter_share_offsets),
    ("delete share offsets", ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, _delete_share_offsets),
    ("list groups", ApiKey.LIST_GROUPS, 5, lambda n: m.ListGroupsRequest()),
]
"""What it is, its API, the version to ask in, and the request."""
