"""One shard on its partition: loaded from the log, written through batches, answering when those are committed.

    INITIAL ──load──▶ LOADING ──▶ ACTIVE
                         │           │ an append failed after its records were replayed: load again
                         ▼           ▼
                       FAILED      CLOSED (resigned)

Which partitions there are is `runtime.py`'s; the logic is the shard's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.clock import Clock, Timer
from ottla.coordinator.batching import (
    AdaptiveLinger,
    OpenBatch,
    build_plain,
    build_transactional,
    check_fits,
    size_of,
)
from ottla.coordinator.loading import Loaded, Slice, load_slice
from ottla.coordinator.partition import CoordinatorPartition
from ottla.coordinator.records import CoordinatorRecord, Encoded, RecordSerde
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import CoordinatorShard, ShardContext
from ottla.coordinator.timers import TimerOperation, Timers
from ottla.coordinator.waiters import Waiter, coordinator_error
from ottla.errors import ApiException, ErrorCode
from ottla.log.verification import VerificationGuard
from ottla.records.codecs import Compression
from ottla.records.control import build_end_txn_marker

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)

REPLAY_SLICE_S: Final = 0.004
"""How long replaying what was read may hold the loop at a time."""

PART: Final = 500
"""Records that go together where an operation does not need all of its own in one batch."""


class State(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_NOTHING: Final = object()


def _ignore(outcome: Any) -> None:
    """The last part answers for all."""


@dataclass(frozen=True, slots=True)
class RuntimeContext(Generic[S]):
    """What all hosts of one coordinator share."""

    topic: str
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


class ShardHost(Generic[S]):
    """See the module. All methods run on the event loop."""

    def __init__(self, around: RuntimeContext[S], partition: int, leader_epoch: int) -> None:
        self._around = around
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = State.INITIAL
        self.shard: S | None = None
        self._log: CoordinatorPartition | None = None
        self._timers = Timers(around.clock, self._run_timer)
        self._batch: OpenBatch | None = None
        self._linger: Timer | None = None
        self._company = AdaptiveLinger(around.linger_ms)
        self._written = 0
        """The end of what was appended here: answers wait until the high watermark is there."""
        self._pending: deque[Waiter] = deque()
        self._expiry: Timer | None = None
        self._load = 0
        """Counts loads, so that what an abandoned one reads is dropped."""

    def __repr__(self) -> str:
        return f"{self._around.topic}-{self.partition}"

    # -- loading

    def load(self) -> None:
        """Begin to load, unless that has begun. An empty log is loaded at once."""
        if self.state is not State.INITIAL:
            return
        self.state = State.LOADING
        self._load += 1
        around = self._around
        context = ShardContext(self.partition, self.leader_epoch, around.clock, self._timers)
        try:
            self._log = log = around.open(self.partition)
            self.shard = around.new_shard(context)
            self._read_from(log.log_start_offset, self._load)
        except ApiException as error:
            self._load_failed(error)

    def _read_from(self, offset: int, load: int) -> None:
        log, around = self._log, self._around
        assert log is not None
        end = log.log_end_offset
        if offset >= end:
            self._activate()
            return

        def finished(future: Future[Slice]) -> None:
            around.post(self._slice_read, future, load)

        around.executor.submit(
            load_slice, log, around.serde, offset, end, around.load_buffer_bytes
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
        clock, shard = self._around.clock, self.shard
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
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a record, the shard must not be used
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
        self._written = self._log.log_end_offset
        self._log.listen(self._high_watermark_moved)
        self.shard.on_loaded(self._around.image(), self._around.clock.now_ms())

    def close(self) -> None:
        """No longer the coordinator."""
        was_active = self.state is State.ACTIVE
        self.state = State.CLOSED
        self._let_go(was_active, ErrorCode.NOT_COORDINATOR)

    def _let_go(self, was_active: bool, code: ErrorCode) -> None:
        self._load += 1
        self._timers.cancel_all()
        if self._log is not None:
            self._log.listen(None)
        for timer in (self._linger, self._expiry):
            if timer is not None:
                timer.cancel()
        self._linger = self._expiry = None
        waiting = [*self._pending, *(self._batch.waiters if self._batch is not None else ())]
        self._pending.clear()
        self._batch = None
        error = ApiException(code, f"{self} is not coordinated here any more")
        for waiter in waiting:
            waiter.fail(error)
        shard, self.shard = self.shard, None
        if shard is not None and was_active:
            shard.on_unloaded()

    # -- operations

    def unusable(self) -> ApiException | None:
        """Why no operation can be run now, if so."""
        if self.state is State.ACTIVE:
            return None
        if self.state is State.INITIAL:
            self.load()
            if self.state is State.ACTIVE:  # type: ignore[comparison-overlap]
                return None
        if self.state in (State.INITIAL, State.LOADING):
            return ApiException(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self} is being loaded")
        return ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is not coordinated here")

    def run(self, operation: Callable[[S, int], CoordinatorResult[Any]], waiter: Waiter) -> None:
        """Run a write operation; the waiter is told once."""
        now_ms = self._around.clock.now_ms()
        result = self._try(operation, now_ms, waiter)
        if result is _NOTHING:
            return
        records, waiter.response, replay, atomic, waiter.on_committed = result
        if not records:
            self._wait(waiter)
            return
        try:
            if not atomic:
                self._append_in_parts(records[:-PART], replay, now_ms)
                records = records[-PART:]
            self._append(records, replay, waiter, now_ms)
        except ApiException as error:
            waiter.fail(coordinator_error(error))

    def _append_in_parts(self, records: Sequence[CoordinatorRecord], replay: bool, now_ms: int) -> None:
        for start in range(0, len(records), PART):
            self._append(records[start : start + PART], replay, Waiter(_ignore, _ignore), now_ms)

    def _try(self, operation: Callable[[S, int], Any], now_ms: int, waiter: Waiter) -> Any:
        """What the operation gives; _NOTHING when it failed and the waiter was told."""
        assert self.shard is not None
        try:
            return operation(self.shard, now_ms)
        except ApiException as error:
            waiter.fail(error)
        except Exception as error:
            _logger.exception("An operation of %s failed", self)
            waiter.fail(ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}"))
        return _NOTHING

    def read(self, operation: Callable[[S, int], Any], waiter: Waiter) -> None:
        """Run a read operation now; it is told when all that it can have seen is committed."""
        seen = self._try(operation, self._around.clock.now_ms(), waiter)
        if seen is not _NOTHING:
            waiter.response = seen
            self._wait(waiter)

    def _append(
        self, records: Sequence[CoordinatorRecord], replay: bool, waiter: Waiter, now_ms: int
    ) -> None:
        log, serde = self._log, self._around.serde
        assert log is not None
        log.check_can_append()
        encoded = [record.encoded or serde.encode(record) for record in records]
        size = size_of(encoded)
        batch = self._batch
        if batch is None or not batch.has_room_for(size):
            if batch is not None:
                self._make_room()
            check_fits(size, log.max_batch_bytes)
            linger_ms = self._company.linger_ms()
            if linger_ms is None:
                self._append_alone(log, encoded, records if replay else (), waiter, now_ms)
                return
            batch = self._batch = OpenBatch(log.log_end_offset, now_ms, log.max_batch_bytes)
            self._linger = self._around.clock.call_later(linger_ms / 1000, self._linger_over)
        first = batch.add(encoded, size, waiter)
        if replay:
            self._replay(batch, first, records)

    def _make_room(self) -> None:
        shard = self.shard
        self._flush()
        if self.shard is not shard:
            # The batch was refused and the state loaded again: what the operation went by may be gone.
            raise ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is being loaded")

    def _append_alone(
        self,
        log: CoordinatorPartition,
        encoded: Sequence[Encoded],
        replayed: Sequence[CoordinatorRecord],
        waiter: Waiter,
        now_ms: int,
    ) -> None:
        """A batch for one operation. What cannot be replayed is not written."""
        offset, shard = log.log_end_offset, self.shard
        assert shard is not None
        try:
            for record in replayed:
                shard.replay(offset, -1, -1, record)
                offset += 1
        except Exception as error:  # noqa: BLE001 - logged there; the shard must not go on like this
            self._broken(error, waiter)
            return
        try:
            info = log.append(build_plain(encoded, now_ms, self._around.compression), now_ms)
        except ApiException as error:
            self._refused(error, (waiter,), bool(replayed))
            return
        end = info.last_offset + 1
        if self._pending or log.high_watermark < end:
            self._appended(end, [waiter])
        else:
            self._written = end
            waiter.succeed()

    def _linger_over(self) -> None:
        if self._batch is not None:
            self._company.found(len(self._batch.waiters))
        self._flush()

    def _replay(self, batch: OpenBatch, first: int, records: Sequence[CoordinatorRecord]) -> None:
        assert self.shard is not None
        batch.replayed = True
        try:
            for index, record in enumerate(records):
                self.shard.replay(first + index, -1, -1, record)
        except Exception as error:  # noqa: BLE001 - logged there; the shard must not go on like this
            self._batch = None
            self._broken(error, *batch.waiters)

    def _refused(self, error: ApiException, waiters: Iterable[Waiter], replayed: bool) -> None:
        _logger.error("Cannot append to %s: %s", self, error.message)
        told = coordinator_error(error)
        for waiter in waiters:
            waiter.fail(told)
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
            data = build_plain(batch.records, batch.now_ms, self._around.compression)
            info = self._log.append(data, batch.now_ms)
        except ApiException as error:
            self._refused(error, batch.waiters, batch.replayed)
            return
        self._appended(info.last_offset + 1, batch.waiters)

    def _reload(self) -> None:
        """The state has what the log has not: begin again from the log."""
        self.state = State.INITIAL
        self._let_go(True, ErrorCode.NOT_COORDINATOR)
        self.load()

    # -- transactions

    def run_transactional(
        self,
        operation: Callable[[S, int], CoordinatorResult[Any]],
        producer_id: int,
        producer_epoch: int,
        waiter: Waiter,
        guard: VerificationGuard | None,
    ) -> None:
        """Run a write operation whose records belong to a transaction: a batch of their own."""
        now_ms = self._around.clock.now_ms()
        self._flush()
        if self.state is not State.ACTIVE:
            waiter.fail(ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is not coordinated here"))
            return
        result = self._try(operation, now_ms, waiter)
        if result is _NOTHING:
            return
        waiter.response, waiter.on_committed = result.response, result.on_committed
        if not result.records:
            self._wait(waiter)
            return
        log, serde = self._log, self._around.serde
        assert log is not None and self.shard is not None
        encoded = [serde.encode(record) for record in result.records]
        try:
            check_fits(size_of(encoded), log.max_batch_bytes)
            data = build_transactional(encoded, now_ms, self._around.compression, producer_id, producer_epoch)
            info = log.append(data, now_ms, guard=guard)
        except ApiException as error:
            waiter.fail(coordinator_error(error))
            return
        try:
            for index, record in enumerate(result.records):
                self.shard.replay(info.first_offset + index, producer_id, producer_epoch, record)
        except Exception as error:  # noqa: BLE001 - logged there; the shard must not go on like this
            self._broken(error, waiter)
            return
        self._appended(info.last_offset + 1, [waiter])

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
        waiter: Waiter,
    ) -> None:
        """Append the marker that ends a transaction."""
        now_ms = self._around.clock.now_ms()
        self._flush()
        if self.state is not State.ACTIVE:
            waiter.fail(ApiException(ErrorCode.NOT_COORDINATOR, f"{self} is not coordinated here"))
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
            waiter.fail(error)
            return
        try:
            self.shard.replay_end_transaction_marker(producer_id, producer_epoch, commit)
        except Exception as error:  # noqa: BLE001 - logged there; the shard must not go on like this
            self._broken(error, waiter)
            return
        self._appended(info.last_offset + 1, [waiter])

    def _broken(self, error: Exception, *waiters: Waiter) -> None:
        """The state is neither the old nor the new one: see what loading makes of the log."""
        _logger.exception("Records of %s cannot be replayed", self)
        told = ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}")
        for waiter in waiters:
            waiter.fail(told)
        self._reload()

    # -- waiting for commits

    def _appended(self, end_offset: int, waiters: list[Waiter]) -> None:
        self._written = end_offset
        for waiter in waiters:
            waiter.end_offset = end_offset
        self._pending.extend(waiters)
        self._high_watermark_moved()
        if self._pending:
            self._expire_later(waiters)

    def _wait(self, waiter: Waiter) -> None:
        """Nothing was written, but the answer may lean on what others wrote before."""
        if self._batch is not None:
            self._batch.waiters.append(waiter)
            return
        assert self._log is not None
        if not self._pending and self._log.high_watermark >= self._written:
            waiter.succeed()
            return
        waiter.end_offset = self._written
        self._pending.append(waiter)
        self._expire_later((waiter,))

    def _high_watermark_moved(self) -> None:
        pending, log = self._pending, self._log
        assert log is not None
        mark = log.high_watermark
        while pending and pending[0].end_offset <= mark:
            pending.popleft().succeed()
            if self._log is not log:
                return

    def _expire_later(self, waiters: Iterable[Waiter]) -> None:
        """Their records are appended but not committed: they wait for that no longer than it may take."""
        clock, timeout_s = self._around.clock, self._around.write_timeout_ms / 1000
        deadline = clock.monotonic() + timeout_s
        for waiter in waiters:
            waiter.deadline = deadline
        if self._expiry is None:
            self._expiry = clock.call_later(timeout_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        clock = self._around.clock
        now = clock.monotonic()
        error = ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self} was not replicated in time")
        overdue = [
            waiter for waiter in self._pending if waiter.deadline is not None and waiter.deadline <= now
        ]
        gone = {id(waiter) for waiter in overdue if not waiter.outlives_its_time}
        self._pending = deque(waiter for waiter in self._pending if id(waiter) not in gone)
        for waiter in overdue:
            waiter.expire(error)
        deadline = next((waiter.deadline for waiter in self._pending if waiter.deadline is not None), None)
        if deadline is not None and self._expiry is None:
            self._expiry = clock.call_later(max(deadline - clock.monotonic(), 0.001), self._expire)

    # -- what happens by itself

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

        self.run(lambda shard, now_ms: operation(now_ms), Waiter(lambda response: None, report))

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell the shard of new metadata."""
        if self.state is State.ACTIVE and self.shard is not None:
            self.shard.on_metadata_update(delta, image)
