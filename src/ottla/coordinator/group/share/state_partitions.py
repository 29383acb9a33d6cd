"""The partitions of a share group with share state: initializing, initialized or being deleted.

Only initialized partitions are assigned to members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.metadata.image import MetadataImage

UNKNOWN_NAME = "<UNKNOWN>"


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of a topic, with its name."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[bytes, TopicPartitions]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """One group's partitions, by topic id."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    """Names of the topics whose state is being deleted."""

    def begun(self, topics: Topics) -> StatePartitions:
        """State of these partitions is requested; that ends a deletion of it."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return replace(self, initializing=joined(self.initializing, topics), deleting=deleting)

    def done(self, topics: Topics) -> StatePartitions:
        """State of these partitions is initialized."""
        return replace(
            self,
            initializing=without(self.initializing, topics),
            initialized=joined(self.initialized, topics),
        )

    def failed(self, topics: Topics) -> StatePartitions:
        """State of these partitions could not be initialized."""
        return replace(self, initializing=without(self.initializing, topics))

    def deletion_begun(self, topic_ids: Iterable[bytes], image: MetadataImage) -> StatePartitions:
        gone = set(topic_ids)
        left = self.without_topics(gone)
        return replace(
            left, deleting={**left.deleting, **{topic_id: name_of(topic_id, image) for topic_id in gone}}
        )

    def deletion_done(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        gone = set(topic_ids)
        return replace(
            self,
            deleting={topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The topics were deleted."""
        gone = set(topic_ids)
        return StatePartitions(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in gone},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in gone},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )

    @property
    def all_topics(self) -> set[bytes]:
        return {*self.initializing, *self.initialized, *self.deleting}


def joined(one: Topics, other: Topics) -> Topics:
    result = dict(one)
    for topic_id, topic in other.items():
        known = result.get(topic_id)
        partitions = topic.partitions if known is None else known.partitions | topic.partitions
        result[topic_id] = TopicPartitions(topic.name, partitions)
    return result


def without(one: Topics, other: Topics) -> Topics:
    result = {}
    for topic_id, topic in one.items():
        gone = other.get(topic_id)
        left = topic.partitions if gone is None else topic.partitions - gone.partitions
        if left:
            result[topic_id] = TopicPartitions(topic.name, left)
    return result


def name_of(topic_id: bytes, image: MetadataImage) -> str:
    topic = image.topics.by_id.get(topic_id)
    return UNKNOWN_NAME if topic is None else topic.name
