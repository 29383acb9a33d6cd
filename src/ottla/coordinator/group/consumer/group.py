"""A consumer group: its members, their subscriptions, targets and assignments.

Only replay changes a group. Its state follows from the rest:

    Empty        no members
    Assigning    the group's epoch is ahead of the target's
    Reconciling  a member has not reached the target
    Stable       all members have reached it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.member import (
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from ottla.coordinator.group.consumer.subscriptions import Subscriptions
from ottla.coordinator.group.group import CommitPartitionValidator, ExpiryBase, GroupType
from ottla.coordinator.group.modern_group import ModernGroup
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.timers import Timers
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId

PROTOCOL_TYPE: Final = "consumer"
_COMMITS_WITH_EPOCHS_FROM: Final = 9
"""The first version of OffsetCommit with member epochs."""

_NO_PARTITIONS: Final[Partitions] = {}
_Key = TypeVar("_Key")


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """One group of the consumer protocol (KIP-848), perhaps with classic members."""

    __slots__ = (
        "_holders",
        "_stable_at",
        "assignors",
        "classic_member_count",
        "classic_protocols",
        "has_partition_metadata",
        "static_members",
        "subscriptions",
        "target",
    )

    type = GroupType.CONSUMER

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.subscriptions = Subscriptions()
        self.assignors: dict[str, int] = {}
        """How many members prefer an assignor."""
        self.target: dict[str, Partitions] = {}
        self.classic_member_count = 0
        self.classic_protocols: dict[str, int] = {}
        """How many classic members support a protocol."""
        self.has_partition_metadata = False
        self._holders: dict[bytes, dict[int, int]] = {}
        """How many members have a partition: one, or two while a compacted log is replayed."""
        self._stable_at: dict[int, int] = {}

    # -- Group

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if self.is_reconciled else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_reconciled(self) -> bool:
        """Whether every member has its target assignment."""
        return self._stable_at.get(self.assignment_epoch, 0) == len(self.members)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        return self.subscriptions.includes(topic)

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        is_transactional: bool,
    ) -> CommitPartitionValidator | None:
        """Members commit in their epoch, or in an older one for partitions that they have had since then."""
        if epoch < 0 and not self.members:
            return None
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if (
            not is_transactional
            and not member.uses_classic_protocol
            and api_version < _COMMITS_WITH_EPOCHS_FROM
        ):
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of the consumer protocol need OffsetCommit {_COMMITS_WITH_EPOCHS_FROM} or later",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise _stale(member, f"epoch {epoch} is newer than the member's, {member.epoch}")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.assignment_epoch(topic_id, partition)
            if since is None:
                raise _stale(member, f"{topic}-{partition} is not assigned to the member")
            if epoch < since:
                raise _stale(
                    member, f"epoch {epoch} is older than the assignment of {topic}-{partition}, {since}"
                )

        return check

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if not member_id and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(member, f"epoch {epoch} is not the member's, {member.epoch}")

    def validate_offset_delete(self) -> None:
        """Always allowed; topics with subscribers are refused one by one."""

    def expiry_base(self) -> ExpiryBase | None:
        return lambda offset: offset.commit_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, self.members, self.subscriptions.resolved)

    def cancel_timers(self, timers: Timers) -> None:
        for member_id in self.members:
            cancel_member_timers(timers, self.group_id, member_id)

    # -- members

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """The target of a member; one that replaces a static member has that one's target."""
        if member.instance_id is None:
            return self.target.get(member.member_id, _NO_PARTITIONS)
        member_id = self.static_members.get(member.instance_id)
        return _NO_PARTITIONS if member_id is None else self.target.get(member_id, _NO_PARTITIONS)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member has the partition, or has yet to revoke it."""
        return partition in self._holders.get(topic_id, ())

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members prefer, if `new` replaces `old`."""
        counts = self.assignors.copy()
        _count_assignor(counts, old, new)
        return max(counts, key=counts.__getitem__, default=None)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether another member still has a part of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            number not in member.assigned.get(topic_id, {}) and self.is_owned(topic_id, number)
            for topic_id, numbers in self.target.get(member.member_id, _NO_PARTITIONS).items()
            for number in numbers
        )

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols has one in common with the others."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        return any(self.classic_protocols.get(name, 0) == self.classic_member_count for name in names)

    # -- replay

    def put_member(self, member: ConsumerGroupMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._account(old, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._account(old, None)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def _account(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        self.subscriptions.replace(old, new)
        _count_assignor(self.assignors, old, new)
        for member, change in ((old, -1), (new, 1)):
            if member is None:
                continue
            if member.state is MemberState.STABLE:
                self._stable_at[member.epoch] = self._stable_at.get(member.epoch, 0) + change
                if not self._stable_at[member.epoch]:
                    del self._stable_at[member.epoch]
            if member.classic is not None:
                self.classic_member_count += change
                for protocol in member.classic.protocols:
                    _add(self.classic_protocols, protocol.name, change)
            for owned in (member.assigned, member.pending_revocation):
                self._count_holders(owned, change)

    def _count_holders(self, owned: OwnedPartitions, change: int) -> None:
        for topic_id, numbers in owned.items():
            holders = self._holders.setdefault(topic_id, {})
            for number in numbers:
                _add(holders, number, change)
            if not holders:
                del self._holders[topic_id]


def cancel_member_timers(timers: Timers, group_id: str, member_id: str) -> None:
    for kind in ("session", "rebalance", "join", "sync"):
        timers.cancel((f"consumer-{kind}", group_id, member_id))


def _stale(member: ConsumerGroupMember, reason: str) -> ApiException:
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return ApiException(code, f"Member {member.member_id}: {reason}")


def _count_assignor(
    counts: dict[str, int], old: ConsumerGroupMember | None, new: ConsumerGroupMember | None
) -> None:
    if old is not None and old.server_assignor is not None:
        _add(counts, old.server_assignor, -1)
    if new is not None and new.server_assignor is not None:
        _add(counts, new.server_assignor, 1)


def _add(counts: dict[_Key, int], key: _Key, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if counts[key] <= 0:
        del counts[key]
