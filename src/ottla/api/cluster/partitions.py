"""A partition's state as clients of a listener see it: leader, replicas, and which of them are offline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla.errors import ErrorCode
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration

_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number are no directories but marks: migrating, unassigned, lost."""
_LOST: Final = 2


class ListenerView:
    """The brokers of one image that clients of one listener can reach. Made once per request."""

    __slots__ = ("_brokers", "_gone", "_listener")

    def __init__(self, image: MetadataImage, listener_name: str, gone: Collection[int] = ()) -> None:
        """`gone` are brokers whose processes are known to be gone before the metadata tells so."""
        self._listener = listener_name
        self._brokers = image.brokers
        self._gone = gone

    def reachable(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced and self._listener in broker.listeners

    def leader(self, partition: PartitionRegistration) -> int:
        """The leader, or -1 when there is none that these clients can reach."""
        broker = self._brokers.get(partition.leader)
        if broker is None or self._listener not in broker.listeners or partition.leader in self._gone:
            # A client that is sent to a dead leader asks again after a second; without one, after 100 ms.
            return -1
        return partition.leader

    def offline(self, partition: PartitionRegistration) -> list[int]:
        return [
            replica
            for replica in partition.replicas
            if not self.reachable(replica) or _in_offline_directory(self._brokers[replica], partition)
        ]

    def missing_leader_error(self, partition: PartitionRegistration, version: int) -> ErrorCode:
        """Why a partition has no leader for these clients; before version 6 there was one code for all of it."""
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
