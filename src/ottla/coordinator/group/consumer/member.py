"""A member of a consumer group: what it told of itself, and where it stands on the way to its target assignment.

Members never change: a heartbeat or a record makes the next one. `reconcile.py` moves the states:

    STABLE ──newer target, something to give up──▶ UNREVOKED_PARTITIONS ──given up──▶ (as from STABLE)
    STABLE ──newer target, someone still has a part of it──▶ UNRELEASED_PARTITIONS ──released──▶ STABLE
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that goes but will come back: its place is kept until the session times out."""

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned."""


class MemberState(IntEnum):
    """Kafka's numbers, as they stand in the records."""

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
    """What a member that came through JoinGroup has besides."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One member at one moment."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
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

    def with_epoch(self, epoch: int, **changes: Any) -> ConsumerGroupMember:
        """The member in an epoch, the present one becoming the previous."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got a partition that is still its own."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def epochs_of(partitions: Mapping[bytes, Iterable[int]], epoch: int) -> OwnedPartitions:
    """All of the partitions as owned since one epoch."""
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}
