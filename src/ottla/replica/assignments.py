"""Telling the controller in which log directory each replica lies (AssignReplicasToDirs): batched, until it knows.

The controller needs it to know whose replicas are lost with a directory. Where a replica goes is the log manager's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.clock import Clock
from ottla.errors import ErrorCode
from ottla.replica.alter_partition import Send
from ottla.wire.messages import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from ottla.log.manager import LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.replica.partition import Partition

_logger = logging.getLogger(__name__)

Message = Any
Done = Callable[[], None]

_BATCH_PAUSE_S: Final = 0.05
"""A topic's many partitions are told of together."""
_RETRY_S: Final = 0.5
_MAX_PER_REQUEST: Final = 2250
"""As many as Kafka puts into one request."""


class _Wish:
    __slots__ = ("directory_id", "done", "index", "topic_id")

    def __init__(self, topic_id: bytes, index: int, directory_id: bytes, done: Done | None) -> None:
        self.topic_id = topic_id
        self.index = index
        self.directory_id = directory_id
        self.done = done


class DirectoryAssignments:
    """What the controller is still to hear."""

    __slots__ = (
        "_broker_epoch",
        "_clock",
        "_image",
        "_in_flight",
        "_log_manager",
        "_node_id",
        "_scheduled",
        "_send",
        "_wishes",
    )

    def __init__(
        self,
        clock: Clock,
        node_id: int,
        broker_epoch: Callable[[], int],
        log_manager: LogManager,
        image: Callable[[], MetadataImage],
        send: Send,
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._log_manager = log_manager
        self._image = image
        self._send = send
        self._wishes: dict[tuple[bytes, int], _Wish] = {}
        self._in_flight: list[_Wish] = []
        self._scheduled = False

    def check(self, partition: Partition) -> None:
        """Tell the controller where the partition's log lies, if it believes otherwise."""
        directory = self._log_manager.dir_of(partition.topic_partition)
        registration = self._image().topics.partition(partition.topic_id, partition.index)
        if directory is None or registration is None or self._node_id not in registration.replicas:
            return
        if registration.directory(self._node_id) != directory.directory_id:
            self.assign(partition.topic_id, partition.index, directory.directory_id)

    def settle(self, partition: Partition) -> None:
        """The partition stays where it is, whatever the controller was told before."""
        self._wishes.pop((partition.topic_id, partition.index), None)
        directory = self._log_manager.dir_of(partition.topic_partition)
        if directory is not None and self._in_flight:
            self.assign(partition.topic_id, partition.index, directory.directory_id)
        else:
            self.check(partition)

    def assign(self, topic_id: bytes, index: int, directory_id: bytes, done: Done | None = None) -> None:
        """Tell it; `done` once it knows. A later call for the same replica takes the place of an earlier one."""
        self._wishes[topic_id, index] = _Wish(topic_id, index, directory_id, done)
        self._schedule(_BATCH_PAUSE_S)

    def _schedule(self, delay_s: float) -> None:
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._clock.call_later(delay_s, self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        if not self._wishes:
            return
        if self._broker_epoch() < 0:
            self._schedule(_RETRY_S)
            return
        self._in_flight = list(self._wishes.values())[:_MAX_PER_REQUEST]
        for wish in self._in_flight:
            del self._wishes[wish.topic_id, wish.index]
        self._send(self._request(), self._answered, self._failed)

    def _request(self) -> Message:
        cls = AssignReplicasToDirsRequest
        directories: dict[bytes, dict[bytes, list[Any]]] = {}
        for wish in self._in_flight:
            topics = directories.setdefault(wish.directory_id, {})
            topics.setdefault(wish.topic_id, []).append(cls.PartitionData(partition_index=wish.index))
        return cls(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                cls.DirectoryData(
                    id=directory_id,
                    topics=[
                        cls.TopicData(topic_id=topic_id, partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    def _failed(self, why: Any) -> None:
        self._again(self._in_flight, f"the controller could not be reached: {why}")

    def _again(self, wishes: list[_Wish], why: str) -> None:
        _logger.info("Log directories of %d replicas are told again: %s", len(wishes), why)
        self._in_flight = []
        for wish in wishes:
            self._wishes.setdefault((wish.topic_id, wish.index), wish)
        self._schedule(_RETRY_S)

    def _answered(self, response: Message) -> None:
        if response.error_code:
            self._again(self._in_flight, f"the controller answered {ErrorCode.of(response.error_code).name}")
            return
        codes = {
            (topic.topic_id, result.partition_index): result.error_code
            for directory in response.directories
            for topic in directory.topics
            for result in topic.partitions
        }
        told, self._in_flight = self._in_flight, []
        failed = []
        for wish in told:
            code = codes.get((wish.topic_id, wish.index), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                continue  # deleted meanwhile
            if code:
                failed.append(wish)
            elif wish.done is not None:
                wish.done()
        if failed:
            self._again(failed, "some were refused")
        elif self._wishes:
            self._schedule(0.0)
