"""Records that consumer, share and streams groups have in common: target assignments, epochs and tombstones.

The groups differ in the message classes of these records, and in the further records that each of them has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ottla.coordinator.records import CoordinatorRecord
from ottla.wire.classes import WireMessage

NewKey = Callable[..., WireMessage]
"""A key class: called with `group_id`, or with `group_id` and `member_id`."""


@dataclass(frozen=True, slots=True)
class ModernRecords:
    """The records of one type of group, by the message classes of their keys and values."""

    current_assignment_key: NewKey
    target_assignment_key: NewKey
    member_key: NewKey
    target_epoch_key: NewKey
    target_epoch_value: Callable[..., WireMessage]

    def target_epoch(self, group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
        """The epoch of the target assignment, and when it was computed."""
        return CoordinatorRecord(
            self.target_epoch_key(group_id=group_id),
            self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=computed_ms),
        )

    def member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """All records of a member, in the order in which replay needs them: assignments before the member."""
        return [
            CoordinatorRecord(key(group_id=group_id, member_id=member_id), None)
            for key in (self.current_assignment_key, self.target_assignment_key, self.member_key)
        ]

    def members_tombstones(self, group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
        """All records of all members and the target's epoch: the first part of a group's tombstones."""
        members = list(member_ids)

        def of_each(key: NewKey) -> list[CoordinatorRecord]:
            return [CoordinatorRecord(key(group_id=group_id, member_id=each), None) for each in members]

        return [
            *of_each(self.current_assignment_key),
            *of_each(self.target_assignment_key),
            CoordinatorRecord(self.target_epoch_key(group_id=group_id), None),
            *of_each(self.member_key),
        ]


def group_tombstones(group_id: str, keys: Iterable[NewKey]) -> list[CoordinatorRecord]:
    """Tombstones of records that a group has once."""
    return [CoordinatorRecord(key(group_id=group_id), None) for key in keys]


def target_assignment(
    key: WireMessage,
    new_value: Callable[..., WireMessage],
    new_topic: Callable[..., object],
    partitions: Mapping[bytes, Iterable[int]],
) -> CoordinatorRecord:
    """The target assignment of a member of a consumer or share group: partitions by topic id."""
    topics = [
        new_topic(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()
    ]
    return CoordinatorRecord(key, new_value(topic_partitions=topics))
