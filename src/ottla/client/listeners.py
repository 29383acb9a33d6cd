"""What a program implements to be told of rebalances."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ottla.client.structs import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Called from within `poll`, in the thread that calls it."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """These partitions go to somebody else; their offsets can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These partitions came. A `seek` here decides where their reading begins."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """These partitions are somebody else's already: it is too late to commit."""
        self.on_partitions_revoked(lost)
