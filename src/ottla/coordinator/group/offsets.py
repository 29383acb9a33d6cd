"""The offsets that the groups of a shard have committed, and those pending in open transactions.

Only `replay*` changes them. `offset_metadata_manager.py` decides who may commit, and responds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.coordinator.group.offset import CommittedOffset, from_record, offset_tombstone
from ottla.coordinator.records import CoordinatorRecord

if TYPE_CHECKING:
    from ottla.wire.messages import OffsetCommitKey, OffsetCommitValue

_ByPartition = dict[int, CommittedOffset]
_ByTopic = dict[str, _ByPartition]
Place = tuple[str, str, int]
"""(group id, topic, partition)."""

_NOTHING: Mapping[str, Mapping[int, CommittedOffset]] = MappingProxyType({})


class Offsets:
    """Committed offsets by group, topic and partition, for groups of all types.

    `ensure_group(group id, ms)` is called for each commit: the first commit creates a simple consumer's group.
    """

    __slots__ = ("_committed", "_ensure_group", "_open", "_pending")

    def __init__(self, ensure_group: Callable[[str, int], None]) -> None:
        self._ensure_group = ensure_group
        self._committed: dict[str, _ByTopic] = {}
        self._pending: dict[int, dict[Place, CommittedOffset]] = {}
        """By producer id: the offsets that its open transaction will commit."""
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        """By group, then (topic, partition): the producers whose transactions hold an offset there."""

    # -- looking up

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset, without those of open transactions."""
        topics = self._committed.get(group_id)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def by_topic(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """All committed offsets of the group, by topic and partition. Do not change them."""
        return self._committed.get(group_id, _NOTHING)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(topic, partition, offset) of all committed offsets of the group."""
        for topic, partitions in self._committed.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def count(self) -> int:
        """The number of committed offsets."""
        return sum(len(partitions) for topics in self._committed.values() for partitions in topics.values())

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._committed

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds an offset of the partition."""
        return (topic, partition) in self._open.get(group_id, ())

    def has_pending_of(self, group_id: str) -> bool:
        """Whether an open transaction holds any offset of the group."""
        return group_id in self._open

    # -- records that delete

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """The records that delete all offsets of the group, including pending ones."""
        places = dict.fromkeys((topic, partition) for topic, partition, _ in self.of_group(group_id))
        places.update(dict.fromkeys(self._open.get(group_id, ())))
        return [offset_tombstone(group_id, topic, partition) for topic, partition in places]

    def tombstones_of_topics(self, deleted: Mapping[str, bytes]) -> list[CoordinatorRecord]:
        """The records that delete the offsets of these topics (ids by name) in all groups."""
        places: dict[Place, None] = {}
        for group_id, topics in self._committed.items():
            for topic in deleted.keys() & topics.keys():
                for partition, committed in topics[topic].items():
                    if _is_of(committed, deleted[topic]):
                        places[group_id, topic, partition] = None
        for pending in self._pending.values():
            for place, committed in pending.items():
                if place[1] in deleted and _is_of(committed, deleted[place[1]]):
                    places[place] = None
        return [offset_tombstone(*place) for place in places]

    # -- replay

    def replay(
        self, record_offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None
    ) -> None:
        """Apply an OffsetCommit record."""
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self._forget(group_id, topic, partition)
            return
        self._ensure_group(group_id, value.commit_timestamp)
        committed = from_record(value, record_offset)
        if producer_id < 0:
            self.put(group_id, topic, partition, committed)
            return
        self._pending.setdefault(producer_id, {})[group_id, topic, partition] = committed
        self._open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def replay_end_transaction_marker(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction ended: commit its pending offsets, or drop them."""
        for (group_id, topic, partition), committed in self._pending.pop(producer_id, {}).items():
            self._close(group_id, topic, partition, producer_id)
            if not commit:
                continue
            known = self.get(group_id, topic, partition)
            # Compaction must not change which commit is the newer one, the transaction's or a plain one.
            if known is None or committed.record_offset > known.record_offset:
                self.put(group_id, topic, partition, committed)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Take over a committed offset of a group that exists."""
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._committed.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
            if not topics:
                self._committed.pop(group_id, None)
        for producer_id in list(self._open.get(group_id, {}).get((topic, partition), ())):
            self._pending[producer_id].pop((group_id, topic, partition), None)
            self._close(group_id, topic, partition, producer_id)

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        places = self._open[group_id]
        producers = places[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del places[topic, partition]
            if not places:
                del self._open[group_id]


def _is_of(committed: CommittedOffset, topic_id: bytes) -> bool:
    """Whether an offset belongs to the topic with this id; an offset without an id belongs to any topic of its name."""
    return not any(committed.topic_id) or committed.topic_id == topic_id
