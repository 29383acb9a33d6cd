"""The quorum's requests and responses as Kafka's messages: this module builds them and takes them apart.

Each of them concerns one partition, `__cluster_metadata-0`. The functions that take a message apart return None when it
concerns anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.peers import Endpoint
from ottla.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, VoteRequest
from ottla.raft.types import CLUSTER_METADATA, METADATA_TOPIC, OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode
from ottla.records.batch import Buffer
from ottla.wire import messages
from ottla.wire.uuid import METADATA_TOPIC_ID

NOBODY: Final = BrokerId(-1)
UNKNOWN_OFFSET: Final = -1

E = TypeVar("E", covariant=True)
P = TypeVar("P", bound="QuorumPartition")


class QuorumPartition(Protocol):
    """The partition in a Vote, BeginQuorumEpoch or EndQuorumEpoch message."""

    partition_index: int


class QuorumTopic(Protocol[P]):
    """The topic in a Vote, BeginQuorumEpoch or EndQuorumEpoch message."""

    topic_name: TopicName
    partitions: list[P]


class NamedEndpoint(Protocol):
    """A listener in a message, with its name."""

    name: str
    host: str
    port: int


class NamedEndpointClass(Protocol[E]):
    """A message's class for a listener with its name."""

    def __call__(self, *, name: str, host: str, port: int) -> E: ...


class NodeEndpointClass(Protocol[E]):
    """A response's class for the address of a node."""

    def __call__(self, *, node_id: BrokerId, host: str, port: int) -> E: ...


class LeaderView(msgspec.Struct, frozen=True):
    """The leader as far as this node knows it. Every response carries it."""

    leader_id: BrokerId | None
    epoch: int
    endpoint: Endpoint | None

    @property
    def id_or_nobody(self) -> BrokerId:
        return NOBODY if self.leader_id is None else self.leader_id


# The partition of a message


def quorum_partition(topics: Sequence[QuorumTopic[P]]) -> P | None:
    """The metadata partition of a Vote, BeginQuorumEpoch or EndQuorumEpoch message."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if (topics[0].topic_name, partition.partition_index) == CLUSTER_METADATA else None


def requested_partition(request: messages.FetchRequest) -> messages.FetchRequest.FetchPartition | None:
    """The metadata partition of a Fetch request, which has the topic's name or, from version 13, its id."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    partition = topic.partitions[0]
    return partition if _is_metadata(topic.topic, topic.topic_id, partition.partition) else None


def fetched_partition(response: messages.FetchResponse) -> messages.FetchResponse.PartitionData | None:
    """The metadata partition of a Fetch response."""
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    topic = response.responses[0]
    partition = topic.partitions[0]
    return partition if _is_metadata(topic.topic, topic.topic_id, partition.partition_index) else None


def _is_metadata(name: TopicName, topic_id: bytes, index: int) -> bool:
    return (name == METADATA_TOPIC or topic_id == METADATA_TOPIC_ID) and index == CLUSTER_METADATA.partition


def requested_snapshot(
    request: messages.FetchSnapshotRequest,
) -> messages.FetchSnapshotRequest.PartitionSnapshot | None:
    """The metadata partition of a FetchSnapshot request."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    return topic.partitions[0] if (topic.name, topic.partitions[0].partition) == CLUSTER_METADATA else None


def fetched_snapshot(
    response: messages.FetchSnapshotResponse,
) -> messages.FetchSnapshotResponse.PartitionSnapshot | None:
    """The metadata partition of a FetchSnapshot response."""
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    topic = response.topics[0]
    return topic.partitions[0] if (topic.name, topic.partitions[0].index) == CLUSTER_METADATA else None


# Requests


def vote_request(cluster_id: str, message: VoteRequest) -> messages.VoteRequest:
    cls = messages.VoteRequest
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        replica_epoch=message.epoch,
        replica_id=message.sender.id,
        replica_directory_id=message.sender.directory_id,
        voter_directory_id=message.receiver.directory_id,
        last_offset_epoch=message.last_log.epoch,
        last_offset=message.last_log.offset,
        pre_vote=message.pre_vote,
    )
    return cls(
        cluster_id=cluster_id,
        voter_id=message.receiver.id,
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def vote_from(partition: messages.VoteRequest.PartitionData, local: ReplicaKey) -> VoteRequest:
    return VoteRequest(
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        local,
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
    )


def begin_request(
    cluster_id: str, message: BeginQuorumEpoch, local: VoterNode
) -> messages.BeginQuorumEpochRequest:
    cls = messages.BeginQuorumEpochRequest
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        voter_directory_id=message.receiver.directory_id,
        leader_id=message.sender.id,
        leader_epoch=message.epoch,
    )
    return cls(
        cluster_id=cluster_id,
        voter_id=message.receiver.id,
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=named_endpoints(cls.LeaderEndpoint, local),
    )


def end_request(cluster_id: str, message: EndQuorumEpoch, local: VoterNode) -> messages.EndQuorumEpochRequest:
    cls = messages.EndQuorumEpochRequest
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        leader_id=message.sender.id,
        leader_epoch=message.epoch,
        preferred_candidates=[
            cls.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in message.preferred
        ],
    )
    return cls(
        cluster_id=cluster_id,
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=named_endpoints(cls.LeaderEndpoint, local),
    )


def preferred_candidates(partition: messages.EndQuorumEpochRequest.PartitionData) -> tuple[ReplicaKey, ...]:
    """The candidates in the order in which they should stand for election; version 0 has only their ids."""
    if partition.preferred_candidates:
        return tuple(
            ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates
        )
    return tuple(ReplicaKey(BrokerId(node_id)) for node_id in partition.preferred_successors)


def fetch_request(
    cluster_id: str,
    local: ReplicaKey,
    epoch: int,
    end: OffsetAndEpoch,
    high_watermark: int | None,
    *,
    max_bytes: int,
    max_wait_ms: int,
) -> messages.FetchRequest:
    cls = messages.FetchRequest
    partition = cls.FetchPartition(
        partition=CLUSTER_METADATA.partition,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=local.directory_id,
        high_watermark=UNKNOWN_OFFSET if high_watermark is None else high_watermark,
    )
    topic = cls.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return cls(
        cluster_id=cluster_id,
        replica_state=cls.ReplicaState(replica_id=local.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_snapshot_request(
    cluster_id: str,
    local: ReplicaKey,
    epoch: int,
    snapshot_id: OffsetAndEpoch,
    position: int,
    max_bytes: int,
) -> messages.FetchSnapshotRequest:
    cls = messages.FetchSnapshotRequest
    partition = cls.PartitionSnapshot(
        partition=CLUSTER_METADATA.partition,
        current_leader_epoch=epoch,
        snapshot_id=cls.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=local.directory_id,
    )
    return cls(
        cluster_id=cluster_id,
        replica_id=local.id,
        max_bytes=max_bytes,
        topics=[cls.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


# Responses


def vote_response(leader: LeaderView, error: ErrorCode, *, granted: bool = False) -> messages.VoteResponse:
    cls = messages.VoteResponse
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        leader_id=leader.id_or_nobody,
        leader_epoch=leader.epoch,
        vote_granted=granted,
    )
    return cls(
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(cls.NodeEndpoint, leader),
    )


def begin_response(leader: LeaderView, error: ErrorCode) -> messages.BeginQuorumEpochResponse:
    cls = messages.BeginQuorumEpochResponse
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        leader_id=leader.id_or_nobody,
        leader_epoch=leader.epoch,
    )
    return cls(
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(cls.NodeEndpoint, leader),
    )


def end_response(leader: LeaderView, error: ErrorCode) -> messages.EndQuorumEpochResponse:
    cls = messages.EndQuorumEpochResponse
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        leader_id=leader.id_or_nobody,
        leader_epoch=leader.epoch,
    )
    return cls(
        topics=[cls.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(cls.NodeEndpoint, leader),
    )


def fetch_response(
    leader: LeaderView,
    error: ErrorCode,
    *,
    high_watermark: int | None = None,
    log_start_offset: int = UNKNOWN_OFFSET,
    records: Buffer | None = None,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> messages.FetchResponse:
    """`diverging` is where the follower's log parts from the leader's, `snapshot_id` what it must fetch first."""
    cls = messages.FetchResponse
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        high_watermark=UNKNOWN_OFFSET if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=cls.LeaderIdAndEpoch(leader_id=leader.id_or_nobody, leader_epoch=leader.epoch),
        records=records,
    )
    if diverging is not None:
        partition.diverging_epoch = cls.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
    if snapshot_id is not None:
        partition.snapshot_id = cls.SnapshotId(epoch=snapshot_id.epoch, end_offset=snapshot_id.offset)
    topic = cls.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return cls(responses=[topic], node_endpoints=_leader_endpoint(cls.NodeEndpoint, leader))


def fetch_snapshot_response(
    leader: LeaderView,
    error: ErrorCode,
    *,
    snapshot_id: OffsetAndEpoch | None = None,
    size: int = 0,
    position: int = 0,
    data: Buffer = b"",
) -> messages.FetchSnapshotResponse:
    cls = messages.FetchSnapshotResponse
    partition = cls.PartitionSnapshot(
        index=CLUSTER_METADATA.partition,
        error_code=error,
        current_leader=cls.LeaderIdAndEpoch(leader_id=leader.id_or_nobody, leader_epoch=leader.epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    if snapshot_id is not None:
        partition.snapshot_id = cls.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    return cls(
        topics=[cls.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_leader_endpoint(cls.NodeEndpoint, leader),
    )


# Endpoints


def _leader_endpoint(cls: NodeEndpointClass[E], leader: LeaderView) -> list[E]:
    if leader.endpoint is None:
        return []
    return [cls(node_id=leader.id_or_nobody, host=leader.endpoint.host, port=leader.endpoint.port)]


def named_endpoints(cls: NamedEndpointClass[E], voter: VoterNode) -> list[E]:
    """A voter's listeners as a message has them."""
    return [cls(name=name, host=e.host, port=e.port) for name, e in voter.listeners.items()]


def listeners_of(entries: Iterable[NamedEndpoint]) -> Mapping[str, VoterEndpoint]:
    """The listeners of a request, by name."""
    return {entry.name: VoterEndpoint(entry.host, entry.port) for entry in entries}
