"""DescribeQuorum (key 55), versions 0-2.

Leader, epoch and progress of the metadata quorum.

1 adds the times of the last fetch and of the last catch-up; 2 adds directories, endpoints and error messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Broker
from ottla.errors import ErrorCode
from ottla.metadata.image import NO_LEADER
from ottla.raft.types import CLUSTER_METADATA, QuorumInfo, ReplicaState
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.uuid import ZERO_UUID


def handle(
    broker: Broker, ctx: RequestContext, request: messages.DescribeQuorumRequest
) -> messages.DescribeQuorumResponse:
    response = messages.DescribeQuorumResponse
    if not _asks_for_metadata(request):
        return response(
            topics=[
                response.TopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        response.PartitionData(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    info = broker.raft.describe_quorum()
    partition = (
        response.PartitionData(
            partition_index=CLUSTER_METADATA.partition,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader_id=NO_LEADER,
        )
        if info is None
        else _partition(info, ctx.version)
    )
    answer = response(topics=[response.TopicData(topic_name=CLUSTER_METADATA.topic, partitions=[partition])])
    if ctx.version >= 2 and info is not None:
        answer.nodes = [
            response.Node(
                node_id=node_id,
                listeners=[
                    response.Listener(name=name, host=host, port=port) for name, host, port in listeners
                ],
            )
            for node_id, listeners in info.nodes
        ]
    return answer


def _asks_for_metadata(request: messages.DescribeQuorumRequest) -> bool:
    asked = [(topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions]
    return asked == [tuple(CLUSTER_METADATA)]


def _partition(info: QuorumInfo, version: int) -> messages.DescribeQuorumResponse.PartitionData:
    return messages.DescribeQuorumResponse.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        leader_id=info.leader_id,
        leader_epoch=info.leader_epoch,
        high_watermark=info.high_watermark,
        current_voters=_states(info.voters, version),
        observers=_states(info.observers, version),
    )


def _states(
    replicas: Iterable[ReplicaState], version: int
) -> list[messages.DescribeQuorumResponse.ReplicaState]:
    return [
        messages.DescribeQuorumResponse.ReplicaState(
            replica_id=replica.key.id,
            replica_directory_id=replica.key.directory_id if version >= 2 else ZERO_UUID,
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=replica.last_fetch_timestamp,
            last_caught_up_timestamp=replica.last_caught_up_timestamp,
        )
        for replica in replicas
    ]


API = Api(ApiKey.DESCRIBE_QUORUM, handle, forward=True, needs=(Right(AclOperation.DESCRIBE),))
