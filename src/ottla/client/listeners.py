"""The interface for programs that react to rebalances."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ottla.client.structs import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Reacts to rebalances. `poll` calls it, in the thread that polls.

    >>> class Printer(ConsumerRebalanceListener):
    ...     def on_partitions_revoked(self, revoked):
    ...         print("revoked", sorted(revoked))
    ...
    ...     def on_partitions_assigned(self, assigned):
    ...         print("assigned", sorted(assigned))
    >>> from ottla import KafkaConsumer
    >>> with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
    ...     consumer.subscribe(["orders"], listener=Printer())
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Another member gets these partitions; their offsets can still be committed.

        >>> class CommitFirst(ConsumerRebalanceListener):
        ...     def on_partitions_revoked(self, revoked):
        ...         consumer.commit()
        ...
        ...     def on_partitions_assigned(self, assigned): ...
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """This member gets these partitions. A `seek` here decides where reading starts.

        >>> class FromTheStart(ConsumerRebalanceListener):
        ...     def on_partitions_revoked(self, revoked): ...
        ...
        ...     def on_partitions_assigned(self, assigned):
        ...         consumer.seek_to_beginning(*assigned)
        """

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Another member already has these partitions: it is too late to commit.

        >>> class Quiet(ConsumerRebalanceListener):
        ...     def on_partitions_revoked(self, revoked):
        ...         print("revoked", sorted(revoked))
        ...
        ...     def on_partitions_assigned(self, assigned): ...
        >>> Quiet().on_partitions_lost(set())
        revoked []
        """
        self.on_partitions_revoked(lost)
