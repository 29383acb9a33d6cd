"""A member of a consumer group: its subscription, its assignment, and its state on the way to its target.

Members are immutable: a heartbeat or a record makes a new one. `reconcile.py` changes the states:

    STABLE ──newer target, partitions to revoke──▶ UNREVOKED_PARTITIONS ──revoked──▶ (as from STABLE)
    STABLE ──newer target, others still own a part──▶ UNRELEASED_PARTITIONS ──released──▶ STABLE
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from ottla.ids import TopicName

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member leaves but will return: its assignment is kept until the session times out."""

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned."""


class MemberState(IntEnum):
    """Kafka's numbers, as the records have them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """A protocol that a classic member supports, with its embedded subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a member that joined with JoinGroup has in addition."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One member. Immutable."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[TopicName] = frozenset()
    topic_regex: str = ""
    """An RE2 expression over topic names; empty where the member has none."""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic: ClassicMember | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def with_assignment(
        self,
        epoch: int,
        assigned: OwnedPartitions,
        *,
        state: MemberState | None = None,
        pending_revocation: OwnedPartitions | None = None,
    ) -> ConsumerGroupMember:
        """The member in an epoch with another assignment; its current epoch becomes the previous one."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            state=self.state if state is None else state,
            pending_revocation=self.pending_revocation if pending_revocation is None else pending_revocation,
        )

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got a partition that it still owns."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def epochs_of(partitions: Mapping[bytes, Iterable[int]], epoch: int) -> OwnedPartitions:
    """All of the partitions as owned since one epoch."""
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}
