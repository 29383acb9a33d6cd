"""Changes of a quorum's voters. The leader adds, removes and updates them; a node asks for its own changes.

There is one change at a time, a VotersRecord in the log. It is in force from its append on and answered when committed.
A quorum with configured voters (kraft.version 0) has no such records. Its leader only keeps in memory what the voters
report of themselves; raising kraft.version writes that into the log as the first VotersRecord.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ottla.clock import Timer
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.peers import Endpoint, PeerFailure
from ottla.raft.contacts import VOTES, Contacts
from ottla.raft.messages import Fetched, Resign
from ottla.raft.metadata_replica import MetadataReplica
from ottla.raft.node import RaftState
from ottla.raft.requests import listeners_of, named_endpoints
from ottla.raft.types import ReplicaKey
from ottla.raft.voters import KRaftVersions, VoterEndpoint, VoterNode, VoterSet
from ottla.wire import messages
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.wire.classes import WireRequest

    _VoterResponse = (
        messages.AddRaftVoterResponse | messages.RemoveRaftVoterResponse | messages.UpdateRaftVoterResponse
    )

_logger = logging.getLogger(__name__)

Finish = Callable[[ErrorCode, str | None], object]

_CAUGHT_UP_MS: Final = 3_600_000
"""A new voter must have fetched within this time, or the quorum would have to wait for it."""

_KRAFT_VERSION: Final = "kraft.version"


class _Change(msgspec.Struct, eq=False):
    finish: Finish
    offset: int | None = None
    """The offset of its record when it is written."""
    timer: Timer | None = None


class VoterChanges:
    """The leader's side. Call `changed` when the high watermark or the leader may have changed."""

    def __init__(self, replica: MetadataReplica, contacts: Contacts, cluster_id: str) -> None:
        self._replica = replica
        self._contacts = contacts
        self._cluster_id = cluster_id
        self._change: _Change | None = None
        self._reported: dict[BrokerId, VoterNode] = {}
        """What configured voters reported of themselves to this node, as the leader of `_reported_epoch`."""
        self._reported_epoch = -1

    # Requests

    def add(
        self,
        request: messages.AddRaftVoterRequest,
        respond: Callable[[messages.AddRaftVoterResponse], object],
    ) -> None:
        """Handle AddRaftVoter."""

        def finish(error: ErrorCode, message: str | None) -> None:
            respond(messages.AddRaftVoterResponse(error_code=error, error_message=message))

        key = _voter_key(request)
        listeners = listeners_of(request.listeners)
        problem = self._request_problem(request.cluster_id, key, "Add")
        if problem is None and self._contacts.listener not in listeners:
            problem = (
                ErrorCode.INVALID_REQUEST,
                "Add voter request didn't include the endpoint for the default listener "
                f"{self._contacts.listener}",
            )
        problem = problem or self._change_problem("adding")
        if problem is None and key.id in self._replica.node.voters.nodes:
            problem = (
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {_show(key)} is already part of the set of voters "
                f"{_show_all(self._replica.node.voters)}.",
            )
        if problem is not None:
            finish(*problem)
            return
        change = self._begin(finish)
        address = listeners[self._contacts.listener]
        self._contacts.send(
            Endpoint(key.id, address.host, address.port),
            VOTES,
            messages.ApiVersionsRequest(client_software_name="ottla", client_software_version="raft"),
            partial(self._on_versions, change, key, listeners, request.ack_when_committed),
            partial(self._versions_failed, change, key),
        )

    def remove(
        self,
        request: messages.RemoveRaftVoterRequest,
        respond: Callable[[messages.RemoveRaftVoterResponse], object],
    ) -> None:
        """Handle RemoveRaftVoter."""

        def finish(error: ErrorCode, message: str | None) -> None:
            respond(messages.RemoveRaftVoterResponse(error_code=error, error_message=message))

        key = _voter_key(request)
        problem = self._request_problem(request.cluster_id, key, "Remove") or self._change_problem("removing")
        voters = self._replica.node.voters
        if problem is None and not (key.id in voters.nodes and voters.nodes[key.id].key == key):
            problem = (
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {_show(key)} from the set of voters {_show_all(voters)}",
            )
        elif problem is None and len(voters.nodes) == 1:
            problem = (ErrorCode.INVALID_REQUEST, f"Cannot remove {_show(key)}: it is the only voter")
        if problem is not None:
            finish(*problem)
            return
        self._write(self._begin(finish), voters.without_voter(key))

    def update(
        self,
        request: messages.UpdateRaftVoterRequest,
        respond: Callable[[messages.UpdateRaftVoterResponse], object],
        listener: str = "",
    ) -> None:
        """Handle UpdateRaftVoter."""

        def finish(error: ErrorCode, _message: str | None) -> None:
            respond(self._update_response(error, listener))

        key = _voter_key(request)
        listeners = listeners_of(request.listeners)
        feature = request.kraft_version_feature
        versions = KRaftVersions(feature.min_supported_version, feature.max_supported_version)
        replica = self._replica
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            finish(ErrorCode.INCONSISTENT_CLUSTER_ID, None)
            return
        error = self._leader_error(request.current_leader_epoch)
        if error is None and (
            key.id < 0
            or key.directory_id == ZERO_UUID
            or self._contacts.listener not in listeners
            or not 0 <= versions.min <= replica.node.kraft_version <= versions.max
        ):
            error = ErrorCode.INVALID_REQUEST
        dynamic = replica.node.kraft_version > 0
        if error is None and (self._change is not None or replica.node.committed_here is None):
            error = ErrorCode.REQUEST_TIMED_OUT
        if error is None and dynamic and not self._voters_are_committed:
            error = ErrorCode.REQUEST_TIMED_OUT
        known = replica.node.voters.nodes.get(key.id)
        if error is None and (known is None or (dynamic and known.key != key)):
            error = ErrorCode.VOTER_NOT_FOUND
        if error is not None:
            finish(error, None)
            return
        voter = VoterNode(key, listeners, versions)
        replica.step(Fetched(key, -1))
        if not dynamic:
            self._keep_report(voter)
        elif known != voter:
            replica.append_voters(replica.node.voters.with_voter(voter))
        finish(ErrorCode.NONE, None)

    # kraft.version

    def check_kraft_version(self, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION if kraft.version cannot be raised to this level now."""
        current = self._replica.node.kraft_version
        if level < current:
            raise _invalid_upgrade(
                f"from version {current} to {level} because the new version is a downgrade"
            )
        unready = [
            str(node.key.id)
            for node in self._voters_as_reported().nodes.values()
            if node.key.directory_id == ZERO_UUID
            or not node.kraft_versions.min <= level <= node.kraft_versions.max
        ]
        if level > current and unready:
            raise _invalid_upgrade(
                f"to {level} because not all of the voters support it: nothing that supports it was heard from "
                f"{', '.join(unready)}"
            )

    def upgrade_kraft_version(self, level: int, finish: Finish) -> None:
        """Raise kraft.version and write the voters into the log; `finish` is called when that is committed."""
        node = self._replica.node
        problem = self._pending_problem()
        if problem is None and not node.is_leader:
            problem = ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum"
        if problem is not None:
            finish(*problem)
            return
        if level == node.kraft_version:
            finish(ErrorCode.NONE, None)
            return
        voters = self._voters_as_reported()
        _logger.info("kraft.version becomes %d with the voters %s", level, _show_all(voters))
        change = self._begin(finish)
        change.offset = self._replica.append_kraft_version(level, voters)

    def _keep_report(self, voter: VoterNode) -> None:
        if self._reported_epoch != self._replica.node.epoch:
            self._reported, self._reported_epoch = {}, self._replica.node.epoch
        self._reported[voter.key.id] = voter

    def _voters_as_reported(self) -> VoterSet:
        voters, local = self._replica.node.voters, self._replica.local
        if self._reported_epoch == self._replica.node.epoch:
            for voter in self._reported.values():
                voters = voters.with_voter(voter)
        return voters.with_voter(local) if local.key.id in voters.nodes else voters

    def _update_response(self, error: ErrorCode, listener: str = "") -> messages.UpdateRaftVoterResponse:
        cls = messages.UpdateRaftVoterResponse
        leader = self._contacts.leader(listener)
        current = cls.CurrentLeader(leader_id=leader.id_or_nobody, leader_epoch=leader.epoch)
        if leader.endpoint is not None:
            current.host, current.port = leader.endpoint.host, leader.endpoint.port
        return cls(error_code=error, current_leader=current)

    # Checks

    def _leader_error(self, epoch: int) -> ErrorCode | None:
        node = self._replica.node
        if epoch < node.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > node.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if node.is_leader and self._replica.running else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _request_problem(
        self, cluster_id: str | None, key: ReplicaKey, verb: str
    ) -> tuple[ErrorCode, str | None] | None:
        if cluster_id is not None and cluster_id != self._cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{cluster_id}" doesn\'t match the cluster id "{self._cluster_id}"',
            )
        error = self._leader_error(self._replica.node.epoch)
        if error is not None:
            return error, None
        if key.id < 0 or key.directory_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter"
        return None

    def _change_problem(self, doing: str) -> tuple[ErrorCode, str] | None:
        node = self._replica.node
        problem = self._pending_problem()
        if problem is not None:
            return problem
        if node.kraft_version == 0:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {doing} voter because the {_KRAFT_VERSION} feature is 0",
            )
        if not self._voters_are_committed:
            return ErrorCode.REQUEST_TIMED_OUT, "The latest change of the voters is not committed yet"
        return None

    def _pending_problem(self) -> tuple[ErrorCode, str] | None:
        if self._change is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is in progress"
        if self._replica.node.committed_here is None:
            return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed anything in its epoch yet"
        return None

    @property
    def _voters_are_committed(self) -> bool:
        node = self._replica.node
        return (
            node.voters_offset is not None
            and node.committed_here is not None
            and node.voters_offset < node.committed_here
        )

    # A change under way

    def _begin(self, finish: Finish) -> _Change:
        change = self._change = _Change(finish)
        timeout_s = self._replica.config.request_timeout_ms / 1000
        change.timer = self._replica.clock.call_later(timeout_s, self._time_out, change)
        return change

    def _end(self, change: _Change, error: ErrorCode, message: str | None = None) -> None:
        if change is not self._change:
            return
        self._change = None
        if change.timer is not None:
            change.timer.cancel()
        change.finish(error, message)

    def _time_out(self, change: _Change) -> None:
        self._end(change, ErrorCode.REQUEST_TIMED_OUT, "The change of the voters timed out")

    def _on_versions(
        self,
        change: _Change,
        key: ReplicaKey,
        listeners: Mapping[str, VoterEndpoint],
        ack_when_committed: bool,
        response: messages.ApiVersionsResponse,
    ) -> None:
        node = self._replica.node
        if change is not self._change or not node.is_leader:
            return
        if response.error_code:
            self._end(
                change,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted adding {_show(key)}: it answered ApiVersions with error {response.error_code}",
            )
            return
        feature = next((f for f in response.supported_features if f.name == _KRAFT_VERSION), None)
        versions = (
            KRaftVersions(0, 0)
            if feature is None
            else KRaftVersions(feature.min_version, feature.max_version)
        )
        if not versions.min <= node.kraft_version <= versions.max:
            self._end(
                change,
                ErrorCode.INVALID_REQUEST,
                f"Aborted adding {_show(key)}: its {_KRAFT_VERSION} range {versions.min}-{versions.max} doesn't "
                f"support the finalized version {node.kraft_version}",
            )
            return
        known = node.progress_of(key)
        if known is None or known.last_caught_up_ms < 0 or node.now_ms - known.last_fetch_ms > _CAUGHT_UP_MS:
            self._end(
                change, ErrorCode.REQUEST_TIMED_OUT, f"Aborted adding {_show(key)}: it is lagging behind"
            )
            return
        if not ack_when_committed:
            finish, change.finish = change.finish, _ignore_outcome
            finish(ErrorCode.NONE, None)
        self._write(change, node.voters.with_voter(VoterNode(key, listeners, versions)))

    def _versions_failed(self, change: _Change, key: ReplicaKey, why: PeerFailure) -> None:
        self._end(
            change, ErrorCode.REQUEST_TIMED_OUT, f"New voter {_show(key)} is not ready to receive requests"
        )
        _logger.info("Node %d cannot become a voter because it does not answer: %s", key.id, why.value)

    def _write(self, change: _Change, voters: VoterSet) -> None:
        _logger.info("The new voters of the metadata quorum are %s", _show_all(voters))
        change.offset = self._replica.log.end.offset
        self._replica.append_voters(voters)

    def changed(self) -> None:
        """Finish the change in progress if it is committed, or if this node cannot commit it any more."""
        node, change = self._replica.node, self._change
        if change is not None and not node.is_leader:
            self._end(change, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif change is not None and change.offset is not None and (node.committed_here or 0) > change.offset:
            self._end(change, ErrorCode.NONE)
        if node.is_leader and not node.is_voter and self._voters_are_committed:
            # Its own removal is committed, so this leader must resign.
            self._replica.step(Resign())


class _VoterRequest(Protocol):
    voter_id: int
    voter_directory_id: bytes


def _voter_key(request: _VoterRequest) -> ReplicaKey:
    return ReplicaKey(BrokerId(request.voter_id), request.voter_directory_id)


def _invalid_upgrade(why: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid upgrade of {_KRAFT_VERSION} {why}")


def _ignore_outcome(_error: ErrorCode, _message: str | None) -> None:
    """The request was answered when its record was written."""


def _show(key: ReplicaKey) -> str:
    return f"{key.id} ({key.directory_id.hex()})"


def _show_all(voters: VoterSet) -> str:
    return "[" + ", ".join(_show(node.key) for node in voters.nodes.values()) + "]"


class VoterUpkeep:
    """A follower's side: reports this voter's new listeners to the leader, and asks to join if configured to do so."""

    def __init__(
        self, replica: MetadataReplica, contacts: Contacts, cluster_id: str, can_become_voter: bool
    ) -> None:
        self._replica = replica
        self._contacts = contacts
        self._cluster_id = cluster_id
        self._can_become_voter = can_become_voter
        self._timer: Timer | None = None
        self._reported_epoch = -1
        """The epoch whose leader knows this configured voter's directory, listeners and versions."""

    def changed(self) -> None:
        """Start the periodic check if this node has something to request."""
        if self._timer is None and self._replica.running and self._request() is not None:
            period_s = 3 * self._replica.config.node.fetch_timeout_ms / 1000
            self._timer = self._replica.clock.call_later(period_s, self._check)

    def _check(self) -> None:
        self._timer = None
        request = self._request()
        node = self._replica.node
        if request is None or node.leader_id is None:
            return
        endpoint = self._contacts.endpoint_of(node.leader_id)
        if endpoint is not None:
            self._contacts.send(endpoint, VOTES, request, self._answered, self._failed)
        self.changed()

    def _request(self) -> WireRequest[_VoterResponse] | None:
        replica, node, local = self._replica, self._replica.node, self._replica.local
        if node.state is not RaftState.FOLLOWER or not self._can_become_voter:
            return None
        if node.kraft_version == 0:
            return self._update() if node.is_voter and self._reported_epoch != node.epoch else None
        if node.is_voter:
            return self._update() if node.voters.needs_update(local) else None
        if not replica.config.auto_join:
            return None
        old = node.voters.nodes.get(local.key.id)
        if old is not None:
            # This is the same node before it lost its directory.
            return messages.RemoveRaftVoterRequest(
                cluster_id=self._cluster_id, voter_id=old.key.id, voter_directory_id=old.key.directory_id
            )
        cls = messages.AddRaftVoterRequest
        return cls(
            cluster_id=self._cluster_id,
            timeout_ms=replica.config.request_timeout_ms,
            voter_id=local.key.id,
            voter_directory_id=local.key.directory_id,
            listeners=named_endpoints(cls.Listener, local),
            ack_when_committed=False,
        )

    def _update(self) -> messages.UpdateRaftVoterRequest:
        cls, local = messages.UpdateRaftVoterRequest, self._replica.local
        return cls(
            cluster_id=self._cluster_id,
            current_leader_epoch=self._replica.node.epoch,
            voter_id=local.key.id,
            voter_directory_id=local.key.directory_id,
            listeners=named_endpoints(cls.Listener, local),
            kraft_version_feature=cls.KRaftVersionFeature(
                min_supported_version=local.kraft_versions.min,
                max_supported_version=local.kraft_versions.max,
            ),
        )

    def _answered(self, response: _VoterResponse) -> None:
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            _logger.info("The leader answered %s with error %d", response.NAME, response.error_code)
        elif isinstance(response, messages.UpdateRaftVoterResponse):
            # Leaders before Kafka 4.1 keep no reports of configured voters and answer UNSUPPORTED_VERSION.
            self._reported_epoch = response.current_leader.leader_epoch

    def _failed(self, why: PeerFailure) -> None:
        _logger.info("A request to change the voters did not reach the leader: %s", why.value)
