"""A classic group: its members, their generation, and their waiting requests.

`rebalance.py` decides when a rebalance starts and ends; the transition table is in `state.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic.member import ClassicMember, Protocols
from ottla.coordinator.group.classic.records import group_tombstone
from ottla.coordinator.group.classic.state import VALID_BEFORE, ClassicState
from ottla.coordinator.group.group import CommitPartitionValidator, ExpiryBase, Group, GroupType
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.promise import Promise
from ottla.wire import messages
from ottla.wire.codec import decode_prefix

if TYPE_CHECKING:
    from ottla.coordinator.timers import Timers

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_SUBSCRIPTION_VERSION: Final = 0
"""All later versions of a consumer's metadata start with the fields of this one."""

NO_TIME: Final = -1


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("classic session", group_id, member_id)


def join_key(group_id: str) -> tuple[str, str]:
    return ("classic join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("classic sync", group_id)


class ClassicGroup(Group):
    """One classic group. Without a protocol type it is a simple group: offsets of a consumer that assigns itself."""

    __slots__ = (
        "_protocol_counts",
        "_subscribed",
        "generation",
        "group_id",
        "joining_count",
        "leader_id",
        "member_added",
        "members",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_type_or_none",
        "state",
        "state_since_ms",
        "static_members",
    )

    type = GroupType.CLASSIC

    def __init__(
        self,
        group_id: GroupId,
        state_since_ms: int,
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol: str | None = None,
        leader_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_since_ms = state_since_ms
        """When it entered its state; NO_TIME if an old record does not have the time."""
        self.generation = generation
        self.protocol_type_or_none = protocol_type
        self.protocol = protocol
        self.leader_id = leader_id
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_join: set[str] = set()
        """Member ids that were given out and have not joined yet."""
        self.pending_sync: set[str] = set()
        self.joining_count = 0
        self.member_added = False
        """A member joined during the initial delay: the group may wait for more."""
        self._protocol_counts: dict[str, int] = {}
        self._subscribed: frozenset[str] | None = None

    # -- Group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.protocol_type_or_none or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type_or_none == CONSUMER_PROTOCOL_TYPE

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a static member that was replaced."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise self._unknown(member_id)
            if known != member_id:
                raise ApiException(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Instance {instance_id} is another member of {self.group_id}",
                )
        if member_id not in self.members:
            raise self._unknown(member_id)

    def _unknown(self, member_id: str) -> ApiException:
        return ApiException(
            ErrorCode.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member of group {self.group_id}"
        )

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        is_transactional: bool,
    ) -> CommitPartitionValidator | None:
        if self.state is ClassicState.DEAD:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group {self.group_id} is gone")
        if epoch < 0 and self.state is ClassicState.EMPTY:
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if epoch != self.generation:
                raise ApiException(
                    ErrorCode.ILLEGAL_GENERATION, f"Group {self.group_id} is in generation {self.generation}"
                )
        elif not is_transactional and self.state is not ClassicState.EMPTY:
            raise self._unknown(member_id)
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiException(ErrorCode.REBALANCE_IN_PROGRESS, f"Group {self.group_id} is rebalancing")
        return None

    def validate_offset_fetch(self, member_id: str, epoch: int) -> None:
        self._check_alive()

    def validate_offset_delete(self) -> None:
        self._check_alive()
        if self.state is not ClassicState.EMPTY and not self.uses_consumer_protocol:
            # The coordinator does not know what its members read.
            raise ApiException(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members")

    def validate_delete(self) -> None:
        self._check_alive()
        if self.state is not ClassicState.EMPTY:
            raise ApiException(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members")

    def _check_alive(self) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiException(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is gone")

    def is_subscribed_to_topic(self, topic: str) -> bool:
        if self._subscribed is None:
            # The coordinator does not know what its members read.
            return self.uses_consumer_protocol
        return topic in self._subscribed

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]

    def expiry_base(self) -> ExpiryBase | None:
        if self.protocol_type_or_none is None:
            return lambda committed: committed.commit_ms
        if self.state is ClassicState.EMPTY:
            since_ms = self.state_since_ms
            if since_ms == NO_TIME:
                return lambda committed: committed.commit_ms
            # An offset that is committed after the group became empty is kept as long as the others.
            return lambda committed: since_ms
        if self.uses_consumer_protocol and self._subscribed is not None and self.state is ClassicState.STABLE:
            return lambda committed: committed.commit_ms
        return None

    def cancel_timers(self, timers: Timers) -> None:
        timers.cancel(join_key(self.group_id))
        timers.cancel(sync_key(self.group_id))
        for member_id in (*self.members, *self.pending_join):
            timers.cancel(session_key(self.group_id, member_id))

    # -- members

    def add(self, member: ClassicMember) -> None:
        """Add a member, whose `joining` request waits if it has one."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type_or_none = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.joining is not None:
            self.joining_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.joining is not None:
                self.joining_count -= 1
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(self, member: ClassicMember, request: messages.JoinGroupRequest, protocols: Protocols) -> None:
        """The member joins again; `wait_for_join` sets its request."""
        self.restore(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)

    def restore(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Set a member's protocols and timeouts."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """A static member joined with a new id: fence the old id, and keep the rest."""
        member = self.members.pop(old_id)
        assert member.instance_id is not None
        join, sync = messages.JoinGroupResponse, messages.SyncGroupResponse
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(member, join(member_id=old_id, error_code=fenced, protocol_name=None))
        self.answer_sync(member, sync(error_code=fenced))
        member.member_id = new_id
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            # The old id can no longer sync: if the group waited for it, it would rebalance for nothing.
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        self.static_members[member.instance_id] = new_id
        return member

    def _count(self, protocols: Protocols, change: int) -> None:
        counts = self._protocol_counts
        for name, _ in protocols:
            counts[name] = counts.get(name, 0) + change

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: the longest timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.joining_count and not self.pending_join

    def elect_joined_leader(self) -> bool:
        """Make a member that joined the leader; False if no member joined."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is None:
            return False
        if leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all others."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type_or_none == protocol_type and any(
            self._protocol_counts.get(name, 0) == count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol, of those that all members support, with the most votes."""
        count = len(self.members)
        candidates = {name for name, supporters in self._protocol_counts.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def compute_subscribed(self) -> None:
        """Read the subscribed topics from the members' metadata, if it is that of consumers."""
        self._subscribed = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self._subscribed = frozenset()
            return
        if self.protocol is None:
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                metadata = member.metadata(self.protocol)
                (version,) = struct.unpack_from(">h", metadata)
                if version < _SUBSCRIPTION_VERSION:
                    return
                subscription, _ = decode_prefix(
                    messages.ConsumerProtocolSubscription, _SUBSCRIPTION_VERSION, metadata, 2
                )
                topics.update(subscription.topics)
        except (ApiException, struct.error, StopIteration):
            # The metadata has another form: all offsets of the group are kept.
            return
        self._subscribed = frozenset(topics)

    # -- states

    def transition_to(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in VALID_BEFORE[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_BEFORE[ClassicState.PREPARING_REBALANCE]

    def begin_generation(self, now_ms: int) -> None:
        """All members have joined or timed out: start the next generation."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.compute_subscribed()
        self.transition_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)
        self.pending_sync.clear()

    # -- responses

    def answer_join(self, member: ClassicMember, response: messages.JoinGroupResponse) -> bool:
        """Respond to the member's waiting join; False if there is none."""
        joining, member.joining = member.joining, None
        if joining is None:
            return False
        self.joining_count -= 1
        joining.resolve(response)
        return True

    def answer_sync(self, member: ClassicMember, response: messages.SyncGroupResponse) -> bool:
        """Respond to the member's waiting sync; False if there is none."""
        syncing, member.syncing = member.syncing, None
        if syncing is None:
            return False
        syncing.resolve(response)
        return True

    def wait_for_join(self, member: ClassicMember, joining: Promise[messages.JoinGroupResponse]) -> None:
        """The member's join waits from now on, in place of an earlier one that it gave up."""
        if member.joining is None:
            self.joining_count += 1
        member.joining = joining

    def joined(
        self, member_id: str, *, members: bool, skip_assignment: bool = False
    ) -> messages.JoinGroupResponse:
        """The response to a member that joined the current generation."""
        response = messages.JoinGroupResponse
        return response(
            members=self._listed() if members else [],
            member_id=member_id,
            generation_id=self.generation,
            protocol_name=self.protocol,
            protocol_type=self.protocol_type_or_none,
            leader=self.leader_id or "",
            skip_assignment=skip_assignment,
        )

    def _listed(self) -> list[messages.JoinGroupResponse.JoinGroupResponseMember]:
        listed = messages.JoinGroupResponse.JoinGroupResponseMember
        return [
            listed(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def assignments(self) -> Mapping[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}
