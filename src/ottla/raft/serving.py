"""What other nodes ask of this one: votes, epochs, fetches and snapshots, with the answers and errors of Kafka's.

A fetch with nothing to bring waits for an append, for the high watermark to move, or for the leader to change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.raft.contacts import Contacts
from ottla.raft.format import FORMAT_SNAPSHOT
from ottla.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, Fetched, LeaderFound, VoteResponse
from ottla.raft.metadata_log import Position
from ottla.raft.replica import Replica
from ottla.raft.requests import (
    fetch_answer,
    fetch_snapshot_answer,
    fetched_partition,
    metadata_partition,
    preferred_candidates,
    quorum_answer,
    vote_from,
)
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.wire import messages
from ottla.wire.uuid import ZERO_UUID

Respond = Callable[[Any], object]

_MAX_PARKED: Final = 10_000
"""Fetches that may wait at a time; one more is answered at once."""


@dataclass(eq=False, slots=True)
class _Parked:
    partition: Any
    max_bytes: int
    epoch: int
    listener: str
    respond: Respond
    timer: Timer | None = None


class Serving:
    """Answers for one replica. `listener` is the name of the listener a request came in on."""

    def __init__(self, replica: Replica, contacts: Contacts, cluster_id: str) -> None:
        self._replica = replica
        self._contacts = contacts
        self._cluster_id = cluster_id
        self._parked: list[_Parked] = []
        self.vote: VoteResponse | None = None
        """The node's answer to the vote that is being handled."""

    # Elections

    def handle_vote(self, request: Any, listener: str) -> Any:
        cls = messages.VoteResponse
        partition = metadata_partition(request.topics)
        refusal = self._refusal(request.cluster_id, partition)
        if refusal is not None or partition is None:
            return cls(error_code=refusal)
        error = self._vote_error(partition)
        if error is None:
            wanted = ReplicaKey(request.voter_id, partition.voter_directory_id)
            if not self._is_meant(wanted):
                self._replica.step(LeaderFound(None, partition.replica_epoch))
                error = ErrorCode.INVALID_VOTER_KEY
        if error is not None:
            return quorum_answer(cls, self._contacts.leader(listener), error, vote_granted=False)
        self.vote = None
        self._replica.step(vote_from(partition, self._replica.local.key))
        if self.vote is None:
            # The vote could not be written down, so it was not given.
            return quorum_answer(
                cls, self._contacts.leader(listener), ErrorCode.UNKNOWN_SERVER_ERROR, vote_granted=False
            )
        granted = self.vote.granted
        return quorum_answer(cls, self._contacts.leader(listener), ErrorCode.NONE, vote_granted=granted)

    def _vote_error(self, partition: Any) -> ErrorCode | None:
        last_epoch, epoch = partition.last_offset_epoch, partition.replica_epoch
        # A candidate has never seen a leader of its epoch; one that only asks may have records of its own.
        illegal = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
        if illegal or last_epoch < 0 or partition.last_offset < 0:
            return ErrorCode.INVALID_REQUEST
        return self._voter_error(partition.replica_id, epoch)

    def handle_begin_quorum_epoch(self, request: Any, listener: str) -> Any:
        cls = messages.BeginQuorumEpochResponse
        partition = metadata_partition(request.topics)
        refusal = self._refusal(request.cluster_id, partition)
        if refusal is not None or partition is None:
            return cls(error_code=refusal)
        error = self._voter_error(partition.leader_id, partition.leader_epoch)
        if error is None:
            self._contacts.learn_leader(partition.leader_id, request.leader_endpoints)
            local = self._replica.local.key
            self._replica.step(
                BeginQuorumEpoch(ReplicaKey(partition.leader_id), local, partition.leader_epoch)
            )
            if not self._is_meant(ReplicaKey(request.voter_id, partition.voter_directory_id)):
                error = ErrorCode.INVALID_VOTER_KEY
        return quorum_answer(cls, self._contacts.leader(listener), error or ErrorCode.NONE)

    def handle_end_quorum_epoch(self, request: Any, listener: str) -> Any:
        cls = messages.EndQuorumEpochResponse
        partition = metadata_partition(request.topics)
        refusal = self._refusal(request.cluster_id, partition)
        if refusal is not None or partition is None:
            return cls(error_code=refusal)
        error = self._voter_error(partition.leader_id, partition.leader_epoch)
        if error is None:
            self._contacts.learn_leader(partition.leader_id, request.leader_endpoints)
            self._replica.step(
                EndQuorumEpoch(
                    ReplicaKey(partition.leader_id),
                    self._replica.local.key,
                    partition.leader_epoch,
                    preferred_candidates(partition),
                )
            )
        return quorum_answer(cls, self._contacts.leader(listener), error or ErrorCode.NONE)

    # Fetching

    def handle_fetch(self, request: Any, respond: Respond, listener: str) -> None:
        """Answers through `respond`, at once or when there is something to bring."""
        cls = messages.FetchResponse
        partition = fetched_partition(request.topics)
        refusal = self._refusal(request.cluster_id, partition)
        if refusal is not None or partition is None:
            respond(cls(error_code=refusal))
            return
        last_epoch = partition.last_fetched_epoch
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or not 0 <= last_epoch <= partition.current_leader_epoch
        ):
            respond(fetch_answer(self._contacts.leader(listener), ErrorCode.INVALID_REQUEST))
            return
        parked = _Parked(partition, request.max_bytes, self._replica.node.epoch, listener, respond)
        self._note_fetch(request, partition)
        if request.max_wait_ms == 0 or len(self._parked) >= _MAX_PARKED or self._is_due(parked):
            respond(self._fetch_answer(parked))
            return
        parked.timer = self._replica.clock.call_later(request.max_wait_ms / 1000, self._expire, parked)
        self._parked.append(parked)

    def _note_fetch(self, request: Any, partition: Any) -> None:
        replica_id = request.replica_state.replica_id
        if replica_id < 0:
            replica_id = request.replica_id
        if self._leader_error(partition.current_leader_epoch) is not None:
            return
        position, _ = self._replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        if position is Position.VALID and replica_id >= 0:
            key = ReplicaKey(replica_id, partition.replica_directory_id)
            self._replica.step(Fetched(key, partition.fetch_offset))

    def _is_due(self, parked: _Parked) -> bool:
        """There is something to say: an error, records, another place to go on from, or a new high watermark."""
        partition, replica = parked.partition, self._replica
        if self._leader_error(partition.current_leader_epoch) is not None:
            return True
        if replica.log.end.offset > partition.fetch_offset:
            return True
        committed = replica.node.committed_here
        if committed is not None and partition.high_watermark < committed:
            return True
        position, _ = replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        return position is not Position.VALID

    def _fetch_answer(self, parked: _Parked) -> Any:
        cls = messages.FetchResponse
        partition, replica = parked.partition, self._replica
        leader = self._contacts.leader(parked.listener)
        error = self._leader_error(partition.current_leader_epoch)
        if error is not None:
            return fetch_answer(leader, error, log_start_offset=replica.log.start_offset, records=b"")
        position, place = replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        fields: dict[str, Any] = {"records": b""}
        if position is Position.DIVERGING:
            fields["diverging_epoch"] = cls.EpochEndOffset(epoch=place.epoch, end_offset=place.offset)
        elif position is Position.SNAPSHOT:
            fields["snapshot_id"] = cls.SnapshotId(epoch=place.epoch, end_offset=place.offset)
        else:
            try:
                fields["records"] = replica.log.fetch(partition.fetch_offset, parked.max_bytes)
            except ApiException as failed:
                # A log that cannot be read cannot be led from.
                replica.fail(failed)
                return fetch_answer(leader, failed.code, log_start_offset=replica.log.start_offset, **fields)
        return fetch_answer(
            leader,
            ErrorCode.NONE,
            high_watermark=replica.node.committed_here,
            log_start_offset=replica.log.start_offset,
            **fields,
        )

    def wake(self) -> None:
        """Something has changed: answer the fetches that waited for it."""
        if not self._parked:
            return
        due = [p for p in self._parked if p.epoch != self._replica.node.epoch or self._is_due(p)]
        for parked in due:
            self._release(parked)

    def _expire(self, parked: _Parked) -> None:
        if parked in self._parked:
            self._release(parked)

    def _release(self, parked: _Parked) -> None:
        self._parked.remove(parked)
        if parked.timer is not None:
            parked.timer.cancel()
        parked.respond(self._fetch_answer(parked))

    def close(self) -> None:
        """Answer all that wait."""
        for parked in list(self._parked):
            self._release(parked)

    def handle_fetch_snapshot(self, request: Any, listener: str) -> Any:
        cls = messages.FetchSnapshotResponse
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return cls(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return cls(error_code=ErrorCode.INVALID_REQUEST)
        leader = self._contacts.leader(listener)
        partition = metadata_partition(request.topics)
        if partition is None:
            topic = request.topics[0]
            unknown = cls.PartitionSnapshot(
                index=topic.partitions[0].partition,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                unaligned_records=b"",
            )
            return cls(topics=[cls.TopicSnapshot(name=topic.name, partitions=[unknown])])
        error = self._leader_error(partition.current_leader_epoch)
        if error is not None:
            return fetch_snapshot_answer(leader, error)
        snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        replica = self._replica
        if not replica.log.has_snapshot(snapshot_id) or snapshot_id == FORMAT_SNAPSHOT:
            return fetch_snapshot_answer(leader, ErrorCode.SNAPSHOT_NOT_FOUND)
        max_bytes = min(request.max_bytes, replica.config.fetch_snapshot_max_bytes)
        size, data = replica.log.snapshot_slice(snapshot_id, max(partition.position, 0), max_bytes)
        if not 0 <= partition.position < size:
            return fetch_snapshot_answer(leader, ErrorCode.POSITION_OUT_OF_RANGE)
        replica.step(Fetched(ReplicaKey(request.replica_id, partition.replica_directory_id), -1))
        return fetch_snapshot_answer(
            leader,
            ErrorCode.NONE,
            snapshot_id=cls.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
            size=size,
            position=partition.position,
            unaligned_records=data,
        )

    # Checks

    def _refusal(self, cluster_id: str | None, partition: Any | None) -> ErrorCode | None:
        if cluster_id is not None and cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if partition is None else None

    def _voter_error(self, node_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self._replica.node.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else None

    def _leader_error(self, epoch: int) -> ErrorCode | None:
        node = self._replica.node
        if epoch < node.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > node.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not node.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None if self._replica.running else ErrorCode.BROKER_NOT_AVAILABLE

    def leader_error(self, epoch: int | None = None) -> ErrorCode | None:
        """Why this node does not answer as the leader (of this epoch); None if it does."""
        return self._leader_error(self._replica.node.epoch if epoch is None else epoch)

    def _is_meant(self, voter: ReplicaKey) -> bool:
        local = self._replica.local.key
        if voter.id < 0:
            return True
        return voter.id == local.id and voter.directory_id in (ZERO_UUID, local.directory_id)
