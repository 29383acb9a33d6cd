"""One shard on its partition: loads it from the log, appends its batches, responds when those are committed.

    INITIAL ──load──▶ LOADING ──▶ ACTIVE
                         │           │ an append failed after its records were replayed: load again
                         ▼           ▼
                       FAILED      CLOSED (resigned)

`runtime.py` decides which partitions have a host; the shard has the logic.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.clock import Clock, Timer
from ottla.coordinator.batching import (
    AdaptiveLinger,
    OpenBatch,
    build_plain,
    build_transactional,
    check_fits,
    size_of,
)
from ottla.coordinator.built_operation import BuiltOperation
from ottla.coordinator.errors import coordinator_error
from ottla.coordinator.loading import Loaded, Slice, load_slice
from ottla.coordinator.partition import CoordinatorPartition
from ottla.coordinator.pending_operation import AnyPendingOperation, PendingOperation
from ottla.coordinator.records import CoordinatorRecord, Encoded, RecordSerde
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import CoordinatorShard, ShardContext
from ottla.coordinator.timers import TimerOperation, Timers
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.log.verification import VerificationGuard
from ottla.records.codecs import Compression
from ottla.records.control import build_end_txn_marker

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")

REPLAY_SLICE_S: Final = 0.004
"""The longest time for which replaying a slice may hold the loop."""
MAX_LOADS: Final = 1_000
"""So many loads are remembered for metrics."""

PART: Final = 500
"""Records per batch of an operation that is not atomic."""


class State(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


def _ignore(outcome: object) -> None:
    """No caller waits for this outcome."""


@dataclass(frozen=True, slots=True)
class RuntimeContext(Generic[S]):
    """Shared by all hosts of one coordinator."""

    topic: TopicName
    clock: Clock
    executor: Executor
    post: Callable[..., object]
    serde: RecordSerde
    new_shard: Callable[[ShardContext], S]
    open: Callable[[int], CoordinatorPartition]
    image: Callable[[], MetadataImage]
    compression: Compression
    linger_ms: int
    load_buffer_bytes: int
    write_timeout_ms: int
    loads: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MAX_LOADS))
    """When partitions were loaded, and the seconds that each took."""


class ShardHost(Generic[S]):
    """The life of one shard (see the module). All methods run on the event loop."""

    def __init__(self, context: RuntimeContext[S], partition: int, leader_epoch: int) -> None:
        self._context = context
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = State.INITIAL
        self.shard: S | None = None
        self._log: CoordinatorPartition | None = None
        self._timers = Timers(context.clock, self._run_timer)
        self._batch: OpenBatch | None = None
        self._linger: Timer | None = None
        self._adaptive_linger = AdaptiveLinger(context.linger_ms)
        self._written = 0
        """The end of what was appended here: responses wait until the high watermark reaches it."""
        self._pending: deque[AnyPendingOperation] = deque()
        self._expiry: Timer | None = None
        self._load_began_s = 0.0
        self._load = 0
        """Counts loads, so that slices of an abandoned load are dropped."""

    def __repr__(self) -> str:
        return f"{self._context.topic}-{self.partition}"

    # -- loading

    def load(self) -> None:
        """Start to load, unless that has started. An empty log is loaded at once."""
        if self.state is not State.INITIAL:
            return
        self.state = State.LOADING
        self._load += 1
        context = self._context
        self._load_began_s = context.clock.monotonic()
        shard_context = ShardContext(self.partition, self.leader_epoch, context.clock, self._timers)
        try:
            self._log = log = context.open(self.partition)
            self.shard = context.new_shard(shard_context)
            self._read_from(log.log_start_offset, self._load)
        except ApiException as error:
            self._load_failed(error)

    def _read_from(self, offset: int, load: int) -> None:
        log, context = self._log, self._context
        assert log is not None
        end = log.log_end_offset
        if offset >= end:
            self._activate()
            return

        def finished(future: Future[Slice]) -> None:
            context.post(self._slice_read, future, load)

        context.executor.submit(
            load_slice, log, context.serde, offset, end, context.load_buffer_bytes
        ).add_done_callback(finished)

    def _slice_read(self, future: Future[Slice], load: int) -> None:
        if load != self._load or self.state is not State.LOADING:
            return
        error = future.exception()
        if error is not None:
            self._load_failed(error)
            return
        loaded = future.result()
        self._replay_slice(iter(loaded.items).__next__, loaded.next_offset, load)

    def _replay_slice(self, take: Callable[[], Loaded], next_offset: int, load: int) -> None:
        if load != self._load or self.state is not State.LOADING:
            return
        clock, shard = self._context.clock, self.shard
        assert shard is not None
        end = clock.monotonic() + REPLAY_SLICE_S
        count = 0
        try:
            while True:
                offset, producer_id, producer_epoch, record, commit = take()
                if record is None:
                    shard.replay_end_transaction_marker(producer_id, producer_epoch, commit)
                else:
                    shard.replay(offset, producer_id, producer_epoch, record)
                count += 1
                if not count % 64 and clock.monotonic() >= end:
                    clock.call_later(0.0, self._replay_slice, take, next_offset, load)
                    return
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - logged there; a shard with a bad record must not be used
            self._load_failed(error)
            return
        self._read_from(next_offset, load)

    def _load_failed(self, error: BaseException) -> None:
        _logger.error("Cannot load %s: %s", self, error, exc_info=error)
        self.state = State.FAILED
        self.shard = None
        self._timers.cancel_all()

    def _activate(self) -> None:
        assert self._log is not None and self.shard is not None
        self.state = State.ACTIVE
        now_s = self._context.clock.monotonic()
        self._context.loads.append((now_s, now_s - self._load_began_s))
        self._written = self._log.log_end_offset
        self._log.listen(self._high_watermark_moved)
        self.shard.on_loaded(self._context.image(), self._context.clock.now_ms())

    def close(self) -> None:
        """No longer the coordinator."""
        was_active = self.state is State.ACTIVE
        self.state = State.CLOSED
        self._unload(was_active)

    def _unload(self, was_active: bool) -> None:
        self._load += 1
        self._timers.cancel_all()
        if self._log is not None:
            self._log.listen(None)
        for timer in (self._linger, self._expiry):
            if timer is not None:
                timer.cancel()
        self._linger = self._expiry = None
        waiting = [*self._pending, *(self._batch.operations if self._batch is not None else ())]
        self._pending.clear()
        self._batch = None
        error = ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is no longer coordinated by this broker")
        for pending in waiting:
            pending.fail(error)
        shard, self.shard = self.shard, None
        if shard is not None and was_active:
            shard.on_unloaded()

    # -- operations

    def unusable(self) -> ApiException | None:
        """The error when no operation can be run now."""
        if self.state is State.ACTIVE:
            return None
        if self.state is State.INITIAL:
            self.load()
            if self.state is State.ACTIVE:  # type: ignore[comparison-overlap]
                return None
        if self.state in (State.INITIAL, State.LOADING):
            return ApiException(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self} is being loaded")
        return self._not_coordinated()

    def _not_coordinated(self) -> ApiException:
        return ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is not coordinated by this broker")

    def run(self, operation: Callable[[S, int], CoordinatorResult[R]], pending: PendingOperation[R]) -> None:
        """Run a write operation and settle `pending` when its records are committed."""
        assert self.shard is not None
        now_ms = self._context.clock.now_ms()
        try:
            result = operation(self.shard, now_ms)
        except Exception as error:  # noqa: BLE001 - logged there
            self._operation_failed(error, pending)
            return
        records, pending.response, replay, atomic, pending.on_committed = result
        if not records:
            self._wait(pending)
            return
        try:
            if not atomic:
                self._append_in_parts(records[:-PART], replay, now_ms)
                records = records[-PART:]
            self._append(records, replay, pending, now_ms)
        except ApiException as error:
            pending.fail(coordinator_error(error))

    def run_at_once(self, operation: BuiltOperation[S]) -> bool:
        """Append an operation's records alone, if that commits them. False: nothing has happened, it needs `run`."""
        shard, log = self.shard, self._log
        if (
            self.state is not State.ACTIVE
            or self._batch is not None
            or self._pending
            or self._context.compression
        ):
            return False
        assert shard is not None and log is not None
        if not operation.allowed(shard) or self._adaptive_linger.linger_ms() is not None:
            return False
        now_ms = self._context.clock.now_ms()
        try:
            first = log.append_at_once(operation.build, operation.count, now_ms)
        except ApiException:
            return False
        if first is None:
            return False
        self._written = first + operation.count
        operation.replay(shard, first, now_ms)
        return True

    def _append_in_parts(self, records: Sequence[CoordinatorRecord], replay: bool, now_ms: int) -> None:
        """Append all parts but the last, which responds for all of them."""
        for start in range(0, len(records), PART):
            part: AnyPendingOperation = PendingOperation(_ignore, _ignore)
            self._append(records[start : start + PART], replay, part, now_ms)

    def _operation_failed(self, error: Exception, pending: AnyPendingOperation) -> None:
        if not isinstance(error, ApiException):
            _logger.error("An operation of %s failed", self, exc_info=error)
            error = ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}")
        pending.fail(error)

    def read(self, operation: Callable[[S, int], R], pending: PendingOperation[R]) -> None:
        """Run a read operation now, and settle `pending` when all that it can have seen is committed."""
        assert self.shard is not None
        try:
            pending.response = operation(self.shard, self._context.clock.now_ms())
        except Exception as error:  # noqa: BLE001 - logged there
            self._operation_failed(error, pending)
            return
        self._wait(pending)

    def _append(
        self, records: Sequence[CoordinatorRecord], replay: bool, pending: AnyPendingOperation, now_ms: int
    ) -> None:
        log, serde = self._log, self._context.serde
        assert log is not None
        log.check_can_append()
        encoded = [record.encoded or serde.encode(record) for record in records]
        size = size_of(encoded)
        batch = self._batch
        if batch is None or not batch.has_room_for(size):
            if batch is not None:
                self._make_room()
            check_fits(size, log.max_batch_bytes)
            linger_ms = self._adaptive_linger.linger_ms()
            if linger_ms is None:
                self._append_alone(log, encoded, records if replay else (), pending, now_ms)
                return
            batch = self._batch = OpenBatch(log.log_end_offset, now_ms, log.max_batch_bytes)
            self._linger = self._context.clock.call_later(linger_ms / 1000, self._linger_over)
        first = batch.add(encoded, size, pending)
        if replay:
            self._replay(batch, first, records)

    def _make_room(self) -> None:
        shard = self.shard
        self._flush()
        if self.shard is not shard:
            # The batch was refused and the state was loaded again: the state that the operation read may be gone.
            raise ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is being loaded")

    def _append_alone(
        self,
        log: CoordinatorPartition,
        encoded: Sequence[Encoded],
        replayed: Sequence[CoordinatorRecord],
        pending: AnyPendingOperation,
        now_ms: int,
    ) -> None:
        """Append a batch for one operation. Records that cannot be replayed are not written."""
        offset, shard = log.log_end_offset, self.shard
        assert shard is not None
        try:
            for record in replayed:
                shard.replay(offset, -1, -1, record)
                offset += 1
        except Exception as error:  # noqa: BLE001 - logged there; the shard's state cannot be used
            self._replay_failed(error, pending)
            return
        try:
            info = log.append(build_plain(encoded, now_ms, self._context.compression), now_ms)
        except ApiException as error:
            self._append_refused(error, (pending,), bool(replayed))
            return
        end = info.last_offset + 1
        if self._pending or log.high_watermark < end:
            self._appended(end, [pending])
        else:
            self._written = end
            pending.succeed()

    def _linger_over(self) -> None:
        if self._batch is not None:
            self._adaptive_linger.found(len(self._batch.operations))
        self._flush()

    def _replay(self, batch: OpenBatch, first: int, records: Sequence[CoordinatorRecord]) -> None:
        assert self.shard is not None
        batch.replayed = True
        try:
            for index, record in enumerate(records):
                self.shard.replay(first + index, -1, -1, record)
        except Exception as error:  # noqa: BLE001 - logged there; the shard's state cannot be used
            self._batch = None
            self._replay_failed(error, *batch.operations)

    def _append_refused(
        self, error: ApiException, operations: Iterable[AnyPendingOperation], replayed: bool
    ) -> None:
        _logger.error("Cannot append to %s: %s", self, error.message)
        client_error = coordinator_error(error)
        for pending in operations:
            pending.fail(client_error)
        if replayed:
            self._reload()

    def _flush(self) -> None:
        batch, self._batch = self._batch, None
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if batch is None:
            return
        assert self._log is not None
        try:
            data = build_plain(batch.records, batch.now_ms, self._context.compression)
            info = self._log.append(data, batch.now_ms)
        except ApiException as error:
            self._append_refused(error, batch.operations, batch.replayed)
            return
        self._appended(info.last_offset + 1, batch.operations)

    def _reload(self) -> None:
        """The state has records that the log does not have: load it again from the log."""
        self.state = State.INITIAL
        self._unload(True)
        self.load()

    # -- transactions

    def run_transactional(
        self,
        operation: Callable[[S, int], CoordinatorResult[R]],
        producer_id: int,
        producer_epoch: int,
        pending: PendingOperation[R],
        guard: VerificationGuard | None,
    ) -> None:
        """Run a write operation whose records belong to a transaction: they get a batch of their own."""
        now_ms = self._context.clock.now_ms()
        self._flush()
        if self.state is not State.ACTIVE:
            pending.fail(self._not_coordinated())
            return
        assert self.shard is not None
        try:
            result = operation(self.shard, now_ms)
        except Exception as error:  # noqa: BLE001 - logged there
            self._operation_failed(error, pending)
            return
        pending.response, pending.on_committed = result.response, result.on_committed
        if not result.records:
            self._wait(pending)
            return
        log, serde = self._log, self._context.serde
        assert log is not None and self.shard is not None
        encoded = [serde.encode(record) for record in result.records]
        try:
            check_fits(size_of(encoded), log.max_batch_bytes)
            data = build_transactional(
                encoded, now_ms, self._context.compression, producer_id, producer_epoch
            )
            info = log.append(data, now_ms, guard=guard)
        except ApiException as error:
            pending.fail(coordinator_error(error))
            return
        try:
            for index, record in enumerate(result.records):
                self.shard.replay(info.first_offset + index, producer_id, producer_epoch, record)
        except Exception as error:  # noqa: BLE001 - logged there; the shard's state cannot be used
            self._replay_failed(error, pending)
            return
        self._appended(info.last_offset + 1, [pending])

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
        pending: PendingOperation[None],
    ) -> None:
        """Append the marker that ends a transaction."""
        now_ms = self._context.clock.now_ms()
        self._flush()
        if self.state is not State.ACTIVE:
            pending.fail(self._not_coordinated())
            return
        assert self._log is not None and self.shard is not None
        marker = build_end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        try:
            info = self._log.append(marker, now_ms, transaction_version)
        except ApiException as error:
            pending.fail(error)
            return
        try:
            self.shard.replay_end_transaction_marker(producer_id, producer_epoch, commit)
        except Exception as error:  # noqa: BLE001 - logged there; the shard's state cannot be used
            self._replay_failed(error, pending)
            return
        self._appended(info.last_offset + 1, [pending])

    def _replay_failed(self, error: Exception, *operations: AnyPendingOperation) -> None:
        """The state is neither the old nor the new one: load it again from the log."""
        _logger.exception("Records of %s cannot be replayed", self)
        unexpected = ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}")
        for pending in operations:
            pending.fail(unexpected)
        self._reload()

    # -- waiting for commits

    def _appended(self, end_offset: int, operations: list[AnyPendingOperation]) -> None:
        self._written = end_offset
        for pending in operations:
            pending.end_offset = end_offset
        self._pending.extend(operations)
        self._high_watermark_moved()
        if self._pending:
            self._expire_later(operations)

    def _wait(self, pending: AnyPendingOperation) -> None:
        """Nothing was written, but the response may depend on records that others wrote before."""
        if self._batch is not None:
            self._batch.operations.append(pending)
            return
        assert self._log is not None
        if not self._pending and self._log.high_watermark >= self._written:
            pending.succeed()
            return
        pending.end_offset = self._written
        self._pending.append(pending)
        self._expire_later((pending,))

    def _high_watermark_moved(self) -> None:
        pending, log = self._pending, self._log
        assert log is not None
        high_watermark = log.high_watermark
        while pending and pending[0].end_offset <= high_watermark:
            pending.popleft().succeed()
            if self._log is not log:
                return

    def _expire_later(self, operations: Iterable[AnyPendingOperation]) -> None:
        """The records are appended but not committed: bound the wait by the write timeout."""
        clock, timeout_s = self._context.clock, self._context.write_timeout_ms / 1000
        deadline = clock.monotonic() + timeout_s
        for pending in operations:
            pending.deadline = deadline
        if self._expiry is None:
            self._expiry = clock.call_later(timeout_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        clock = self._context.clock
        now = clock.monotonic()
        error = ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self} was not replicated in time")
        overdue = [
            pending for pending in self._pending if pending.deadline is not None and pending.deadline <= now
        ]
        gone = {id(pending) for pending in overdue if not pending.outlives_its_time}
        self._pending = deque(pending for pending in self._pending if id(pending) not in gone)
        for pending in overdue:
            pending.expire(error)
        deadline = next((each.deadline for each in self._pending if each.deadline is not None), None)
        if deadline is not None and self._expiry is None:
            self._expiry = clock.call_later(max(deadline - clock.monotonic(), 0.001), self._expire)

    # -- timers and metadata

    def _run_timer(
        self,
        operation: TimerOperation,
        still_wanted: Callable[[], bool],
        failed: Callable[[ApiException], None],
    ) -> None:
        if self.state is not State.ACTIVE or not still_wanted():
            return

        def report(error: ApiException) -> None:
            _logger.warning("A timer of %s could not be written: %s", self, error.message)
            failed(error)

        self.run(lambda shard, now_ms: operation(now_ms), PendingOperation(_ignore, report))

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass new metadata on to the shard."""
        if self.state is State.ACTIVE and self.shard is not None:
            self.shard.on_metadata_update(delta, image)
