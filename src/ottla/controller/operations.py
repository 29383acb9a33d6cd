"""Operations on the metadata log: each is decided on everything appended so far, and answered when it is committed.

There are two states. The next decision is made on the state of everything appended. The committed state is what remains
when another node takes the lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from ottla.controller.replay import Replay, ReplayState, replay
from ottla.controller.result import MAX_RECORDS_PER_OPERATION, ControllerResult
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import EMPTY_IMAGE
from ottla.promise import Done, Failed, Promise

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.raft.types import CommittedBatch, OffsetAndEpoch
    from ottla.wire.classes import WireMessage

R = TypeVar("R")

Appended = Callable[["Sequence[WireMessage]", int], object]
"""Called with records as they enter the state, and the offset of the first: appended here, or committed by another."""

MAX_PENDING_OPERATIONS: Final = 10_000
"""Operations that may wait for the commit of their records. Further operations are refused."""


class QuorumLog(Protocol):
    """The part of the raft driver that the controller uses."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[WireMessage]) -> int:
        """Append one atomic batch. Returns its last offset."""
        ...

    @property
    def kraft_version(self) -> int: ...

    def check_kraft_version(self, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION if kraft.version cannot be raised to this level now."""
        ...

    def upgrade_kraft_version(self, level: int, done: Done[None], failed: Failed) -> None:
        """Raise kraft.version, which is in the quorum's control records; `done` is called when it is committed."""
        ...


def not_controller() -> ApiException:
    return ApiException(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


class _Pending(msgspec.Struct, Generic[R]):
    """An operation whose records are in the log up to `last_offset` but not committed yet."""

    last_offset: int
    state: ReplayState
    response: R
    promise: Promise[R]
    timer: Timer | None = None

    def committed(self) -> None:
        self._cancel_timer()
        self.promise.resolve(self.response)

    def failed(self, error: ApiException) -> None:
        self._cancel_timer()
        self.promise.reject(error)

    def _cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Operations:
    """Runs the controller's operations while it leads, and follows the log while another node leads."""

    def __init__(self, metadata_log: QuorumLog, clock: Clock, on_records: Appended, max_pending: int) -> None:
        self.log = metadata_log
        self.leading = False
        self.state = ReplayState()
        """The state of everything appended so far, committed or not."""
        self._clock = clock
        self._on_records = on_records
        self._max_pending = max_pending
        self._committed = ReplayState()
        self._pending: deque[_Pending[Any]] = deque()

    # Events of the log

    def load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        loading = Replay(ReplayState(EMPTY_IMAGE))
        last_offset = snapshot_id.offset - 1
        for batch in batches:
            loading.feed(batch.records)
            for record in batch.records:
                # A snapshot does not have the original offset of a record.
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
            finished.append(pending)
        if self._committed.image.offset < batch.last_offset:
            # Part of an operation that was too big for one batch; the rest may never be committed.
            self._committed = replay(self._committed, batch.records, batch.last_offset, batch.epoch)
        for pending in finished:
            pending.committed()

    def lead(self) -> None:
        self.leading = True

    def resign(self) -> None:
        """Another node leads now: uncommitted records may be lost. Waiting requests fail with NOT_CONTROLLER."""
        self.leading = False
        self.state = self._committed
        pending, self._pending = self._pending, deque()
        for operation in pending:
            operation.failed(not_controller())

    # Decisions of the controller

    def run(
        self,
        operation: Callable[[], ControllerResult[R]],
        done: Done[R],
        failed: Failed,
        timeout_ms: int | None = None,
    ) -> None:
        """Decide now, append the records, and answer when they are committed.

        `failed` is called instead when the whole operation fails: refused, timed out, not the controller, queue full.
        """
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
        promise = Promise[R]()
        promise.then(done, failed)
        if result.records:
            offset, state = self.state.image.offset, self.state
        elif self._pending:
            # It changes nothing, but its response may depend on uncommitted operations: it waits for them.
            offset, state = self._pending[-1].last_offset, self._pending[-1].state
        else:
            promise.resolve(result.response)
            return
        pending = _Pending(offset, state, result.response, promise)
        self._pending.append(pending)
        if timeout_ms is not None:
            pending.timer = self._clock.call_later(max(timeout_ms, 0) / 1000, _time_out, pending)

    def _append(self, result: ControllerResult[R]) -> None:
        records = result.records
        step = len(records) if result.atomic else MAX_RECORDS_PER_OPERATION
        epoch = self.log.leader_epoch
        first_offset = self.log.log_end_offset
        # Replay first: records that cannot be replayed must not get into the log.
        state = replay(self.state, records, first_offset + len(records) - 1, epoch)
        for start in range(0, len(records), step):
            try:
                self.log.append(records[start : start + step])
            except ApiException:
                self._appended_in_part(records[:start], first_offset, epoch)
                raise
        self.state = state
        self._on_records(records, first_offset)

    def _appended_in_part(self, records: Sequence[WireMessage], first_offset: int, epoch: int) -> None:
        """Apply the records that are in the log, though the rest of their operation was refused."""
        if records:
            self.state = replay(self.state, records, first_offset + len(records) - 1, epoch)
            self._on_records(records, first_offset)


def _time_out(pending: _Pending[R]) -> None:
    pending.failed(
        ApiException(
            ErrorCode.REQUEST_TIMED_OUT,
            "The change was written but is not committed yet; it may still take effect.",
        )
    )
