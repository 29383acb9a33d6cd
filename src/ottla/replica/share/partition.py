"""A share partition: it loads the persisted state, persists changes, and takes records back when locks expire.

The state machine (`in_flight`, `acquisition`, `acknowledgement`) decides which records go where; `fetch` reads the
log for a client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ottla.clock import Clock, Timer
from ottla.config.durations import BY_DURATION, duration_ms
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TimestampOffset
from ottla.records.batch import BatchHeader
from ottla.replica.offload import outcome
from ottla.replica.share.acknowledgement import acknowledge, expire, release, settle
from ottla.replica.share.acquisition import acquire
from ottla.replica.share.in_flight import Change, InFlight
from ottla.replica.share.persister import (
    PersistedState,
    ShareKey,
    ShareStatePersister,
    persisted_state,
    read_request,
    write_error,
    write_request,
)
from ottla.replica.share.states import Acknowledgement, Acquired, AcquireMode, ShareSettings, StateBatch

if TYPE_CHECKING:
    from ottla.replica.delayed_requests import Waiters
    from ottla.replica.offload import Offloader
    from ottla.replica.partition import Partition
    from ottla.wire.messages import ReadShareGroupStateResponse, WriteShareGroupStateResponse

_logger = logging.getLogger(__name__)

Settled = Callable[[ApiException | None], None]


class _Stage(Enum):
    NEW = "new"
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class SharePartition:
    """A partition as the members of one share group consume it."""

    __slots__ = (
        "_clock",
        "_flight",
        "_lock_timer",
        "_lock_timer_at",
        "_offload",
        "_persister",
        "_settings",
        "_stage",
        "_state_epoch",
        "error",
        "key",
        "leader_epoch",
        "partition",
        "reading",
        "waiters",
    )

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        *,
        clock: Clock,
        offload: Offloader,
        persister: ShareStatePersister,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.waiters: Waiters = {}
        self.reading = False
        """A request reads for this partition: other requests wait until it has acquired its records."""
        self.error: ApiException | None = None
        """Why it cannot be used: it has to be created again."""
        self._clock = clock
        self._offload = offload
        self._persister = persister
        self._settings = settings
        self._stage = _Stage.NEW
        self._state_epoch = 0
        self._flight = InFlight(0)
        self._lock_timer: Timer | None = None
        self._lock_timer_at = 0.0

    def __repr__(self) -> str:
        return f"<SharePartition {self.key.group_id} {self.partition.topic}-{self.key.partition} {self._stage.value}>"

    # -- lifecycle

    @property
    def settings(self) -> ShareSettings:
        return self._settings()

    @property
    def still_leads(self) -> bool:
        """Whether this broker still leads the partition, in the epoch in which it loaded the state."""
        partition = self.partition
        return partition.is_leader and not partition.gone and partition.leader_epoch == self.leader_epoch

    @property
    def active(self) -> bool:
        return self._stage is _Stage.ACTIVE

    @property
    def flight(self) -> InFlight:
        return self._flight

    def load(self) -> None:
        """Read the persisted state, the first time; waiting requests are woken when it is there."""
        if self._stage is _Stage.NEW:
            self._stage = _Stage.LOADING
            self._persister.read_state(read_request(self.key, self.leader_epoch), self._read_done)

    def close(self, error: ApiException) -> None:
        """Stop using it: another broker leads the partition, its offsets were reset, or the group is empty."""
        self._stage = _Stage.CLOSED
        self.error = error
        self._set_lock_timer(None)
        self._wake()

    def _read_done(self, response: ReadShareGroupStateResponse) -> None:
        try:
            state = persisted_state(response)
            if state.start_offset < 0:
                self._begin_at_reset(state)
            else:
                self._loaded(state, state.start_offset)
        except ApiException as error:
            self.close(error)

    def _begin_at_reset(self, state: PersistedState) -> None:
        """The group has not consumed yet: begin where `share.auto.offset.reset` says."""
        reset = self.settings.auto_offset_reset
        log = self.partition.local_log()
        if reset == "earliest":
            self._loaded(state, log.log_start_offset)
        elif reset.startswith(BY_DURATION):
            since = self._clock.now_ms() - duration_ms(reset.removeprefix(BY_DURATION))
            self._offload.run(partial(log.offset_for_timestamp, since), partial(self._timestamp_found, state))
        else:
            self._loaded(state, log.high_watermark)

    def _timestamp_found(self, state: PersistedState, future: Future[TimestampOffset | None]) -> None:
        found = outcome(future)
        try:
            if isinstance(found, ApiException):
                raise found
            # Without a record of that age the group begins with the next record.
            offset = self.partition.local_log().high_watermark if found is None else found.offset
            self._loaded(state, offset)
        except ApiException as error:
            self.close(error)

    def _loaded(self, state: PersistedState, start_offset: int) -> None:
        if self._stage is not _Stage.LOADING:
            return
        try:
            self._flight = InFlight.load(start_offset, state.batches)
        except ValueError as error:
            _logger.error("The persisted state of %r cannot be used: %s", self, error)
            self.close(
                ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"The share partition failed to load: {error}")
            )
            return
        self._state_epoch = state.state_epoch
        self._stage = _Stage.ACTIVE
        self._wake()

    # -- acquiring

    def can_acquire(self) -> bool:
        """Whether a member could get records now, if the log has some."""
        if self._stage is not _Stage.ACTIVE or self.reading:
            return False
        flight = self._flight
        return flight.count < self.settings.max_in_flight or flight.next_fetch_offset() <= flight.end_offset

    def next_fetch_offset(self) -> int:
        return self._flight.next_fetch_offset()

    def acquire(
        self,
        member: str,
        batches: Sequence[BatchHeader],
        fetch_offset: int,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """Give a member records of what was read at `fetch_offset`."""
        if self._stage is not _Stage.ACTIVE:
            return []
        settings = self.settings
        now = self._clock.monotonic()
        acquired = acquire(
            self._flight,
            settings,
            member,
            batches,
            fetch_offset,
            now=now,
            max_records=max_records,
            batch_size=batch_size,
            mode=mode,
            aborted=aborted,
        )
        if acquired:
            self._set_lock_timer(now + settings.record_lock_ms / 1000)
        return acquired

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records before this offset are gone from the log."""
        self._flight.drop_before(log_start_offset)

    # -- acknowledging

    def acknowledge(self, member: str, acknowledgements: Iterable[Acknowledgement], done: Settled) -> None:
        """Acknowledge a member's records; `done` when the change is persisted, or cannot be."""
        if self._stage is not _Stage.ACTIVE:
            done(
                self.error
                or ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The share partition is loading")
            )
            return
        try:
            change = acknowledge(
                self._flight, self.settings, member, acknowledgements, self._clock.monotonic()
            )
        except ApiException as error:
            done(error)
            return
        self._persist(change, done)

    def release(self, member: str, done: Settled) -> None:
        """Give back what a member holds."""
        if self._stage is not _Stage.ACTIVE:
            done(None)
            return
        self._persist(release(self._flight, self.settings, member), done)

    def _persist(self, change: Change, done: Settled) -> None:
        if not change.batches:
            done(None)
            return

        def answered(response: WriteShareGroupStateResponse) -> None:
            error = write_error(response)
            settle(self._flight, self.settings, change, self._clock.monotonic(), persisted=error is None)
            done(error)
            self._wake()

        self._write(change.batches, answered)

    def _write(
        self, batches: Sequence[StateBatch], done: Callable[[WriteShareGroupStateResponse], None]
    ) -> None:
        request = write_request(
            self.key,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self._flight.start_offset,
            delivery_complete_count=self._flight.terminal,
            batches=batches,
        )
        self._persister.write_state(request, done)

    # -- locks that expire

    def _set_lock_timer(self, at: float | None) -> None:
        """Check the locks at a time, unless they are checked earlier anyway."""
        if at is not None and self._lock_timer is not None and self._lock_timer_at <= at:
            return
        if self._lock_timer is not None:
            self._lock_timer.cancel()
            self._lock_timer = None
        if at is not None:
            self._lock_timer_at = at
            self._lock_timer = self._clock.call_later(at - self._clock.monotonic(), self._expire_locks)

    def _expire_locks(self) -> None:
        self._lock_timer = None
        changes, next_deadline = expire(self._flight, self.settings, self._clock.monotonic())
        self._set_lock_timer(next_deadline)
        if changes:
            self._write(changes, self._expiry_persisted)
            self._wake()

    def _expiry_persisted(self, response: WriteShareGroupStateResponse) -> None:
        error = write_error(response)
        if error is not None:
            # The records are available all the same; after a restart they count one delivery less.
            _logger.warning("Expired locks of %r were not persisted: %s", self, error.message)
        self._flight.advance()
        self._wake()

    def _wake(self) -> None:
        for parked in self.waiters:
            parked.ready()
