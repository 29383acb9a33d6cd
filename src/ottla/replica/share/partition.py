"""A share partition with hands: it loads what was kept, has changes kept, and takes records back when locks end.

Which records go where is decided by the state machine (`in_flight`, `acquisition`, `acknowledgement`); reading the
log for a client is `fetch`.
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
    KeptState,
    Message,
    Persister,
    ShareKey,
    kept_state,
    only_result,
    read_request,
    write_request,
)
from ottla.replica.share.states import Acknowledgement, Acquired, AcquireMode, ShareSettings, StateBatch

if TYPE_CHECKING:
    from ottla.replica.delayed_requests import Waiters
    from ottla.replica.offload import Offload
    from ottla.replica.partition import Partition

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
        "_alarm",
        "_alarm_at",
        "_clock",
        "_flight",
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
        offload: Offload,
        persister: Persister,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.waiters: Waiters = {}
        self.reading = False
        """A request reads for this partition: what it will acquire is not for others."""
        self.error: ApiException | None = None
        """Why it cannot be used: it has to be made anew."""
        self._clock = clock
        self._offload = offload
        self._persister = persister
        self._settings = settings
        self._stage = _Stage.NEW
        self._state_epoch = 0
        self._flight = InFlight(0)
        self._alarm: Timer | None = None
        self._alarm_at = 0.0

    def __repr__(self) -> str:
        return f"<SharePartition {self.key.group_id} {self.partition.topic}-{self.key.partition} {self._stage.value}>"

    # -- the beginning and the end

    @property
    def settings(self) -> ShareSettings:
        return self._settings()

    @property
    def in_office(self) -> bool:
        """Whether this broker still leads the partition, in the epoch in which the share coordinator was asked."""
        partition = self.partition
        return partition.is_leader and not partition.gone and partition.leader_epoch == self.leader_epoch

    @property
    def active(self) -> bool:
        return self._stage is _Stage.ACTIVE

    @property
    def flight(self) -> InFlight:
        return self._flight

    def load(self) -> None:
        """Ask the share coordinator what was kept, the first time; who waits is woken when it is there."""
        if self._stage is _Stage.NEW:
            self._stage = _Stage.LOADING
            self._persister.read_state(read_request(self.key, self.leader_epoch), self._read_done)

    def close(self, error: ApiException) -> None:
        """Not used any more: somebody else leads the partition, or its offsets were reset, or the group is empty."""
        self._stage = _Stage.CLOSED
        self.error = error
        self._set_alarm(None)
        self._wake()

    def _read_done(self, response: Message) -> None:
        try:
            kept = kept_state(response)
            if kept.start_offset < 0:
                self._begin_anew(kept)
            else:
                self._loaded(kept, kept.start_offset)
        except ApiException as error:
            self.close(error)

    def _begin_anew(self, kept: KeptState) -> None:
        """Nobody has consumed yet: begin where `share.auto.offset.reset` says."""
        reset = self.settings.auto_offset_reset
        log = self.partition.local_log()
        if reset == "earliest":
            self._loaded(kept, log.log_start_offset)
        elif reset.startswith(BY_DURATION):
            since = self._clock.now_ms() - duration_ms(reset.removeprefix(BY_DURATION))
            self._offload.run(partial(log.offset_for_timestamp, since), partial(self._timestamp_found, kept))
        else:
            self._loaded(kept, log.high_watermark)

    def _timestamp_found(self, kept: KeptState, future: Future[TimestampOffset | None]) -> None:
        found = outcome(future)
        try:
            if isinstance(found, ApiException):
                raise found
            # Without a record that young the group begins with the next one to come.
            offset = self.partition.local_log().high_watermark if found is None else found.offset
            self._loaded(kept, offset)
        except ApiException as error:
            self.close(error)

    def _loaded(self, kept: KeptState, start_offset: int) -> None:
        if self._stage is not _Stage.LOADING:
            return
        try:
            self._flight = InFlight.load(start_offset, kept.batches)
        except ValueError as error:
            _logger.error("The kept state of %r cannot be used: %s", self, error)
            self.close(
                ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"The share partition failed to load: {error}")
            )
            return
        self._state_epoch = kept.state_epoch
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
            self._set_alarm(now + settings.record_lock_ms / 1000)
        return acquired

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records before this offset are gone from the log."""
        self._flight.drop_before(log_start_offset)

    # -- acknowledging

    def acknowledge(self, member: str, acknowledgements: Iterable[Acknowledgement], done: Settled) -> None:
        """Take a member's word on its records; `done` when that is kept, or cannot be."""
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
        self._keep(change, done)

    def release(self, member: str, done: Settled) -> None:
        """Give back what a member holds."""
        if self._stage is not _Stage.ACTIVE:
            done(None)
            return
        self._keep(release(self._flight, self.settings, member), done)

    def _keep(self, change: Change, done: Settled) -> None:
        if not change.batches:
            done(None)
            return

        def answered(response: Message) -> None:
            error = _error_of(response)
            settle(self._flight, self.settings, change, self._clock.monotonic(), kept=error is None)
            done(error)
            self._wake()

        self._write(change.batches, answered)

    def _write(self, batches: Sequence[StateBatch], done: Callable[[Message], None]) -> None:
        request = write_request(
            self.key,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self._flight.start_offset,
            delivery_complete_count=self._flight.terminal,
            batches=batches,
        )
        self._persister.write_state(request, done)

    # -- locks that end

    def _set_alarm(self, at: float | None) -> None:
        """Look at the locks at a time, unless that is done earlier anyway."""
        if at is not None and self._alarm is not None and self._alarm_at <= at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at is not None:
            self._alarm_at = at
            self._alarm = self._clock.call_later(at - self._clock.monotonic(), self._locks_end)

    def _locks_end(self) -> None:
        self._alarm = None
        changes, next_deadline = expire(self._flight, self.settings, self._clock.monotonic())
        self._set_alarm(next_deadline)
        if changes:
            self._write(changes, self._expiry_kept)
            self._wake()

    def _expiry_kept(self, response: Message) -> None:
        error = _error_of(response)
        if error is not None:
            # The records are available all the same; after a restart they count one delivery less.
            _logger.warning("Expired locks of %r were not kept: %s", self, error.message)
        self._flight.advance()
        self._wake()

    def _wake(self) -> None:
        for parked in self.waiters:
            parked.ready()


def _error_of(response: Message) -> ApiException | None:
    try:
        only_result(response)
    except ApiException as error:
        return error
    return None
