"""The replicas this broker hosts: which partitions there are, following the metadata.

Partitions appear and vanish here at once; their logs are made and removed in slices between other work, or when
first needed. What a partition does is `ottla.replica.partition`; the logs are `ottla.log`'s.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock
from ottla.config.topic import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.types import TopicPartition
from ottla.metadata.image import EMPTY_IMAGE, ConfigResourceType
from ottla.replica.offload import Offload
from ottla.replica.partition import Partition
from ottla.replica.waiting import Waiting
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.manager import LogManager
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage

_logger = logging.getLogger(__name__)

SLICE_S: Final = 0.003
"""How long making and removing logs may hold the loop at a time."""

_Topic = dict[int, Partition]


class ReplicaManager:
    """Hosts partitions. `publish` follows the metadata; the lookups serve the API handlers."""

    __slots__ = (
        "_clock",
        "_config",
        "_default_topic_config",
        "_doomed",
        "_hosted",
        "_node_id",
        "_scheduled",
        "_stopped",
        "_work",
        "image",
        "log_manager",
        "offload",
        "waiting",
    )

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        executor: Executor,
        node_id: int,
        config: BrokerConfig,
        *,
        call_soon_threadsafe: Callable[..., object] | None = None,
    ) -> None:
        self.log_manager = log_manager
        self.offload = Offload(executor, call_soon_threadsafe)
        self.waiting = Waiting(clock)
        self.image: MetadataImage = EMPTY_IMAGE
        self._clock = clock
        self._node_id = node_id
        self._config = config
        self._default_topic_config: TopicConfig | None = None
        self._hosted: dict[str | bytes, _Topic] = {}
        """Partitions by index, of each topic by its name and again by its id."""
        self._doomed: dict[TopicPartition, bytes] = {}
        """Logs still to be removed, with the id of the topic that they belonged to."""
        self._work: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._stopped = False

    # -- lookups

    def find(self, key: tuple[str | bytes, int]) -> Partition:
        """The hosted partition by topic name or topic id; raises what a client is to be told."""
        topic, index = key
        partitions = self._hosted.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self._not_found(topic, index)

    def hosts(self, tp: TopicPartition) -> bool:
        """Whether there is a replica of the partition on this broker."""
        return tp.partition in self._hosted.get(tp.topic, ())

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; raises UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if it is hosted elsewhere."""
        return self.find((topic, index))

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition:
        """The same by topic id; raises UNKNOWN_TOPIC_ID."""
        return self.find((topic_id, index))

    def partitions(self) -> Iterator[Partition]:
        """All hosted partitions."""
        for topic, partitions in self._hosted.items():
            if isinstance(topic, str):
                yield from partitions.values()

    def _not_found(self, topic: str | bytes, index: int) -> KafkaError:
        topics = self.image.topics
        image = topics.by_name.get(topic) if isinstance(topic, str) else topics.by_id.get(topic)
        if image is None:
            if isinstance(topic, bytes):
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id")
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}")
        if index not in image.partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {image.name} has {len(image.partitions)} partitions, and none with the number {index}",
            )
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{image.name}-{index} is not on broker {self._node_id}"
        )

    # -- following the metadata

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata publisher: create, delete and change what the image says, logs in slices of a few ms."""
        self.image = image
        for topic in delta.deleted_topics.values():
            self._drop_topic(topic)
        for change in delta.changed_topics.values():
            for index, registration in change.partition_changes.items():
                self._reconcile(change.name, change.id, index, registration)
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC and name in self._hosted:
                self._later(partial(self._update_topic_config, name))

    def update_broker_config(self, config: BrokerConfig) -> None:
        """The broker's own configs changed: the defaults of all topics follow."""
        self._config = config
        self._default_topic_config = None
        for topic in [topic for topic in self._hosted if isinstance(topic, str)]:
            self._later(partial(self._update_topic_config, topic))

    def topic_config(self, topic: str) -> TopicConfig:
        """A topic's configuration in force. Topics without configs of their own share one object."""
        overrides = self.image.configs.of(ConfigResourceType.TOPIC, topic)
        if overrides:
            return TopicConfig.in_force(self._config, overrides)
        if self._default_topic_config is None:
            self._default_topic_config = TopicConfig.build(self._config)
        return self._default_topic_config

    def remove_strays(self) -> None:
        """Remove logs that the metadata knows nothing of. Only for an image that has caught up with the log."""
        by_id = self.image.topics.by_id

        def keep(tp: TopicPartition, topic_id: bytes) -> bool:
            topic = by_id.get(topic_id)
            registration = None if topic is None else topic.partitions.get(tp.partition)
            return registration is not None and self._node_id in registration.replicas

        for tp in self.log_manager.delete_strays(keep):
            _logger.warning("Set aside the log of %s: the metadata knows no such replica here", tp)

    def _reconcile(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration
    ) -> None:
        partitions = self._hosted.get(topic_id)
        partition = None if partitions is None else partitions.get(index)
        if self._node_id not in registration.replicas:
            if partition is not None and partitions is not None:
                del partitions[index]
                self._remove(partition)
            return
        if partitions is None:
            partitions = self._hosted[topic] = self._hosted[topic_id] = {}
        if partition is None:
            partition = Partition(
                topic, index, topic_id, node_id=self._node_id, open_log=self._open_log, offload=self.offload
            )
            partition.update(registration)
            partitions[index] = partition
            self._later(partial(self._ensure_log, partition))
        else:
            partition.update(registration)

    def _drop_topic(self, topic: TopicImage) -> None:
        partitions = self._hosted.pop(topic.id, None)
        if partitions is None:
            return
        if self._hosted.get(topic.name) is partitions:
            del self._hosted[topic.name]
        for partition in partitions.values():
            self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        tp = partition.topic_partition
        partition.remove()
        self._doomed[tp] = partition.topic_id
        self._later(partial(self._delete_log, tp))

    def _update_topic_config(self, topic: str) -> None:
        partitions = self._hosted.get(topic)
        if not partitions:
            return
        config = self.topic_config(topic)
        logs, future_logs = self.log_manager.logs, self.log_manager.future_logs
        for index in partitions:
            for log in (
                logs.get(TopicPartition(topic, index)),
                future_logs.get(TopicPartition(topic, index)),
            ):
                if log is not None:
                    log.update_config(config)

    # -- logs

    def _ensure_log(self, partition: Partition) -> None:
        if partition.gone:
            return
        try:
            partition.local_log()
        except KafkaError as error:
            # Its clients get the same error when they come; a failed directory must not stop the others.
            _logger.error("Cannot open the log of %s: %s", partition.topic_partition, error.message)

    def _open_log(self, partition: Partition) -> PartitionLog:
        tp = partition.topic_partition
        if tp in self._doomed:
            self._delete_log(tp)
        log = self.log_manager.get(tp)
        if log is None:
            return self.log_manager.get_or_create(
                tp,
                partition.topic_id,
                self.topic_config(partition.topic),
                directory_id=self._assigned_directory(partition),
            )
        if log.topic_id == ZERO_UUID:
            log.assign_topic_id(partition.topic_id)
        elif log.topic_id != partition.topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"The log of {tp} belongs to another topic of the same name"
            )
        return log

    def _assigned_directory(self, partition: Partition) -> bytes | None:
        """The log directory that the controller has put the replica into, if it is one of ours."""
        registration = self.image.topics.partition(partition.topic_id, partition.index)
        if registration is None or self._node_id not in registration.replicas:
            return None
        assigned = registration.directory(self._node_id)
        return assigned if any(assigned == each.directory_id for each in self.log_manager.dirs) else None

    def directory_failed(self) -> None:
        """A log directory failed: its partitions go offline, and who waits for them gets the error."""
        for partition in self.partitions():
            if partition.log is not None and partition.log.failed is not None and not partition.offline:
                partition.go_offline()

    def _delete_log(self, tp: TopicPartition) -> None:
        topic_id = self._doomed.pop(tp, None)
        if topic_id is None:
            return
        log = self.log_manager.get(tp)
        if log is not None and log.topic_id == topic_id:
            self.log_manager.delete(tp)

    # -- work in slices

    def after_new_logs(self, callback: Callable[[], None]) -> None:
        """Call back when the logs that are to be made and removed now have been."""
        self._later(callback)

    def _later(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._run_slice)

    def _run_slice(self) -> None:
        end = self._clock.monotonic() + SLICE_S
        work = self._work
        try:
            while work and not self._stopped:
                work.popleft()()
                if self._clock.monotonic() >= end:
                    break
        finally:
            self._scheduled = bool(work) and not self._stopped
            if self._scheduled:
                self._clock.call_later(0.0, self._run_slice)

    def shutdown(self) -> None:
        """Answer who waits with what there is, and stop making logs. The logs are closed by their manager."""
        self._stopped = True
        self._work.clear()
        self.waiting.close()
        for parked in {parked for partition in self.partitions() for parked in partition.waiters}:
            parked.expire()
