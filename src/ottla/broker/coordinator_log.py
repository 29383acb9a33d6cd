"""The log of a coordinator: a partition of its topic, with appends, reads to load, and notice of commits.

Implements the Protocols of `ottla.coordinator.partition`; the coordinators import nothing from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import ApiException
from ottla.log.batches import BatchRun
from ottla.log.types import NO_TIMESTAMP, AppendInfo
from ottla.replica.partition import ACKS_ALL

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.coordinator.partition import BuildBatch
    from ottla.ids import TopicName
    from ottla.log.partition_log import PartitionLog
    from ottla.log.verification import VerificationGuard
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition


class CoordinatedPartition:
    """One partition of a coordinator's topic."""

    __slots__ = ("_clock", "_log", "_partition", "_watch")

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._clock = clock
        self._partition = partition
        self._log: PartitionLog = partition.local_log()
        self._watch: _Watch | None = None

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        return self._log.config.max_message_bytes

    def check_can_append(self) -> None:
        self._partition.check_can_append(self._log, ACKS_ALL)

    def append(
        self,
        batch: bytes,
        now_ms: int,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        return self._partition.append_own(batch, now_ms, transaction_version, guard)

    def append_at_once(self, build: BuildBatch, count: int, now_ms: int) -> int | None:
        partition, log = self._partition, self._log
        if (
            partition.log is not log
            or not log.policy.keeps_own
            or not partition.acknowledges_at_once(ACKS_ALL)
        ):
            return None
        partition.check_can_append(log, ACKS_ALL)
        first = log.log_end_offset
        batch = build(first, partition.leader_epoch, now_ms)
        size, last = len(batch), first + count - 1
        if size > log.config.max_message_bytes:
            return None
        info = AppendInfo(first, last, NO_TIMESTAMP, log.log_start_offset, False, size, count)
        partition.append_run(BatchRun([batch], [(size, last, now_ms)], [info], size, now_ms), now_ms)
        return first

    def read(self, offset: int, max_bytes: int) -> memoryview:
        return self._log.read(offset, max_bytes).records

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """Call back when the high watermark moves by other means than an append through here; None ends it."""
        waiters = self._partition.high_watermark_waiters
        if self._watch is not None:
            waiters.pop(self._watch, None)
            self._watch = None
        if on_change is not None:
            self._watch = _Watch(on_change, self._partition, self._clock)
            waiters[self._watch] = None


class _Watch:
    """Waits for the high watermark as long as this broker coordinates the partition; ignores appends."""

    __slots__ = ("_clock", "_on_change", "_partition", "_scheduled")

    def __init__(self, on_change: Callable[[], None], partition: Partition, clock: Clock) -> None:
        self._clock = clock
        self._on_change = on_change
        self._partition = partition
        self._scheduled = False

    def progress(self, size: int) -> None:
        pass

    def ready(self) -> None:
        # A response may add or remove a watch, which must not happen while the partition iterates over them.
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0.0, self._changed)

    def expire(self) -> None:
        pass

    def _changed(self) -> None:
        self._scheduled = False
        # A follower's high watermark does not cover what this broker appended as the leader.
        if self._partition.is_leader and self in self._partition.high_watermark_waiters:
            self._on_change()


class CoordinatedPartitions:
    """Finds the partitions of a coordinator's topic among the replicas of this broker."""

    __slots__ = ("_clock", "_replicas")

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._clock = clock
        self._replicas = replicas

    def prepare(self, topic: TopicName, partition: int, proceed: Callable[[], None]) -> None:
        """A new internal topic has many logs: a thread creates them, so that they do not hold up the loop."""
        try:
            found = self._replicas.find((topic, partition))
        except ApiException:
            proceed()
            return
        if found.log is None:
            self._replicas.make_ready([found], 0, proceed)
        else:
            proceed()

    def open(self, topic: TopicName, partition: int) -> CoordinatedPartition:
        found = self._replicas.find((topic, partition))
        found.check_leader()
        return CoordinatedPartition(found, self._clock)
