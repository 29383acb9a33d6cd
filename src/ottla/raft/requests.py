"""The quorum's requests and answers as Kafka's messages: built and taken apart here, meant elsewhere.

Every one of them is about a single partition, `__cluster_metadata-0`, and is refused when it is about anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ottla.errors import ErrorCode
from ottla.peers import Endpoint
from ottla.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, VoteRequest
from ottla.raft.types import CLUSTER_METADATA, OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode
from ottla.wire import messages
from ottla.wire.uuid import METADATA_TOPIC_ID

NOBODY: Final = -1


class LeaderView(msgspec.Struct, frozen=True):
    """Who leads as far as this node knows: what every answer carries."""

    leader_id: int | None
    epoch: int
    endpoint: Endpoint | None

    @property
    def id_or_nobody(self) -> int:
        return NOBODY if self.leader_id is None else self.leader_id


def metadata_partition(topics: Iterable[Any]) -> Any | None:
    """The partition's part of a request or answer with topics by name; None when it is about anything else."""
    found = list(topics)
    if len(found) != 1 or len(found[0].partitions) != 1:
        return None
    partition = found[0].partitions[0]
    name = getattr(found[0], "topic_name", None) or getattr(found[0], "name", None)
    index = getattr(partition, "partition_index", None)
    if index is None:
        index = getattr(partition, "partition", None)
    if index is None:
        index = partition.index
    return partition if (name, index) == tuple(CLUSTER_METADATA) else None


def fetched_partition(topics: Iterable[Any]) -> Any | None:
    """As `metadata_partition`, for Fetch, which has the topic's name or, from version 13, its id."""
    found = list(topics)
    if len(found) != 1 or len(found[0].partitions) != 1:
        return None
    partition = found[0].partitions[0]
    index = getattr(partition, "partition", None)
    if index is None:
        index = partition.partition_index
    known = found[0].topic == CLUSTER_METADATA.topic or found[0].topic_id == METADATA_TOPIC_ID
    return partition if known and index == CLUSTER_METADATA.partition else None


def vote_request(cluster_id: str, message: VoteRequest) -> Any:
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
        topics=[cls.TopicData(topic_name=CLUSTER_METADATA.topic, partitions=[partition])],
    )


def vote_from(partition: Any, local: ReplicaKey) -> VoteRequest:
    return VoteRequest(
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        local,
        partition.replica_epoch,
        OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        partition.pre_vote,
    )


def _leader_endpoints(cls: Any, local: VoterNode) -> list[Any]:
    return [cls.LeaderEndpoint(name=name, host=e.host, port=e.port) for name, e in local.listeners.items()]


def begin_request(cluster_id: str, message: BeginQuorumEpoch, local: VoterNode) -> Any:
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
        topics=[cls.TopicData(topic_name=CLUSTER_METADATA.topic, partitions=[partition])],
        leader_endpoints=_leader_endpoints(cls, local),
    )


def end_request(cluster_id: str, message: EndQuorumEpoch, local: VoterNode) -> Any:
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
        topics=[cls.TopicData(topic_name=CLUSTER_METADATA.topic, partitions=[partition])],
        leader_endpoints=_leader_endpoints(cls, local),
    )


def preferred_candidates(partition: Any) -> tuple[ReplicaKey, ...]:
    """In version 0 there are only ids."""
    if partition.preferred_candidates:
        return tuple(
            ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates
        )
    return tuple(ReplicaKey(node_id) for node_id in partition.preferred_successors)


def fetch_request(
    cluster_id: str,
    local: ReplicaKey,
    epoch: int,
    end: OffsetAndEpoch,
    high_watermark: int | None,
    *,
    max_bytes: int,
    max_wait_ms: int,
) -> Any:
    cls = messages.FetchRequest
    partition = cls.FetchPartition(
        partition=CLUSTER_METADATA.partition,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=max_bytes,
        replica_directory_id=local.directory_id,
        high_watermark=NOBODY if high_watermark is None else high_watermark,
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
) -> Any:
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
        topics=[cls.TopicSnapshot(name=CLUSTER_METADATA.topic, partitions=[partition])],
    )


def node_endpoints(cls: Any, leader: LeaderView) -> list[Any]:
    """Where the leader listens, for an answer of this class."""
    if leader.endpoint is None:
        return []
    return [
        cls.NodeEndpoint(node_id=leader.id_or_nobody, host=leader.endpoint.host, port=leader.endpoint.port)
    ]


def quorum_answer(cls: Any, leader: LeaderView, error: ErrorCode, **fields: Any) -> Any:
    """The answer to Vote, BeginQuorumEpoch or EndQuorumEpoch."""
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        leader_id=leader.id_or_nobody,
        leader_epoch=leader.epoch,
        **fields,
    )
    return cls(
        topics=[cls.TopicData(topic_name=CLUSTER_METADATA.topic, partitions=[partition])],
        node_endpoints=node_endpoints(cls, leader),
    )


def fetch_answer(
    leader: LeaderView, error: ErrorCode, *, high_watermark: int | None = None, **fields: Any
) -> Any:
    cls = messages.FetchResponse
    partition = cls.PartitionData(
        partition_index=CLUSTER_METADATA.partition,
        error_code=error,
        high_watermark=NOBODY if high_watermark is None else high_watermark,
        current_leader=cls.LeaderIdAndEpoch(leader_id=leader.id_or_nobody, leader_epoch=leader.epoch),
        **fields,
    )
    topic = cls.FetchableTopicResponse(
        topic=CLUSTER_METADATA.topic, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return cls(responses=[topic], node_endpoints=node_endpoints(cls, leader))


def fetch_snapshot_answer(leader: LeaderView, error: ErrorCode, **fields: Any) -> Any:
    cls = messages.FetchSnapshotResponse
    fields.setdefault("unaligned_records", b"")
    partition = cls.PartitionSnapshot(
        index=CLUSTER_METADATA.partition,
        error_code=error,
        current_leader=cls.LeaderIdAndEpoch(leader_id=leader.id_or_nobody, leader_epoch=leader.epoch),
        **fields,
    )
    return cls(
        topics=[cls.TopicSnapshot(name=CLUSTER_METADATA.topic, partitions=[partition])],
        node_endpoints=node_endpoints(cls, leader),
    )


def listeners_of(entries: Iterable[Any]) -> Mapping[str, VoterEndpoint]:
    """Listeners of a request, by name."""
    return {entry.name: VoterEndpoint(entry.host, entry.port) for entry in entries}
