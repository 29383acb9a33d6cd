"""One partition as this broker hosts it: leadership, in-sync set, high watermark, and who waits for what.

The files are `ottla.log`'s; which partitions there are is the manager's; reading for clients is `ottla.replica.fetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.log.types import AppendInfo, AppendOrigin, TopicPartition
from ottla.records.validation import ValidatedBatch, finish
from ottla.replica.appends import AppendQueue
from ottla.replica.flushes import FlushQueue

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.log.verification import VerificationGuard
    from ottla.metadata.image import PartitionRegistration
    from ottla.replica.appends import AppendDone
    from ottla.replica.flushes import FlushDone
    from ottla.replica.offload import Offload
    from ottla.replica.waiting import Waiter

ACKS_ALL = -1

OpenLog = Callable[["Partition"], "PartitionLog"]


class Partition:
    """Leader state of a partition over its `PartitionLog`, which is opened when it is first needed."""

    __slots__ = (
        "_appends",
        "_flushes",
        "_follower_ends",
        "_isr_is_short",
        "_node_id",
        "_offload",
        "_open_log",
        "epoch_start_offset",
        "gone",
        "index",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "offline",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self, topic: str, index: int, topic_id: bytes, *, node_id: int, open_log: OpenLog, offload: Offload
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log: PartitionLog | None = None
        """None until it is opened: use `local_log()` where it is needed."""
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """Where the log ended when this broker became leader of the epoch."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.gone = False
        """No longer hosted here: whoever holds a reference must look it up again."""
        self.offline = False
        """Its log directory has failed."""
        self.waiters: set[Waiter] = set()
        self._node_id = node_id
        self._open_log = open_log
        self._offload = offload
        self._appends: AppendQueue | None = None
        self._flushes: FlushQueue | None = None
        self._follower_ends: dict[int, int] = {}
        self._isr_is_short = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} leader {self.leader}>"

    # -- what the metadata says

    def update(self, registration: PartitionRegistration) -> None:
        """Follow a new assignment, leader, leader epoch or in-sync set."""
        new_epoch = registration.leader_epoch != self.leader_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.partition_epoch = registration.partition_epoch
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.is_leader = registration.leader == self._node_id and not self.offline
        self._isr_is_short = len(self.isr) < len(self.replicas)
        if new_epoch:
            self._follower_ends.clear()
        if self.log is not None:
            if new_epoch:
                self._begin_epoch(self.log)
            elif self.is_leader and self._advance_high_watermark(self.log):
                self.wake_all()
        if new_epoch:
            self.wake_all()

    def local_log(self) -> PartitionLog:
        """The log, opened (and made) if it is not yet."""
        log = self.log
        if log is None:
            if self.gone or self.offline:
                raise self._not_leader()
            log = self.log = self._open_log(self)
            self._begin_epoch(log)
        return log

    def _begin_epoch(self, log: PartitionLog) -> None:
        if self.is_leader:
            self.epoch_start_offset = log.log_end_offset
            log.assign_epoch_start_offset(self.leader_epoch, log.log_end_offset)
            self._advance_high_watermark(log)

    def remove(self) -> None:
        """The partition leaves this broker: everyone who waits for it gets the error."""
        self.gone = True
        self.is_leader = False
        self.log = None
        self.wake_all()

    def go_offline(self) -> None:
        """The log cannot be used any more, though the partition is still assigned to this broker."""
        self.offline = True
        self.is_leader = False
        self.wake_all()

    # -- checks

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raise unless this broker leads the partition, in the epoch that the client believes in (-1: any)."""
        if current_epoch >= 0 and current_epoch != self.leader_epoch:
            raise self.epoch_error(current_epoch)
        if not self.is_leader:
            raise self._not_leader()

    def epoch_error(self, current_epoch: int) -> KafkaError:
        if current_epoch < self.leader_epoch:
            return KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic}-{self.index}: leader epoch {current_epoch} is over, it is {self.leader_epoch} now",
            )
        return KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic}-{self.index}: leader epoch {current_epoch} is not known here yet, only {self.leader_epoch}",
        )

    def _not_leader(self) -> KafkaError:
        if self.offline:
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.topic}-{self.index} has failed"
            )
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self._node_id} does not lead {self.topic}-{self.index}",
        )

    def min_in_sync(self, config: TopicConfig) -> int:
        """`min.insync.replicas`, but no more than there are replicas."""
        return min(config.min_insync_replicas, len(self.replicas))

    # -- appending

    def append(
        self,
        records: Buffer,
        acks: int,
        now_ms: int,
        api_version: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo | ValidatedBatch:
        """Append a client's batch at once; `guard` lets it begin a transaction in the partition.

        A batch comes back where that cannot be: it has to be looked into in a thread, or to wait behind one that is.
        It is a copy, for `append_later`.
        """
        log = self.log or self.local_log()
        self.check_can_append(log, acks)
        batch = log.validate(records, now_ms=now_ms, api_version=api_version)
        if self._appends is not None and self._appends.busy:
            batch.detach()
            return batch
        if batch.pending:
            if batch.offload:
                batch.detach()
                return batch
            batch = finish(batch)
        info = log.append_as_leader(batch, self.leader_epoch, now_ms=now_ms, guard=guard)
        self._appended(log, info)
        return info

    def append_later(
        self,
        batch: ValidatedBatch,
        acks: int,
        done: AppendDone,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Append behind what is under way, after a look into the batch in a thread."""
        if self._appends is None:
            self._appends = AppendQueue(self, self._offload)
        self._appends.add(batch, acks, done, guard)

    def flush_due(self) -> bool:
        """Whether `flush.messages` wants what was appended on disk before it is acknowledged: call `flush` then."""
        log = self.log
        return log is not None and log.flush_due

    def flush(self, done: FlushDone) -> None:
        """Bring all that is in the log to disk, in a thread; `done` is called on the event loop."""
        if self._flushes is None:
            self._flushes = FlushQueue(self._offload)
        self._flushes.add(self.local_log(), done)

    def append_validated(
        self, batch: ValidatedBatch, acks: int, guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Append a batch that is fit to be appended."""
        log = self.log or self.local_log()
        self.check_can_append(log, acks)
        info = log.append_as_leader(batch, self.leader_epoch, now_ms=batch.now_ms, guard=guard)
        self._appended(log, info)
        return info

    def append_own(
        self,
        batch: bytes,
        now_ms: int,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append what a coordinator of this broker wrote: its records, or the end of a transaction."""
        log = self.log or self.local_log()
        self.check_can_append(log, ACKS_ALL)
        info = log.append_as_leader(
            batch,
            self.leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
            guard=guard,
        )
        self._appended(log, info)
        return info

    def check_can_append(self, log: PartitionLog, acks: int) -> None:
        if not self.is_leader:
            raise self._not_leader()
        if acks == ACKS_ALL and self._isr_is_short:
            minimum = self.min_in_sync(log.config)
            if len(self.isr) < minimum:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync, "
                    f"min.insync.replicas asks for {minimum}",
                )

    def _appended(self, log: PartitionLog, info: AppendInfo) -> None:
        """Records were added to the log: move the high watermark, wake who waits for them."""
        if info.duplicate:
            return
        if len(self.isr) == 1:
            log.high_watermark = log.log_end_offset
        else:
            self._advance_high_watermark(log)
        if self.waiters:
            size = info.size
            for parked in self.waiters:
                parked.progress(size)

    def replicated(self, log: PartitionLog, end_offset: int) -> ErrorCode | None:
        """Whether records up to `end_offset` are where acks=all wants them: None while they are not."""
        if log.high_watermark < end_offset:
            return None
        if self._isr_is_short and len(self.isr) < self.min_in_sync(log.config):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # -- the high watermark

    def follower_fetched(self, log: PartitionLog, replica_id: int, offset: int) -> None:
        """A follower asks from `offset` on: it has everything before."""
        self._follower_ends[replica_id] = offset
        if self._advance_high_watermark(log):
            self.wake_all()

    def _advance_high_watermark(self, log: PartitionLog) -> bool:
        mark = log.log_end_offset
        for replica in self.isr:
            if replica != self._node_id:
                mark = min(mark, self._follower_ends.get(replica, -1))
        if mark <= log.high_watermark:
            return False
        log.high_watermark = mark
        return True

    # -- events

    def wake_all(self) -> None:
        """Something other than an append happened that whoever waits may want to look at."""
        for parked in self.waiters:
            parked.ready()

    # -- what admin requests do to it

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset` (-1: the high watermark); the low watermark after it."""
        self.check_leader()
        log = self.local_log()
        policy = log.config.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.topic}-{self.index} cannot be deleted: its cleanup.policy is compact",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not an offset")
        log.advance_log_start(target)
        self.wake_all()
        return log.log_start_offset
