"""The replicas that this broker hosts: which partitions there are, following the metadata.

Partitions appear and disappear here at once. Their logs are created in a thread (`ottla.replica.log_creation`) or
when first needed, and removed in slices between other work. `ottla.replica.partition` is the partition itself;
`ottla.log` owns the logs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ottla.clock import Clock, Timer
from ottla.config.topic import TopicConfig
from ottla.counters import ReplicaCounters, TopicCounters
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.log.creation import write_epochs
from ottla.log.types import NO_EPOCH, TopicPartition
from ottla.metadata.endpoints import broker_endpoint
from ottla.metadata.image import EMPTY_IMAGE, NO_LEADER
from ottla.metadata.partitions import DIRECTORY_UNASSIGNED
from ottla.peers import Endpoint, Peers
from ottla.replica.alter_partition import AlterPartitionSender, Send
from ottla.replica.assignments import DirectoryAssignments
from ottla.replica.delayed_requests import DelayedRequests
from ottla.replica.log_creation import SLICE_S, Create, LogCreator
from ottla.replica.partition import Partition, PartitionHost
from ottla.replica.replica_fetcher_manager import ReplicaFetcherManager
from ottla.replica.selector import RACK_AWARE, nearer_replica
from ottla.replica.throttle import ReplicationThrottle
from ottla.wire.enums import ConfigResourceType
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.log_dir import LogDir
    from ottla.log.manager import LogManager
    from ottla.log.partition_log import PartitionLog
    from ottla.log.write_gate import WriteGate
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
    from ottla.replica.delayed_requests import Waiters
    from ottla.replica.fetch_partition import FetchPartition
    from ottla.replica.isr import Proposal
    from ottla.replica.offload import Offloader

_logger = logging.getLogger(__name__)

_Topic = dict[int, Partition]
_NONE: _Topic = {}


class ClusterLink(msgspec.Struct, frozen=True):
    """How this broker's replicas reach the other nodes."""

    peers: Peers
    to_controller: Send
    broker_epoch: Callable[[], int]
    """The epoch of this broker's registration; -1 while it has none."""
    gate: WriteGate
    """Followers fetch no more than can be written without blocking."""


class ReplicaManager:
    """Hosts partitions. `publish` follows the metadata; the lookups serve the API handlers."""

    __slots__ = (
        "_alter_partition",
        "_assignments",
        "_built_config",
        "_config",
        "_default_topic_config",
        "_fetchers",
        "_follower_throttle",
        "_host",
        "_hosted",
        "_lag_check",
        "_log_creator",
        "_node_id",
        "_pending_deletions",
        "_rack_aware",
        "_scheduled",
        "_stopped",
        "_unready",
        "_work",
        "clock",
        "counters",
        "delayed_requests",
        "image",
        "leader_throttle",
        "log_manager",
        "offload",
        "retired_topics",
        "topic_counters",
    )

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        offload: Offloader,
        node_id: BrokerId,
        config: BrokerConfig,
        cluster: ClusterLink,
    ) -> None:
        self.log_manager = log_manager
        self.offload = offload
        self.delayed_requests = DelayedRequests(clock)
        self.image: MetadataImage = EMPTY_IMAGE
        self.clock = clock
        self.counters = ReplicaCounters()
        self.topic_counters: dict[TopicName, TopicCounters] = {}
        self.retired_topics = TopicCounters()
        """What topics counted that this broker no longer hosts: the totals of the broker never go back."""
        self.leader_throttle = ReplicationThrottle("leader", clock, node_id, config)
        self._follower_throttle = ReplicationThrottle("follower", clock, node_id, config)
        self._node_id = node_id
        self._config = config
        self._rack_aware = config.opt_str("replica.selector.class") in RACK_AWARE
        self._default_topic_config: TopicConfig | None = None
        self._built_config: tuple[object, TopicConfig] | None = None
        """The configuration built last, and its overrides: the partitions of a topic come one after another."""
        self._hosted: dict[str | bytes, _Topic] = {}
        """Partitions by index, of each topic by its name and again by its id."""
        self._unready = 0
        """How many hosted partitions are not `ready`."""
        self._pending_deletions: dict[TopicPartition, bytes] = {}
        """Logs still to be removed, with the id of the topic that they belonged to."""
        self._work: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._stopped = False
        self._lag_check: Timer | None = None
        self._log_creator = LogCreator(clock, offload, self._begin_log, self._ensure_log)
        self._host = self._as_host()
        self._connect(cluster)

    def _as_host(self) -> PartitionHost:
        return PartitionHost(
            node_id=self._node_id,
            clock=self.clock,
            offload=self.offload,
            open_log=self._open_log,
            propose=self._propose,
            eligible=self._may_be_in_sync,
            alive=self._is_alive,
            max_lag_ms=lambda: self._config.int("replica.lag.time.max.ms"),
            counters=self.counters,
            counters_of=lambda topic: self.topic_counters.setdefault(topic, TopicCounters()),
        )

    def _connect(self, cluster: ClusterLink) -> None:
        clock, node_id, broker_epoch = self.clock, self._node_id, cluster.broker_epoch
        self._alter_partition = AlterPartitionSender(clock, node_id, broker_epoch, cluster.to_controller)
        self._assignments = DirectoryAssignments(
            clock, node_id, broker_epoch, self.log_manager, lambda: self.image, cluster.to_controller
        )
        self.log_manager.announce_moves(self._about_to_move)
        self._fetchers = ReplicaFetcherManager(
            clock,
            cluster.peers,
            node_id,
            self._config,
            broker_epoch,
            self.endpoint_of,
            self._follower_throttle,
            cluster.gate,
        )

    # -- lookups

    def find(self, key: tuple[str | bytes, int]) -> Partition:
        """The hosted partition by topic name or topic id; raises the error for clients if there is none."""
        topic, index = key
        partitions = self._hosted.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self._not_found(topic, index)

    def takes_records(self, topic: str | bytes, index: int) -> bool:
        """Whether records for it need not wait: they are appended, or refused."""
        partition = self._hosted.get(topic, _NONE).get(index)
        if partition is None:
            return True
        return not partition.requests_awaiting_log and (partition.ready or not partition.is_leader)

    def hosts(self, tp: TopicPartition) -> bool:
        """Whether there is a replica of the partition on this broker."""
        return tp.partition in self._hosted.get(tp.topic, ())

    def hosted(self, topic: TopicName) -> Mapping[int, Partition]:
        """The replicas of a topic on this broker, by partition."""
        return self._hosted.get(topic, _NONE)

    def partitions(self) -> Iterator[Partition]:
        """All hosted partitions."""
        for topic, partitions in self._hosted.items():
            if isinstance(topic, str):
                yield from partitions.values()

    def _not_found(self, topic: str | bytes, index: int) -> ApiException:
        topics = self.image.topics
        image = topics.by_name.get(TopicName(topic)) if isinstance(topic, str) else topics.by_id.get(topic)
        if image is None:
            if isinstance(topic, bytes):
                return ApiException(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id")
            return ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}")
        if index not in image.partitions:
            return ApiException(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {image.name} has {len(image.partitions)} partitions, and none with the number {index}",
            )
        return ApiException(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{image.name}-{index} is not on broker {self._node_id}"
        )

    # -- other brokers

    def endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        """Where another broker listens for brokers; None if it is not registered."""
        return broker_endpoint(self.image, broker_id, self._config.inter_broker_listener_name)

    def _is_alive(self, broker_id: BrokerId) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def _may_be_in_sync(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.epoch == broker_epoch
            and not broker.fenced
            and not broker.in_controlled_shutdown
        )

    def _propose(self, partition: Partition, proposal: Proposal) -> None:
        self._alter_partition.submit(partition, proposal)

    def check_follower(
        self, partition: Partition, part: FetchPartition, replica_id: BrokerId, broker_epoch: int
    ) -> None:
        """Raise unless the fetching broker is a replica, in the epoch of its last registration."""
        if replica_id not in partition.in_sync.followers:
            raise ApiException(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if part.leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {replica_id} is not a replica of {partition.topic}-{partition.index}",
            )
        broker = self.image.brokers.get(replica_id)
        if broker_epoch >= 0 and broker is not None and broker.epoch > broker_epoch:
            raise ApiException(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {replica_id} has registered again since epoch {broker_epoch}",
            )

    def nearer_replica(self, partition: Partition, rack: str, offset: int) -> BrokerId | None:
        """The replica that a consumer in that rack should read from instead of the leader."""
        return nearer_replica(partition, self.image, rack, offset) if self._rack_aware else None

    def follower_lag(self) -> tuple[int, int]:
        """The most records that a followed partition is behind its leader, and how many cannot be fetched now."""
        return self._fetchers.lag()

    def start(self) -> None:
        """Check for followers that lag, every half `replica.lag.time.max.ms`."""
        period_s = self._config.int("replica.lag.time.max.ms") / 2000
        self._lag_check = self.clock.call_later(period_s, self._check_lag)

    def _check_lag(self) -> None:
        for partition in self.partitions():
            if partition.is_leader and len(partition.replicas) > 1:
                partition.check_lag()
        self.start()

    # -- following the metadata

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata publisher: create, change and remove partitions; their logs follow in slices of a few ms."""
        self.image = image
        for topic in delta.deleted_topics.values():
            self._drop_topic(topic)
        for change in delta.changed_topics.values():
            for index, registration in change.partition_changes.items():
                self._reconcile(TopicName(change.name), change.id, index, registration)
        if delta.changed_brokers:
            self._brokers_changed(delta.changed_brokers)
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC and name in self._hosted:
                self._later(partial(self._update_topic_config, TopicName(name)))

    def _brokers_changed(self, brokers: Collection[BrokerId]) -> None:
        """Followers may have become eligible for the in-sync set, and leaders may listen elsewhere."""
        self._fetchers.metadata_changed()
        for partition in self.partitions():
            if partition.is_leader and not partition.in_sync.followers.keys().isdisjoint(brokers):
                partition.maybe_expand()

    def update_broker_config(self, config: BrokerConfig) -> None:
        """The broker's own configs changed: the defaults of all topics follow."""
        self._config = config
        self.leader_throttle.update_config(config)
        self._follower_throttle.update_config(config)
        self._fetchers.update_config(config)
        self._default_topic_config = self._built_config = None
        for topic in [topic for topic in self._hosted if isinstance(topic, str)]:
            self._later(partial(self._update_topic_config, TopicName(topic)))

    def topic_config(self, topic: str) -> TopicConfig:
        """A topic's effective configuration. Topics without configs of their own share one object."""
        overrides = self.image.configs.of(ConfigResourceType.TOPIC, topic)
        if overrides:
            if self._built_config is None or self._built_config[0] is not overrides:
                self._built_config = overrides, TopicConfig.in_force(self._config, overrides)
            return self._built_config[1]
        if self._default_topic_config is None:
            self._default_topic_config = TopicConfig.build(self._config)
        return self._default_topic_config

    def remove_strays(self) -> None:
        """Remove logs that the metadata does not know. The image must have caught up with the metadata log."""
        by_id = self.image.topics.by_id

        def keep(tp: TopicPartition, topic_id: bytes) -> bool:
            topic = by_id.get(topic_id)
            registration = None if topic is None else topic.partitions.get(tp.partition)
            return registration is not None and self._node_id in registration.replicas

        for tp in self.log_manager.delete_strays(keep):
            _logger.warning("Moved the log of %s aside: the metadata has no such replica on this broker", tp)

    def _reconcile(
        self, topic: TopicName, topic_id: bytes, index: int, registration: PartitionRegistration
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
            partition = Partition(topic, index, topic_id, self._host)
            partition.update(registration)
            partitions[index] = partition
            self._unready += 1
            self._log_creator.add(partition)
        else:
            partition.update(registration)
            self._follow(partition)

    def _follow(self, partition: Partition) -> None:
        """Replicate from the leader, if it is another broker and the log exists."""
        if (
            partition.log is not None
            and not partition.offline
            and partition.leader not in (NO_LEADER, self._node_id)
        ):
            try:
                self._fetchers.follow(partition)
            except ApiException as error:
                _logger.error("Cannot replicate %s: %s", partition.topic_partition, error.message)
        else:
            self._fetchers.unfollow(partition)

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
        self._fetchers.unfollow(partition)
        partition.remove()
        if not self._hosted.get(partition.topic):
            self._retire_counters(partition.topic)
        self._is_ready(partition)
        self._log_creator.discard(partition)
        self._pending_deletions[tp] = partition.topic_id
        self._later(partial(self._delete_log, tp))

    def _retire_counters(self, topic: TopicName) -> None:
        counters = self.topic_counters.pop(topic, None)
        if counters is not None:
            self.retired_topics.add(counters)

    def _update_topic_config(self, topic: TopicName) -> None:
        self.counters.state_changes += 1
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

    def _begin_log(self, partition: Partition, for_records: bool) -> Create | None:
        """The work for a thread before the partition has its log, or can take records. None: there is none."""
        if for_records:
            self._is_ready(partition)
        if partition.gone or partition.offline:
            return None
        tp = partition.topic_partition
        if tp in self._pending_deletions:
            self._delete_log(tp)
        if partition.log is None and self.log_manager.get(tp) is not None:
            self._ensure_log(partition)
        if partition.log is not None:
            wanting = for_records and partition.log.leader_epochs.unwritten
            return partial(write_epochs, partition.log) if wanting else None
        try:
            return self.log_manager.begin(
                tp,
                partition.topic_id,
                self.topic_config(partition.topic),
                directory_id=self._assigned_directory(partition),
                leader_epoch=partition.leader_epoch if for_records and partition.is_leader else NO_EPOCH,
            ).make
        except ApiException as error:
            _logger.error("Cannot create the log of %s: %s", tp, error.message)
            return None

    def _is_ready(self, partition: Partition) -> None:
        if not partition.ready:
            partition.ready = True
            self._unready -= 1

    def _ensure_log(self, partition: Partition) -> None:
        if partition.gone:
            return
        try:
            partition.local_log()
            self._follow(partition)
        except ApiException as error:
            # Clients get the same error with their requests; a failed directory must not stop the other partitions.
            _logger.error("Cannot open the log of %s: %s", partition.topic_partition, error.message)

    def _open_log(self, partition: Partition) -> PartitionLog:
        tp = partition.topic_partition
        if tp in self._pending_deletions:
            self._delete_log(tp)
        log = self.log_manager.get(tp)
        if log is None:
            log = self.log_manager.get_or_create(
                tp,
                partition.topic_id,
                self.topic_config(partition.topic),
                directory_id=self._assigned_directory(partition),
            )
        elif log.topic_id == ZERO_UUID:
            log.assign_topic_id(partition.topic_id)
        elif log.topic_id != partition.topic_id:
            raise ApiException(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"The log of {tp} belongs to another topic of the same name"
            )
        self._assignments.check(partition)
        return log

    def _assigned_directory(self, partition: Partition) -> bytes | None:
        """The log directory that the controller assigned to the replica, if it is one of this broker's."""
        registration = self.image.topics.partition(partition.topic_id, partition.index)
        if registration is None or self._node_id not in registration.replicas:
            return None
        assigned = registration.directory(self._node_id)
        directories = self.log_manager.dirs
        if any(assigned == each.directory_id and not each.offline for each in directories):
            return assigned
        if assigned not in (ZERO_UUID, DIRECTORY_UNASSIGNED) and any(each.offline for each in directories):
            # An empty log in another directory would lose what this replica has acknowledged.
            partition.offline = True
            raise ApiException(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.topic_partition} is in a log directory that is offline",
            )
        return None

    def directory_failed(self) -> None:
        """A log directory failed: its partitions go offline, and requests that wait for them get the error."""
        for partition in self.partitions():
            if partition.log is not None and partition.log.failed is not None and not partition.offline:
                partition.go_offline()
                self._fetchers.unfollow(partition)

    def move_log(self, tp: TopicPartition, path: str) -> None:
        """Move a replica to another log directory, in the background; the current directory cancels a move."""
        if self.hosts(tp):
            self.find(tp).local_log()
        self.log_manager.move(tp, path)
        if tp not in self.log_manager.future_logs:
            self._assignments.settle(self.find(tp))

    def _about_to_move(self, tp: TopicPartition, directory: LogDir, granted: Callable[[], None]) -> None:
        """Report the move to the controller first: if the directory fails, it knows which replicas are lost."""
        if not self.hosts(tp):
            granted()
            return
        partition = self.find(tp)
        self._assignments.assign(partition.topic_id, partition.index, directory.directory_id, granted)

    def _delete_log(self, tp: TopicPartition) -> None:
        topic_id = self._pending_deletions.pop(tp, None)
        if topic_id is not None:
            self.log_manager.delete(tp, topic_id)

    # -- work in slices

    @property
    def unready(self) -> bool:
        """Whether there are partitions whose records may have to wait."""
        return self._unready > 0 or self._log_creator.busy

    def make_ready(self, partitions: list[Partition], size: int, proceed: Callable[[], None]) -> None:
        """Call back when `size` bytes of records can be appended to these partitions, after earlier callers."""
        self._log_creator.prioritize(partitions, size, proceed)

    def after_new_logs(self, callback: Callable[[], None]) -> None:
        """Call back when the logs that are requested now are created."""
        self._log_creator.after_all(callback)

    def _later(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        if not self._scheduled:
            self._scheduled = True
            self.clock.call_later(0.0, self._run_slice)

    def _run_slice(self) -> None:
        end = self.clock.monotonic() + SLICE_S
        work = self._work
        try:
            while work and not self._stopped:
                work.popleft()()
                if self.clock.monotonic() >= end:
                    break
        finally:
            self._scheduled = bool(work) and not self._stopped
            if self._scheduled:
                self.clock.call_later(0.0, self._run_slice)

    def shutdown(self) -> None:
        """Respond to waiting requests with what is there, and create no more logs. The log manager closes the logs."""
        self._log_creator.stop()
        self._stopped = True
        self._work.clear()
        if self._lag_check is not None:
            self._lag_check.cancel()
        self._alter_partition.stop()
        self._fetchers.stop()
        self.delayed_requests.close()
        waiting: Waiters = {}
        for partition in self.partitions():
            waiting |= partition.high_watermark_waiters
            waiting |= partition.log_end_waiters
        for parked in waiting:
            parked.expire()
