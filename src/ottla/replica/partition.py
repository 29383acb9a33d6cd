"""One partition as this broker hosts it: as leader or follower, with its high watermark and its waiters.

`ottla.log` owns the files; `ottla.replica.isr` decides who is in sync; the manager knows which partitions there are.
`ottla.replica.consumer_read` reads for clients, `ottla.replica.replica_fetcher` replicates from a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ottla.clock import Clock
from ottla.counters import ReplicaCounters, TopicCounters
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.log.types import AppendInfo, AppendOrigin, TopicPartition
from ottla.metadata.image import NO_LEADER
from ottla.records.batch import read_header
from ottla.records.validation import ValidatedBatch, finish
from ottla.replica.appends import AppendQueue
from ottla.replica.flushes import FlushQueue
from ottla.replica.isr import Eligible, InSyncSet, Proposal, Pulse

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.log.batches import BatchRun
    from ottla.log.fs import Buffer
    from ottla.log.partition_log import PartitionLog
    from ottla.log.verification import VerificationGuard
    from ottla.metadata.image import PartitionRegistration
    from ottla.replica.appends import AppendDone
    from ottla.replica.delayed_requests import Waiters
    from ottla.replica.flushes import FlushDone
    from ottla.replica.offload import Offloader

_logger = logging.getLogger(__name__)

ACKS_ALL = -1
_NEVER_FLUSH = 2**63 - 1
"""The default of `flush.messages`."""


class PartitionHost(msgspec.Struct):
    """What partitions need from the broker that hosts them."""

    node_id: BrokerId
    clock: Clock
    offload: Offloader
    open_log: Callable[[Partition], PartitionLog]
    propose: Callable[[Partition, Proposal], None]
    """Request another in-sync set from the controller. Its response goes to `Partition.confirmed` or `refused`."""
    eligible: Eligible
    alive: Callable[[BrokerId], bool]
    """Whether a broker is registered and not fenced."""
    max_lag_ms: Callable[[], float]
    counters: ReplicaCounters = msgspec.field(default_factory=ReplicaCounters)
    counters_of: Callable[[TopicName], TopicCounters] = msgspec.field(default=lambda topic: TopicCounters())
    """The counters that the partitions of a topic share."""


class Partition:
    """State of a partition over its `PartitionLog`, which is opened when it is first needed."""

    __slots__ = (
        "_appends",
        "_flushes",
        "_host",
        "_isr_is_short",
        "_single_replica",
        "counters",
        "epoch_start_offset",
        "gone",
        "high_watermark_waiters",
        "in_sync",
        "index",
        "is_leader",
        "leader",
        "leader_epoch",
        "leading_since",
        "log",
        "log_end_waiters",
        "offline",
        "partition_epoch",
        "ready",
        "replicas",
        "requests_awaiting_log",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: TopicName, index: int, topic_id: bytes, host: PartitionHost) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log: PartitionLog | None = None
        """None until it is opened: `local_log()` opens it."""
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """Where the log ended when this broker became leader of the epoch."""
        self.leading_since = -1
        """The first epoch of this broker's leadership: it has truncated nothing that it appended since."""
        self.in_sync = InSyncSet(host.node_id, host.eligible, host.max_lag_ms)
        self.replicas: tuple[BrokerId, ...] = ()
        self.is_leader = False
        self.gone = False
        """No longer hosted here: holders of a reference must look it up again."""
        self.offline = False
        """Its log directory has failed."""
        self.ready = False
        """The files that the first record needs exist: no request has to wait for them any more."""
        self.requests_awaiting_log = 0
        """Produce requests for this partition that wait for new logs before they append."""
        self.high_watermark_waiters: Waiters = {}
        """Requests that wait for the high watermark: consumers, and producers with acks=all."""
        self.log_end_waiters: Waiters = {}
        """Followers' sessions, which wait for the end of the log."""
        self._host = host
        self.counters = host.counters_of(topic)
        self._appends: AppendQueue | None = None
        self._flushes: FlushQueue | None = None
        self._single_replica = True
        self._isr_is_short = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The in-sync replicas that the controller has committed."""
        return self.in_sync.committed

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} leader {self.leader}>"

    # -- metadata

    def update(self, registration: PartitionRegistration) -> None:
        """Follow a new assignment, leader, leader epoch or in-sync set."""
        if registration.partition_epoch < self.partition_epoch:
            return  # the response to AlterPartition was faster than the metadata record
        self._host.counters.state_changes += 1
        new_epoch = registration.leader_epoch != self.leader_epoch
        led = self.is_leader
        news = new_epoch
        isr_before = self.in_sync.committed
        self.replicas = registration.replicas
        self._single_replica = len(self.replicas) == 1
        self.partition_epoch = registration.partition_epoch
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.is_leader = registration.leader == self._host.node_id and not self.offline
        if self.is_leader:
            if not led:
                self.leading_since = registration.leader_epoch
            self.in_sync.assign(registration.replicas, registration.isr, self._now_ms())
        else:
            self.in_sync.clear(registration.isr)
        self._isr_is_short = len(registration.isr) < len(self.replicas)
        if self.log is not None and self.is_leader:
            if new_epoch or not led:
                self._begin_epoch(self.log, new_leader=not led)
            else:
                news = self._advance_high_watermark(self.log) or isr_before != registration.isr
            self.maybe_expand()
        if news or led != self.is_leader:
            self.wake_all()

    def local_log(self) -> PartitionLog:
        """The log, opened (and created) if it is not yet."""
        log = self.log
        if log is None:
            if self.gone or self.offline:
                raise self._not_leader()
            log = self.log = self._host.open_log(self)
            self._host.counters.state_changes += 1
            if self.is_leader:
                self._begin_epoch(log, new_leader=True)
            for waiter in self.log_end_waiters:
                waiter.ready()
        return log

    def _begin_epoch(self, log: PartitionLog, *, new_leader: bool) -> None:
        now_ms = self._now_ms()
        end = self.epoch_start_offset = log.log_end_offset
        log.assign_epoch_start_offset(self.leader_epoch, end)
        for follower in self.in_sync.followers.values():
            follower.begin_epoch(
                in_sync=follower.id in self.in_sync.committed,
                new_leader=new_leader,
                leader_end=end,
                now_ms=now_ms,
            )
        self._advance_high_watermark(log)

    def remove(self) -> None:
        """The partition leaves this broker: waiting requests get the error."""
        self._host.counters.state_changes += 1
        self.gone = True
        self.is_leader = False
        self.log = None
        self.wake_all()

    def go_offline(self) -> None:
        """The log cannot be used any more, though the partition is still assigned to this broker."""
        self._host.counters.state_changes += 1
        self.offline = True
        self.is_leader = False
        self.wake_all()

    def _now_ms(self) -> float:
        return self._host.clock.monotonic() * 1000

    # -- checks

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raise unless this broker leads the partition, in the client's epoch (-1: any)."""
        if current_epoch >= 0 and current_epoch != self.leader_epoch:
            raise self.epoch_error(current_epoch)
        if not self.is_leader:
            raise self._not_leader()

    def check_replica(self, current_epoch: int = -1) -> None:
        """Raise unless this broker leads or follows in that epoch: a consumer in its rack may read from it."""
        if current_epoch >= 0 and current_epoch != self.leader_epoch:
            raise self.epoch_error(current_epoch)
        if not self.is_leader and (self.log is None or self.offline or self.gone):
            raise self._not_leader()

    def epoch_error(self, current_epoch: int) -> ApiException:
        if current_epoch < self.leader_epoch:
            return ApiException(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic}-{self.index}: leader epoch {current_epoch} has ended; "
                f"the current one is {self.leader_epoch}",
            )
        return ApiException(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic}-{self.index}: leader epoch {current_epoch} is not known here yet; "
            f"the current one is {self.leader_epoch}",
        )

    def _not_leader(self) -> ApiException:
        if self.offline:
            return ApiException(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.topic}-{self.index} has failed"
            )
        return ApiException(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self._host.node_id} does not lead {self.topic}-{self.index}",
        )

    def min_in_sync(self, config: TopicConfig) -> int:
        """`min.insync.replicas`, limited to the number of replicas."""
        return min(config.min_insync_replicas, len(self.replicas))

    # -- appending as leader

    def append(
        self,
        records: Buffer,
        acks: int,
        now_ms: int,
        api_version: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo | ValidatedBatch:
        """Append a client's batch at once; `guard` lets it begin a transaction in the partition.

        Returns a copy of the batch for `append_later` if a thread has to validate it, or another batch before it.
        """
        log = self.log or self.local_log()
        self.check_can_append(log, acks)
        batch = log.validate(records, now_ms=now_ms, api_version=api_version)
        if self.appends_in_threads:
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

    @property
    def appends_in_threads(self) -> bool:
        """Batches are being validated by threads: those that come later wait for them."""
        return self._appends is not None and self._appends.busy

    def append_run(self, run: BatchRun, now_ms: int) -> None:
        """Append batches of several requests with one write; they are laid out from the log's end on."""
        log = self.local_log()
        log.append_laid_out(run, self.leader_epoch, now_ms)
        first, last = run.infos[0], run.infos[-1].last_offset
        self._appended(log, AppendInfo(first.first_offset, last, -1, first.log_start_offset, False, run.size))
        self.counters.produces += len(run.infos) - 1

    def append_later(
        self,
        batch: ValidatedBatch,
        acks: int,
        done: AppendDone,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Append after the batches that are in a thread, once a thread has validated this one."""
        if self._appends is None:
            self._appends = AppendQueue(self, self._host.offload)
        self._appends.add(batch, acks, done, guard)

    def acknowledges_at_once(self, acks: int) -> bool:
        """Whether an append waits for nobody: neither for other replicas nor for a new log, nor for the disk."""
        log = self.log
        return (
            log is not None
            and (self._single_replica or acks != ACKS_ALL)
            and log.config.flush_messages == _NEVER_FLUSH
        )

    def flush_due(self) -> bool:
        """Whether `flush.messages` demands a `flush` before what was appended is acknowledged."""
        log = self.log
        return log is not None and log.flush_due

    def flush(self, done: FlushDone) -> None:
        """Write all of the log to disk, in a thread; `done` is called on the event loop."""
        if self._flushes is None:
            self._flushes = FlushQueue(self._host.offload)
        self._flushes.add(self.local_log(), done)

    def append_validated(
        self, batch: ValidatedBatch, acks: int, guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Append a validated batch."""
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
        """Append a batch of a coordinator on this broker: its records, or a transaction marker."""
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
            in_sync = len(self.in_sync.committed)
            if in_sync < minimum:
                raise ApiException(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.topic}-{self.index} has {in_sync} replicas in sync, "
                    f"min.insync.replicas demands {minimum}",
                )

    def _appended(self, log: PartitionLog, info: AppendInfo) -> None:
        """Records were added to the log: advance the high watermark and notify the waiters."""
        counters = self.counters
        counters.produces += 1
        counters.messages_in += info.last_offset - info.first_offset + 1
        size = info.size
        counters.bytes_in += size
        if info.duplicate:
            return
        if self._single_replica:
            log.high_watermark = log.log_end_offset
            for waiter in self.high_watermark_waiters:
                waiter.progress(size)
            return
        for follower in self.in_sync.followers.values():
            if follower.end_offset == info.first_offset:
                follower.left_behind()
        for waiter in self.log_end_waiters:
            waiter.progress(size)
        # With other replicas in sync it advances when they fetch.
        if len(self.in_sync.maximal) == 1 and self._advance_high_watermark(log):
            for waiter in self.high_watermark_waiters:
                waiter.ready()

    def replicated(self, log: PartitionLog, end_offset: int) -> ErrorCode | None:
        """The result of acks=all for records up to `end_offset`: None while they are not replicated."""
        if self._isr_is_short:
            counted = self.in_sync.maximal if log.high_watermark >= end_offset else self.in_sync.committed
            if len(counted) < self.min_in_sync(log.config):
                # With too few in sync the high watermark does not advance: there is nothing to wait for.
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE if log.high_watermark >= end_offset else None

    def has_committed(self, offset: int) -> bool:
        """Whether a record is committed as acks=all demands."""
        log = self.log
        if log is None or offset >= log.high_watermark:
            return False
        return not self._isr_is_short or self.replicated(log, offset + 1) is ErrorCode.NONE

    # -- followers and the high watermark

    def follower_fetched(
        self,
        log: PartitionLog,
        replica: BrokerId,
        offset: int,
        *,
        start_offset: int,
        broker_epoch: int,
        pulse: Pulse | None = None,
    ) -> None:
        """A follower fetches from `offset` on: it has everything before."""
        in_sync = self.in_sync
        follower = in_sync.followers[replica]
        before, deleted = follower.end_offset, follower.start_offset
        follower.fetched(offset, start_offset, broker_epoch, log.log_end_offset, self._now_ms(), pulse)
        if replica not in in_sync.maximal:
            self.maybe_expand()
        if offset != before and self._advance_high_watermark(log):
            self.wake_all()
        elif start_offset != deleted:
            for waiter in self.high_watermark_waiters:
                waiter.ready()

    def _advance_high_watermark(self, log: PartitionLog) -> bool:
        if self._isr_is_short and len(self.in_sync.committed) < self.min_in_sync(log.config):
            return False  # the last in-sync replica keeps everything that was ever acknowledged
        mark = self.in_sync.high_watermark(log.log_end_offset, self._now_ms())
        if mark <= log.high_watermark:
            return False
        log.high_watermark = mark
        return True

    def maybe_expand(self) -> None:
        """Propose to add a follower that has caught up."""
        log = self.log
        if log is not None and self._isr_is_short and self.is_leader:
            isr = self.in_sync.expansion(log.high_watermark, self.epoch_start_offset)
            if isr is not None:
                self._propose(isr)

    def maybe_shrink(self) -> None:
        """Propose to remove followers that lag for too long."""
        log = self.log
        if log is not None and self.is_leader:
            isr = self.in_sync.shrinkage(log.log_end_offset, self._now_ms())
            if isr is not None:
                _logger.info("%s-%d: only %s of %s are in sync", self.topic, self.index, isr, self.isr)
                self._propose(isr)

    def check_lag(self) -> None:
        """Check the followers: time alone can change who is in sync."""
        log = self.log
        if log is None or not self.is_leader:
            return
        self.maybe_shrink()
        self.maybe_expand()
        if log.high_watermark < log.log_end_offset and self._advance_high_watermark(log):
            self.wake_all()

    def _propose(self, isr: tuple[BrokerId, ...]) -> None:
        self._host.propose(self, self.in_sync.propose(isr, self.leader_epoch, self.partition_epoch))

    def confirmed(
        self, proposal: Proposal, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller has made the change. Newer metadata takes precedence."""
        if self.in_sync.pending is not proposal:
            return
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        counters = self._host.counters
        counters.state_changes += 1
        before = len(self.in_sync.committed)
        if len(isr) > before:
            counters.isr_expands += 1
        elif len(isr) < before:
            counters.isr_shrinks += 1
        self.in_sync.confirmed(isr)
        self.partition_epoch = partition_epoch
        self._isr_is_short = len(isr) < len(self.replicas)
        if self.log is not None:
            self._advance_high_watermark(self.log)
        self.wake_all()
        self.maybe_expand()

    def refused(self, proposal: Proposal) -> None:
        """The controller has refused the change for now."""
        if self.in_sync.pending is proposal:
            self._host.counters.failed_isr_updates += 1
            self.in_sync.refused()
            if self.log is not None and self.is_leader and self._advance_high_watermark(self.log):
                self.wake_all()

    # -- as follower

    def append_from_leader(self, records: Buffer) -> AppendInfo:
        """Append the leader's records unchanged."""
        log = self.local_log()
        self.counters.replication_bytes_in += len(records)
        try:
            return log.append_as_follower(records, self.leader_epoch)
        except ApiException as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or log.log_end_offset != log.log_start_offset:
                raise
            first = read_header(records)
            if not first.base_offset < log.log_end_offset <= first.last_offset:
                raise
            # The leader's log starts inside a batch: this log starts with that batch.
            log.truncate_fully_and_start_at(first.base_offset)
            return log.append_as_follower(records, self.leader_epoch)

    def follow_marks(self, log: PartitionLog, high_watermark: int, log_start: int) -> None:
        """Adopt the leader's high watermark and log start, as far as this log reaches."""
        mark = min(high_watermark, log.log_end_offset)
        moved = mark > log.high_watermark
        if moved:
            log.high_watermark = mark
        if log_start > log.log_start_offset:
            log.advance_log_start(min(log_start, log.high_watermark))
            moved = True
        if moved:
            for waiter in self.high_watermark_waiters:
                waiter.ready()

    # -- events

    def wake_all(self) -> None:
        """Notify all waiters of an event other than an append."""
        for waiter in self.high_watermark_waiters:
            waiter.ready()
        for waiter in self.log_end_waiters:
            waiter.ready()

    # -- admin requests

    def delete_records(self, offset: int) -> int:
        """Advance the log start to `offset` (-1: the high watermark) and return it."""
        self.check_leader()
        log = self.local_log()
        policy = log.config.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise ApiException(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.topic}-{self.index} cannot be deleted: its cleanup.policy is compact",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0:
            raise ApiException(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not an offset")
        log.advance_log_start(target)
        self.wake_all()
        return target

    def low_watermark(self) -> int:
        """No replica on a live broker has records below it."""
        self.check_leader()
        return self.in_sync.low_watermark(self.local_log().log_start_offset, self._host.alive)
