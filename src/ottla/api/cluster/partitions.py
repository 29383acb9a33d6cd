"""A partition's state as clients of a listener see it: leader, replicas, and which of them are offline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionRegistration

_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number have special meanings: migrating, unassigned, lost."""
_LOST: Final = 2


class ListenerView:
    """The brokers of one image that clients of one listener can reach. Built once per request."""

    __slots__ = ("_brokers", "_gone", "_listener")

    def __init__(self, image: MetadataImage, listener_name: str, gone: Collection[int] = ()) -> None:
        """`gone` are brokers whose processes are known to have died before the metadata shows it."""
        self._listener = listener_name
        self._brokers = image.brokers
        self._gone = gone

    def reachable(self, broker_id: BrokerId) -> bool:
        """Whether the broker is alive and has the listener."""
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced and self._listener in broker.listeners

    def leader(self, partition: PartitionRegistration) -> BrokerId:
        """The leader, or -1 if there is none that these clients can reach."""
        broker = self._brokers.get(partition.leader)
        if broker is None or self._listener not in broker.listeners or partition.leader in self._gone:
            # A client that is sent to a dead leader retries after a second; without a leader, after 100 ms.
            return NO_LEADER
        return partition.leader

    def offline(self, partition: PartitionRegistration) -> list[BrokerId]:
        """The replicas that these clients cannot reach, or whose directory is offline."""
        return [
            replica
            for replica in partition.replicas
            if not self.reachable(replica) or _in_offline_directory(self._brokers[replica], partition)
        ]

    def missing_leader_error(self, partition: PartitionRegistration, version: int) -> ErrorCode:
        """Why a partition has no leader for these clients. Before version 6 there was one code for all reasons."""
        if partition.leader in self._brokers and partition.leader not in self._gone and version >= 6:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE


def _in_offline_directory(broker: BrokerRegistration, partition: PartitionRegistration) -> bool:
    if not broker.directories:
        return False
    directory = partition.directory(broker.id)
    number = int.from_bytes(directory, "big")
    if number < _RESERVED_DIRECTORIES:
        return number == _LOST
    return directory not in broker.directories
