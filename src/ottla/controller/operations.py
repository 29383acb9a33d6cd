"""Operations on the metadata log: decided one after the other on everything appended, answered once committed.

It keeps two states: of all that was appended, which the next decision is made on, and of what is committed, which is
all that is left when another node takes the lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.controller.replay import Replay, ReplayState, replay
from ottla.controller.result import MAX_RECORDS_PER_OPERATION, ControllerResult, Message
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.raft.types import CommittedBatch, OffsetAndEpoch

Done = Callable[[Message], object]
"""Called on the event loop with the response message, after its records are committed."""
Failed = Callable[[ApiException], object]
"""Called instead of `Done` when the whole operation failed (refused, timed out, not the controller, queue full)."""
Appended = Callable[[Sequence[Message], int], object]
"""Told of records as they enter the state, with the offset of the first: appended here, or committed by another."""

MAX_PENDING_OPERATIONS: Final = 10_000
"""Operations that may wait for their records to be committed; beyond it new ones are refused."""


class MetadataLog(Protocol):
    """What the controller needs of the raft driver."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[Any]) -> int:
        """Append one atomic batch; gives its last offset."""
        ...


def not_controller() -> ApiException:
    return ApiException(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


@dataclass(slots=True)
class _Waiter:
    done: Done
    failed: Failed
    response: Message
    timer: Timer | None = None
    over: bool = False

    def finish(self, error: ApiException | None = None) -> None:
        if self.over:
            return
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        if error is None:
            self.done(self.response)
        else:
            self.failed(error)


@dataclass(slots=True)
class _Pending:
    """An operation whose records are in the log up to `last_offset` but not committed yet."""

    last_offset: int
    state: ReplayState
    waiter: _Waiter


class Operations:
    """Runs the controller's operations while it leads, and follows the log while another does."""

    def __init__(
        self, metadata_log: MetadataLog, clock: Clock, on_records: Appended, max_pending: int
    ) -> None:
        self.log = metadata_log
        self.leading = False
        self.state = ReplayState()
        """Everything appended so far, committed or not."""
        self._clock = clock
        self._on_records = on_records
        self._max_pending = max_pending
        self._committed = ReplayState()
        self._pending: deque[_Pending] = deque()

    # What the log says

    def load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        loading = Replay(ReplayState(EMPTY_IMAGE))
        last_offset = snapshot_id.offset - 1
        for batch in batches:
            loading.feed(batch.records)
            for record in batch.records:
                # A snapshot does not tell where in the log a record stood.
                self._on_records((record,), last_offset)
        self.state = self._committed = loading.finish(last_offset, snapshot_id.epoch)

    def committed(self, batches: Iterable[CommittedBatch]) -> None:
        if self.leading:
            for batch in batches:
                self._own_committed(batch)
            return
        following = Replay(self.state)
        offset, epoch = self.state.image.offset, self.state.image.epoch
        for batch in batches:
            following.feed(batch.records)
            self._on_records(batch.records, batch.base_offset)
            offset, epoch = batch.last_offset, batch.epoch
        self.state = self._committed = following.finish(offset, epoch)

    def _own_committed(self, batch: CommittedBatch) -> None:
        finished = []
        while self._pending and self._pending[0].last_offset <= batch.last_offset:
            pending = self._pending.popleft()
            self._committed = pending.state
            finished.append(pending.waiter)
        if self._committed.image.offset < batch.last_offset:
            # A part of an operation that was too big for one batch; the rest may never come.
            self._committed = replay(self._committed, batch.records, batch.last_offset, batch.epoch)
        for waiter in finished:
            waiter.finish()

    def lead(self) -> None:
        self.leading = True

    def renounce(self) -> None:
        """Another leads now: what is not committed may never be. Who waits is told NOT_CONTROLLER."""
        self.leading = False
        self.state = self._committed
        pending, self._pending = self._pending, deque()
        for operation in pending:
            operation.waiter.finish(not_controller())

    # What the controller decides

    def run(
        self,
        operation: Callable[[], ControllerResult[Any]],
        done: Done,
        failed: Failed,
        timeout_ms: int | None = None,
    ) -> None:
        """Decide now, append, and answer when that is committed."""
        if not self.leading:
            failed(not_controller())
            return
        if len(self._pending) >= self._max_pending:
            failed(
                ApiException(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{len(self._pending)} operations wait for the metadata log already; try again later.",
                )
            )
            return
        try:
            result = operation()
            if result.records:
                self._append(result)
        except ApiException as error:
            failed(not_controller() if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error)
            return
        waiter = _Waiter(done, failed, result.response)
        if result.records:
            self._pending.append(_Pending(self.state.image.offset, self.state, waiter))
        elif self._pending:
            # It changed nothing, but it may tell of what others have changed: it waits until that is certain.
            last = self._pending[-1]
            self._pending.append(_Pending(last.last_offset, last.state, waiter))
        else:
            waiter.finish()
            return
        if timeout_ms is not None:
            waiter.timer = self._clock.call_later(max(timeout_ms, 0) / 1000, _time_out, waiter)

    def _append(self, result: ControllerResult[Any]) -> None:
        records = result.records
        step = len(records) if result.atomic else MAX_RECORDS_PER_OPERATION
        epoch = self.log.leader_epoch
        first_offset = self.log.log_end_offset
        # Replayed before it is written: what cannot be replayed must not get into the log.
        state = replay(self.state, records, first_offset + len(records) - 1, epoch)
        for start in range(0, len(records), step):
            try:
                self.log.append(records[start : start + step])
            except ApiException:
                self._appended_in_part(records[:start], first_offset, epoch)
                raise
        self.state = state
        self._on_records(records, first_offset)

    def _appended_in_part(self, records: Sequence[Message], first_offset: int, epoch: int) -> None:
        """What is in the log counts, though the rest of its operation was refused."""
        if records:
            self.state = replay(self.state, records, first_offset + len(records) - 1, epoch)
            self._on_records(records, first_offset)


def _time_out(waiter: _Waiter) -> None:
    waiter.finish(
        ApiException(
            ErrorCode.REQUEST_TIMED_OUT,
            "The change was written but is not committed yet; it may still take effect.",
        )
    )
