"""Handles the quorum's requests of other nodes (votes, epochs, fetches, snapshots), with Kafka's responses and errors.

A fetch without new data waits for an append, for a higher high watermark, or for a change of the leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.raft.contacts import Contacts
from ottla.raft.format import FORMAT_SNAPSHOT
from ottla.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, Fetched, LeaderFound, VoteResponse
from ottla.raft.metadata_log import Position
from ottla.raft.metadata_replica import MetadataReplica
from ottla.raft.requests import (
    begin_response,
    end_response,
    fetch_response,
    fetch_snapshot_response,
    preferred_candidates,
    quorum_partition,
    requested_partition,
    requested_snapshot,
    vote_from,
    vote_response,
)
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.records.batch import Buffer
from ottla.wire import messages
from ottla.wire.uuid import ZERO_UUID

P = TypeVar("P")

_MAX_DELAYED: Final = 10_000
"""Fetches that may wait at a time; one more is answered at once."""


class _DelayedFetch(msgspec.Struct, eq=False):
    partition: messages.FetchRequest.FetchPartition
    max_bytes: int
    epoch: int
    listener: str
    respond: Callable[[messages.FetchResponse], object]
    timer: Timer | None = None


class QuorumRequestHandler:
    """Answers requests for one replica. `listener` is the name of the listener that a request came in on."""

    def __init__(self, replica: MetadataReplica, contacts: Contacts, cluster_id: str) -> None:
        self._replica = replica
        self._contacts = contacts
        self._cluster_id = cluster_id
        self._delayed: list[_DelayedFetch] = []
        self.vote: VoteResponse | None = None
        """The node's response to the Vote request in progress."""

    # Elections

    def handle_vote(self, request: messages.VoteRequest, listener: str = "") -> messages.VoteResponse:
        partition = self._checked(request.cluster_id, quorum_partition(request.topics))
        if isinstance(partition, ErrorCode):
            return messages.VoteResponse(error_code=partition)
        error = self._vote_error(partition)
        if error is None:
            wanted = ReplicaKey(request.voter_id, partition.voter_directory_id)
            if not self._is_addressed(wanted):
                self._replica.step(LeaderFound(None, partition.replica_epoch))
                error = ErrorCode.INVALID_VOTER_KEY
        if error is not None:
            return vote_response(self._contacts.leader(listener), error)
        self.vote = None
        self._replica.step(vote_from(partition, self._replica.local.key))
        if self.vote is None:
            # The vote could not be made durable, so it was not given.
            return vote_response(self._contacts.leader(listener), ErrorCode.UNKNOWN_SERVER_ERROR)
        return vote_response(self._contacts.leader(listener), ErrorCode.NONE, granted=self.vote.granted)

    def handle_begin_quorum_epoch(
        self, request: messages.BeginQuorumEpochRequest, listener: str = ""
    ) -> messages.BeginQuorumEpochResponse:
        partition = self._checked(request.cluster_id, quorum_partition(request.topics))
        if isinstance(partition, ErrorCode):
            return messages.BeginQuorumEpochResponse(error_code=partition)
        error = self._voter_error(partition.leader_id, partition.leader_epoch)
        if error is None:
            self._contacts.learn_leader(partition.leader_id, request.leader_endpoints)
            local = self._replica.local.key
            self._replica.step(
                BeginQuorumEpoch(ReplicaKey(partition.leader_id), local, partition.leader_epoch)
            )
            if not self._is_addressed(ReplicaKey(request.voter_id, partition.voter_directory_id)):
                error = ErrorCode.INVALID_VOTER_KEY
        return begin_response(self._contacts.leader(listener), error or ErrorCode.NONE)

    def handle_end_quorum_epoch(
        self, request: messages.EndQuorumEpochRequest, listener: str = ""
    ) -> messages.EndQuorumEpochResponse:
        partition = self._checked(request.cluster_id, quorum_partition(request.topics))
        if isinstance(partition, ErrorCode):
            return messages.EndQuorumEpochResponse(error_code=partition)
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
        return end_response(self._contacts.leader(listener), error or ErrorCode.NONE)

    # Fetching

    def handle_fetch(
        self,
        request: messages.FetchRequest,
        respond: Callable[[messages.FetchResponse], object],
        listener: str = "",
    ) -> None:
        """Handle a Fetch of `__cluster_metadata`. `respond` is called at once, or when there is something to send."""
        partition = self._checked(request.cluster_id, requested_partition(request))
        if isinstance(partition, ErrorCode):
            respond(messages.FetchResponse(error_code=partition))
            return
        last_epoch = partition.last_fetched_epoch
        if (
            request.max_wait_ms < 0
            or partition.fetch_offset < 0
            or not 0 <= last_epoch <= partition.current_leader_epoch
        ):
            respond(fetch_response(self._contacts.leader(listener), ErrorCode.INVALID_REQUEST))
            return
        fetch = _DelayedFetch(partition, request.max_bytes, self._replica.node.epoch, listener, respond)
        self._note_fetch(request, partition)
        if request.max_wait_ms == 0 or len(self._delayed) >= _MAX_DELAYED or self._is_due(fetch):
            respond(self._fetch_response(fetch))
            return
        fetch.timer = self._replica.clock.call_later(request.max_wait_ms / 1000, self._expire, fetch)
        self._delayed.append(fetch)

    def _note_fetch(
        self, request: messages.FetchRequest, partition: messages.FetchRequest.FetchPartition
    ) -> None:
        replica_id = request.replica_state.replica_id
        if replica_id < 0:
            replica_id = request.replica_id
        if self._leader_error(partition.current_leader_epoch) is not None:
            return
        position, _ = self._replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        if position is Position.VALID and replica_id >= 0:
            key = ReplicaKey(replica_id, partition.replica_directory_id)
            self._replica.step(Fetched(key, partition.fetch_offset))

    def _is_due(self, fetch: _DelayedFetch) -> bool:
        """There is something to send: an error, records, another position to continue at, or a high watermark."""
        partition, replica = fetch.partition, self._replica
        if self._leader_error(partition.current_leader_epoch) is not None:
            return True
        if replica.log.end.offset > partition.fetch_offset:
            return True
        committed = replica.node.committed_here
        if committed is not None and partition.high_watermark < committed:
            return True
        position, _ = replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        return position is not Position.VALID

    def _fetch_response(self, fetch: _DelayedFetch) -> messages.FetchResponse:
        partition, replica = fetch.partition, self._replica
        leader = self._contacts.leader(fetch.listener)
        start_offset = replica.log.start_offset
        error = self._leader_error(partition.current_leader_epoch)
        if error is not None:
            return fetch_response(leader, error, log_start_offset=start_offset, records=b"")
        position, place = replica.log.check_position(partition.fetch_offset, partition.last_fetched_epoch)
        records: Buffer = b""
        if position is Position.VALID:
            try:
                records = replica.log.fetch(partition.fetch_offset, fetch.max_bytes)
            except ApiException as failed:
                # A leader must be able to read its log.
                replica.fail(failed)
                return fetch_response(leader, failed.code, log_start_offset=start_offset, records=b"")
        return fetch_response(
            leader,
            ErrorCode.NONE,
            high_watermark=replica.node.committed_here,
            log_start_offset=start_offset,
            records=records,
            diverging=place if position is Position.DIVERGING else None,
            snapshot_id=place if position is Position.SNAPSHOT else None,
        )

    def complete_due(self) -> None:
        """Answer the delayed fetches that are due after a change."""
        if not self._delayed:
            return
        due = [
            fetch for fetch in self._delayed if fetch.epoch != self._replica.node.epoch or self._is_due(fetch)
        ]
        for fetch in due:
            self._complete(fetch)

    def _expire(self, fetch: _DelayedFetch) -> None:
        if fetch in self._delayed:
            self._complete(fetch)

    def _complete(self, fetch: _DelayedFetch) -> None:
        self._delayed.remove(fetch)
        if fetch.timer is not None:
            fetch.timer.cancel()
        fetch.respond(self._fetch_response(fetch))

    def close(self) -> None:
        """Answer all delayed fetches."""
        for fetch in list(self._delayed):
            self._complete(fetch)

    def handle_fetch_snapshot(
        self, request: messages.FetchSnapshotRequest, listener: str = ""
    ) -> messages.FetchSnapshotResponse:
        cls = messages.FetchSnapshotResponse
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return cls(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return cls(error_code=ErrorCode.INVALID_REQUEST)
        leader = self._contacts.leader(listener)
        partition = requested_snapshot(request)
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
            return fetch_snapshot_response(leader, error)
        snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        replica = self._replica
        if not replica.log.has_snapshot(snapshot_id) or snapshot_id == FORMAT_SNAPSHOT:
            return fetch_snapshot_response(leader, ErrorCode.SNAPSHOT_NOT_FOUND)
        max_bytes = min(request.max_bytes, replica.config.fetch_snapshot_max_bytes)
        size, data = replica.log.snapshot_slice(snapshot_id, max(partition.position, 0), max_bytes)
        if not 0 <= partition.position < size:
            return fetch_snapshot_response(leader, ErrorCode.POSITION_OUT_OF_RANGE)
        replica.step(Fetched(ReplicaKey(request.replica_id, partition.replica_directory_id), -1))
        return fetch_snapshot_response(
            leader,
            ErrorCode.NONE,
            snapshot_id=snapshot_id,
            size=size,
            position=partition.position,
            data=data,
        )

    # Checks

    def _checked(self, cluster_id: str | None, partition: P | None) -> P | ErrorCode:
        """The partition of a request, or why the whole request is refused."""
        if cluster_id is not None and cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if partition is None else partition

    def _vote_error(self, partition: messages.VoteRequest.PartitionData) -> ErrorCode | None:
        last_epoch, epoch = partition.last_offset_epoch, partition.replica_epoch
        # A candidate has never seen a leader of its epoch; a pre-vote may come from one with records of its epoch.
        illegal = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
        if illegal or last_epoch < 0 or partition.last_offset < 0:
            return ErrorCode.INVALID_REQUEST
        return self._voter_error(partition.replica_id, epoch)

    def _voter_error(self, node_id: BrokerId, epoch: int) -> ErrorCode | None:
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

    def _is_addressed(self, voter: ReplicaKey) -> bool:
        """The request names this voter, or no voter at all."""
        local = self._replica.local.key
        if voter.id < 0:
            return True
        return voter.id == local.id and voter.directory_id in (ZERO_UUID, local.directory_id)
