"""The quorum's entry point: one replica with its connections, as the rest of the node uses it.

`metadata_replica.py` is the log and the node, `metadata_fetcher.py` follows a leader, `request_handler.py` answers
other nodes, `voter_changes.py` changes the voters. The driver connects them and sends the node's messages.

A quorum of one writes no NoOpRecords. Apache Kafka's active controller writes one each `metadata.max.idle.interval.ms`
so that other replicas see their lag and the high watermark move. Without other replicas it would only cost two fsyncs
and a wake-up a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from ottla.clock import Clock, Timer
from ottla.counters import QuorumCounters
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.log.fs import Fs
from ottla.peers import Endpoint, PeerFailure, Peers
from ottla.promise import Done, Failed
from ottla.raft.config import RaftConfig
from ottla.raft.contacts import VOTES, Contacts
from ottla.raft.messages import (
    BeginQuorumEpoch,
    LeaderFound,
    Outgoing,
    Resign,
    VoteRequest,
    VoteResponse,
    VoterGone,
)
from ottla.raft.metadata_fetcher import MetadataFetcher
from ottla.raft.metadata_replica import MetadataReplica, OnCommit, Post
from ottla.raft.node import RaftState
from ottla.raft.request_handler import QuorumRequestHandler
from ottla.raft.requests import begin_request, end_request, quorum_partition, vote_request
from ottla.raft.snapshots import SnapshotDownload
from ottla.raft.types import OffsetAndEpoch, QuorumInfo, RaftListener, RecordSerde, ReplicaState
from ottla.raft.voter_changes import VoterChanges, VoterUpkeep
from ottla.raft.voters import VoterNode, VoterSet
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

_logger = logging.getLogger(__name__)


class RaftDriver:
    """One replica of the metadata quorum. All methods are called on the event loop, and callbacks come on it.

    `local` is this node as a voter. `voters` are those of `controller.quorum.voters`: none for a dynamic quorum, whose
    voters are in the log. `serde` converts records to bytes and back. `executor` runs fsyncs and snapshot writes.
    `post` brings a callback from any thread to the loop (`loop.call_soon_threadsafe`). `on_fault` is called when the
    log cannot be made durable any more; the node must stop then. `peers` opens connections to other nodes, `bootstrap`
    are nodes to ask for the leader (`controller.quorum.bootstrap.servers`), `listener` is the name of the controllers'
    listener. `can_become_voter` is true for a node with the controller role.
    """

    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        *,
        local: VoterNode,
        voters: VoterSet,
        config: RaftConfig,
        clock: Clock,
        executor: Executor,
        post: Post,
        serde: RecordSerde,
        on_fault: Callable[[BaseException], None],
        cluster_id: str = "",
        peers: Peers | None = None,
        bootstrap: Sequence[Endpoint] = (),
        listener: str = "CONTROLLER",
        can_become_voter: bool = True,
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._local = local = _as_others_know_it(local, voters, can_become_voter)
        self._clock = clock
        self._cluster_id = cluster_id
        self._can_become_voter = can_become_voter
        self._has_bootstrap = bool(bootstrap)
        self._timer: Timer | None = None
        self._timer_due_ms: int | None = None
        self._replica = MetadataReplica(
            fs,
            data_dir,
            local=local,
            static_voters=voters,
            always_durable=can_become_voter,
            config=config,
            clock=clock,
            executor=executor,
            post=post,
            serde=serde,
            on_fault=on_fault,
            send=self._send,
            changed=self._changed,
        )
        self._contacts = Contacts(self._replica, peers, listener, bootstrap)
        self.requests = QuorumRequestHandler(self._replica, self._contacts, cluster_id)
        """Handles the quorum requests of other nodes."""
        self.voter_changes = VoterChanges(self._replica, self._contacts, cluster_id)
        """Handles requests to add, remove or update a voter."""
        self._upkeep = VoterUpkeep(self._replica, self._contacts, cluster_id, can_become_voter)
        self._fetcher = MetadataFetcher(
            self._replica, self._contacts, cluster_id, executor, post, self._open_download
        )

    # State

    @property
    def leader_id(self) -> BrokerId | None:
        """The leader as far as this node knows; None after this node has resigned."""
        node = self._replica.node
        return None if node.state is RaftState.RESIGNED else node.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._replica.node.epoch

    @property
    def is_leader(self) -> bool:
        return self._replica.node.is_leader

    @property
    def hears_leader(self) -> bool:
        """Whether this node follows a leader that has responded."""
        return self._replica.node.hears_leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The address of the leader's controller listener; None while there is no leader or its address is unknown."""
        return None if self.leader_id is None else self._contacts.endpoint_of(self.leader_id)

    @property
    def counters(self) -> QuorumCounters:
        return self._replica.counters

    @property
    def state(self) -> RaftState:
        """This replica's state. An observer is Unattached or Follower."""
        return self._replica.node.state

    @property
    def voted_for(self) -> BrokerId | None:
        """The voter that this node has voted for in the current epoch."""
        key = self._replica.node.voted_key
        return None if key is None else key.id

    @property
    def last_contact(self) -> float | None:
        """When this node last had the leader's log, on the monotonic clock: now if it leads; None for never."""
        return self._clock.monotonic() if self.is_leader else self._fetcher.last_fetch

    @property
    def log_end_epoch(self) -> int:
        return self._replica.log.end.epoch

    @property
    def is_voter(self) -> bool:
        """Whether this node has a vote."""
        return self._replica.node.voters.is_voter(self._local.key)

    def on_leader_change(self, callback: Callable[[BrokerId | None, int], object]) -> None:
        """Call back with (leader id or None, epoch) when the leader changes, after the listeners."""
        self._replica.on_leader_change.append(callback)

    @property
    def high_watermark(self) -> int:
        """Everything below is committed and was delivered to the listeners."""
        return self._replica.delivered_offset

    @property
    def log_end_offset(self) -> int:
        return self._replica.log.end.offset

    @property
    def log_start_offset(self) -> int:
        return self._replica.log.start_offset

    @property
    def kraft_version(self) -> int:
        """The finalized level of kraft.version. ApiVersions reports it among the features when it is above 0."""
        return self._replica.control.kraft_version

    def check_kraft_version(self, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION if kraft.version cannot be raised to this level now."""
        self.voter_changes.check_kraft_version(level)

    def upgrade_kraft_version(self, level: int, done: Done[None], failed: Failed) -> None:
        """Raise kraft.version; `done` is called when it is committed."""

        def finish(error: ErrorCode, message: str | None) -> None:
            if error:
                failed(ApiException(error, message or ""))
            else:
                done(None)

        self.voter_changes.upgrade_kraft_version(level, finish)

    @property
    def voters(self) -> VoterSet:
        """The voters in force, committed or not."""
        return self._replica.node.voters

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._replica.log.latest_snapshot_id

    def describe_quorum(self) -> QuorumInfo | None:
        """The content of a DescribeQuorum response; None when this node does not lead."""
        node = self._replica.node
        if not node.is_leader:
            return None
        node.tick(self._replica.now_ms())
        return QuorumInfo(
            leader_id=self._local.key.id,
            leader_epoch=node.epoch,
            high_watermark=-1 if node.committed_here is None else node.committed_here,
            voters=tuple(map(self._with_wall_time, node.voter_states())),
            observers=tuple(map(self._with_wall_time, node.observer_states())),
            nodes=tuple(
                (voter.key.id, tuple((name, e.host, e.port) for name, e in voter.listeners.items()))
                for voter in node.voters.nodes.values()
            ),
        )

    def _with_wall_time(self, state: ReplicaState) -> ReplicaState:
        """Convert the times from the node's monotonic clock to wall time."""
        ahead = self._clock.now_ms() - self._replica.now_ms()
        return ReplicaState(
            state.key,
            state.log_end_offset,
            state.last_fetch_timestamp
            if state.last_fetch_timestamp < 0
            else state.last_fetch_timestamp + ahead,
            state.last_caught_up_timestamp
            if state.last_caught_up_timestamp < 0
            else state.last_caught_up_timestamp + ahead,
        )

    # Lifecycle

    def add_listener(self, listener: RaftListener) -> None:
        """Deliver everything committed to this listener, from the beginning. Call before `start`."""
        self._replica.listeners.append(listener)

    def start(self) -> None:
        """Load snapshot and log, and start. Blocks on the disk. Raises ApiException for an unusable directory.

        When this returns, a quorum of one leads, and everything is committed and delivered to the listeners. In a
        larger quorum the listeners get leaders and commits as they come.
        """
        self._replica.open(self._check_voters)
        self._replica.start()
        self._changed()

    def shutdown(self) -> None:
        """Resign if this node leads others, sync what was appended (a quorum of one also commits it), then close."""
        replica = self._replica
        if replica.closed:
            return
        if len(replica.node.voters.nodes) > 1 and replica.running:
            replica.step(Resign())
        replica.close()
        self.requests.close()
        self._contacts.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_voters(self, voters: VoterSet) -> None:
        key = self._local.key
        if voters.is_voter(key):
            return
        if not voters.nodes and not self._has_bootstrap:
            reason = (
                "has no voters: set controller.quorum.voters or controller.quorum.bootstrap.servers, or format the "
                "directory with its first voters"
            )
        elif voters.ids == {key.id}:
            reason = f"knows voter {key.id} with another directory id: {self._data_dir} is not its own"
        elif self._replica.is_static and self._can_become_voter:
            reason = f"has the voters {sorted(voters.ids)}, and this node, {key.id}, is not one of them"
        else:
            return
        raise ApiException(ErrorCode.INVALID_CONFIG, f"the metadata quorum {reason}")

    # Appending

    def append(self, records: Sequence[WireMessage], on_commit: OnCommit | None = None) -> int:
        """Append as one atomic batch. Returns the last offset at once, and calls back with it when it is committed.

        The listeners get the records before the callback. The callback never comes if this node loses the lead first;
        the listeners are notified of that. Raises ApiException: NOT_LEADER_OR_FOLLOWER when this node does not lead,
        RECORD_LIST_TOO_LARGE when the records do not fit into one batch.
        """
        return self._replica.append(records, on_commit)

    # Snapshots

    @property
    def can_snapshot(self) -> bool:
        """No snapshot is being written."""
        return self._replica.can_snapshot

    def snapshot(self, snapshot_id: OffsetAndEpoch, values: Iterable[bytes], last_timestamp: int) -> None:
        """Write a snapshot of everything below `snapshot_id.offset`, which is committed; one at a time.

        `values` are the encoded records. They are iterated in the executor's thread, so they should be a generator over
        an immutable image. The retention deletes old snapshots and the log before them afterwards.
        """
        self._replica.snapshot(snapshot_id, values, last_timestamp)

    def _open_download(self, snapshot_id: OffsetAndEpoch) -> SnapshotDownload:
        replica = self._replica
        return SnapshotDownload(self._fs, replica.log.directory, snapshot_id, replica.node.epoch)

    # After each step

    def _changed(self) -> None:
        replica = self._replica
        if not replica.running:
            return
        self.requests.complete_due()
        self.voter_changes.changed()
        self._upkeep.changed()
        self._fetcher.send_next()
        self._set_timer()

    def _set_timer(self) -> None:
        due_ms = self._replica.node.deadline_ms
        if due_ms == self._timer_due_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due_ms = due_ms
        if due_ms is not None:
            # A timer may fire a little early. The minimum keeps it from being set again for the same moment.
            delay_s = max(due_ms / 1000 - self._clock.monotonic(), 0.001)
            self._timer = self._clock.call_later(delay_s, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        self._replica.tick()

    # The node's messages

    def _send(self, message: Outgoing) -> None:
        if isinstance(message, VoteResponse):
            self.requests.vote = message
            return
        endpoint = self._contacts.endpoint_of(message.receiver.id)
        if endpoint is None:
            _logger.warning("The address of voter %d is not known", message.receiver.id)
            return
        if isinstance(message, VoteRequest):
            self._contacts.send(
                endpoint,
                VOTES,
                vote_request(self._cluster_id, message),
                partial(self._on_vote, message),
                partial(self._vote_failed, message),
            )
        elif isinstance(message, BeginQuorumEpoch):
            begin = begin_request(self._cluster_id, message, self._local)
            self._contacts.send(endpoint, VOTES, begin, self._on_begin, _ignore)
        else:
            end = end_request(self._cluster_id, message, self._local)
            self._contacts.send(endpoint, VOTES, end, self._on_end, _ignore)

    def _on_vote(self, request: VoteRequest, response: messages.VoteResponse) -> None:
        partition = quorum_partition(response.topics)
        if response.error_code or partition is None:
            _logger.warning(
                "Voter %d answered a vote with error %d", request.receiver.id, response.error_code
            )
            return
        self._contacts.learn_all(response.node_endpoints)
        leader_id = None if partition.leader_id < 0 else partition.leader_id
        if partition.error_code:
            self._replica.step(LeaderFound(leader_id, partition.leader_epoch))
            return
        self._replica.step(
            VoteResponse(
                request.receiver,
                request.sender,
                partition.leader_epoch,
                leader_id,
                partition.vote_granted,
                request.pre_vote,
            )
        )

    def _vote_failed(self, request: VoteRequest, why: PeerFailure) -> None:
        """Ask again after a pause, as long as the election goes on."""
        if why is PeerFailure.REFUSED:
            self._replica.step(VoterGone(request))
        pause_s = self._replica.config.retry_backoff_ms / 1000
        self._clock.call_later(pause_s, self._ask_again, request)

    def _ask_again(self, request: VoteRequest) -> None:
        node = self._replica.node
        wanted = RaftState.PROSPECTIVE if request.pre_vote else RaftState.CANDIDATE
        if self._replica.running and node.epoch == request.epoch and node.state is wanted:
            self._send(request)

    def _on_begin(self, response: messages.BeginQuorumEpochResponse) -> None:
        partition = quorum_partition(response.topics)
        if response.error_code or partition is None:
            _logger.warning("A voter answered BeginQuorumEpoch with error %d", response.error_code)
            return
        self._contacts.learn_all(response.node_endpoints)
        self._learn_leader(partition.leader_id, partition.leader_epoch)

    def _on_end(self, response: messages.EndQuorumEpochResponse) -> None:
        partition = quorum_partition(response.topics)
        if response.error_code or partition is None:
            _logger.warning("A voter answered EndQuorumEpoch with error %d", response.error_code)
            return
        self._contacts.learn_all(response.node_endpoints)
        self._learn_leader(partition.leader_id, partition.leader_epoch)

    def _learn_leader(self, leader_id: BrokerId, epoch: int) -> None:
        self._replica.step(LeaderFound(None if leader_id < 0 else leader_id, epoch))


def _as_others_know_it(local: VoterNode, voters: VoterSet, can_become_voter: bool) -> VoterNode:
    """The node with its configured address; without any address where it is not a controller."""
    if not can_become_voter:
        return VoterNode(local.key, {}, local.kraft_versions)
    configured = voters.nodes.get(local.key.id)
    listeners = {} if configured is None else configured.listeners
    return VoterNode(local.key, {**local.listeners, **listeners}, local.kraft_versions)


def _ignore(_why: PeerFailure) -> None:
    """A voter that this message did not reach gets the next one, or finds the leader by itself."""
