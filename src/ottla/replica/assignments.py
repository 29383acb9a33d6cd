"""Reports to the controller which log directory holds each replica (AssignReplicasToDirs): batched, until answered.

The controller needs it to know which replicas are lost with a directory. The log manager places the replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.replica.alter_partition import Send
from ottla.wire.messages import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from ottla.log.manager import LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.replica.partition import Partition
    from ottla.wire.messages import AssignReplicasToDirsResponse

_logger = logging.getLogger(__name__)

Done = Callable[[], None]

_BATCH_PAUSE_S: Final = 0.05
"""The partitions of a topic are reported together."""
_RETRY_S: Final = 0.5
_MAX_PER_REQUEST: Final = 2250
"""As many as Kafka puts into one request."""


class _Assignment:
    __slots__ = ("directory_id", "done", "index", "topic_id")

    def __init__(self, topic_id: bytes, index: int, directory_id: bytes, done: Done | None) -> None:
        self.topic_id = topic_id
        self.index = index
        self.directory_id = directory_id
        self.done = done


class DirectoryAssignments:
    """The assignments that the controller does not know yet."""

    __slots__ = (
        "_broker_epoch",
        "_clock",
        "_image",
        "_in_flight",
        "_log_manager",
        "_node_id",
        "_scheduled",
        "_send",
        "_unsent",
    )

    def __init__(
        self,
        clock: Clock,
        node_id: BrokerId,
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
        self._unsent: dict[tuple[bytes, int], _Assignment] = {}
        self._in_flight: list[_Assignment] = []
        self._scheduled = False

    def check(self, partition: Partition) -> None:
        """Report where the partition's log is, if the metadata differs."""
        directory = self._log_manager.dir_of(partition.topic_partition)
        registration = self._image().topics.partition(partition.topic_id, partition.index)
        if directory is None or registration is None or self._node_id not in registration.replicas:
            return
        if registration.directory(self._node_id) != directory.directory_id:
            self.assign(partition.topic_id, partition.index, directory.directory_id)

    def settle(self, partition: Partition) -> None:
        """The partition stays where it is: replace what was reported before."""
        self._unsent.pop((partition.topic_id, partition.index), None)
        directory = self._log_manager.dir_of(partition.topic_partition)
        if directory is not None and self._in_flight:
            self.assign(partition.topic_id, partition.index, directory.directory_id)
        else:
            self.check(partition)

    def assign(self, topic_id: bytes, index: int, directory_id: bytes, done: Done | None = None) -> None:
        """Report it; `done` once the controller has it. A later call for the same replica replaces an earlier one."""
        self._unsent[topic_id, index] = _Assignment(topic_id, index, directory_id, done)
        self._schedule(_BATCH_PAUSE_S)

    def _schedule(self, delay_s: float) -> None:
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._clock.call_later(delay_s, self._send_all)

    def _send_all(self) -> None:
        self._scheduled = False
        if not self._unsent:
            return
        if self._broker_epoch() < 0:
            self._schedule(_RETRY_S)
            return
        self._in_flight = list(self._unsent.values())[:_MAX_PER_REQUEST]
        for assignment in self._in_flight:
            del self._unsent[assignment.topic_id, assignment.index]
        self._send(self._request(), self._answered, self._failed)

    def _request(self) -> AssignReplicasToDirsRequest:
        cls = AssignReplicasToDirsRequest
        directories: dict[bytes, dict[bytes, list[AssignReplicasToDirsRequest.PartitionData]]] = {}
        for assignment in self._in_flight:
            topics = directories.setdefault(assignment.directory_id, {})
            topics.setdefault(assignment.topic_id, []).append(
                cls.PartitionData(partition_index=assignment.index)
            )
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

    def _failed(self, why: object) -> None:
        self._again(self._in_flight, f"the controller could not be reached: {why}")

    def _again(self, assignments: list[_Assignment], why: str) -> None:
        _logger.info("Reporting the log directories of %d replicas again: %s", len(assignments), why)
        self._in_flight = []
        for assignment in assignments:
            self._unsent.setdefault((assignment.topic_id, assignment.index), assignment)
        self._schedule(_RETRY_S)

    def _answered(self, response: AssignReplicasToDirsResponse) -> None:
        if response.error_code:
            self._again(self._in_flight, f"the controller answered {ErrorCode.of(response.error_code).name}")
            return
        codes = {
            (topic.topic_id, result.partition_index): result.error_code
            for directory in response.directories
            for topic in directory.topics
            for result in topic.partitions
        }
        sent, self._in_flight = self._in_flight, []
        failed = []
        for assignment in sent:
            code = codes.get((assignment.topic_id, assignment.index), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                continue  # deleted meanwhile
            if code:
                failed.append(assignment)
            elif assignment.done is not None:
                assignment.done()
        if failed:
            self._again(failed, "the controller refused some")
        elif self._unsent:
            self._schedule(0.0)
