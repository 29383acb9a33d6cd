"""The offsets that groups of a shard committed: plain, pending in transactions, expiring."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.offset import CommittedOffset


class Offsets:
    """Committed offsets by group, topic and partition, whatever the type of the group."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset; pending transactional ones are not seen here."""

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, offset) of everything the group committed."""
        return iter(())

    def has_offsets(self, group_id: str) -> bool:
        return False

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds an offset of the partition."""
        return False
