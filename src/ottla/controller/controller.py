"""The controller's runtime: runs the pure modules one request after the other and appends what they decide.

It keeps the image of everything appended, so that a request sees what the one before it decided, and answers
once the records are committed. What the records mean is `ottla.metadata`; how they are made durable `ottla.raft`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.controller import brokers, configs, features, producer_ids, topics
from ottla.controller.activation import activation_records
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.replay import Replay, ReplayState, replay
from ottla.controller.result import MAX_RECORDS_PER_OPERATION, ControllerResult, Message
from ottla.controller.settings import Settings
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.raft.types import CommittedBatch, OffsetAndEpoch

log = logging.getLogger(__name__)

Done = Callable[[Message], None]
"""Called on the event loop with the response message, after its records are committed."""
Failed = Callable[[KafkaError], None]
"""Called instead of `Done` when the whole operation failed (refused, timed out, not the controller, queue full)."""

MAX_PENDING_OPERATIONS: Final = 10_000
"""Operations that may wait for their records to be committed; beyond it new ones are refused."""

_LATEST: Final = 1 << 15
"""A version beyond all: what a caller inside this process speaks."""


class MetadataLog(Protocol):
    """What the controller needs of the raft driver."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[Any]) -> int:
        """Append one atomic batch; gives its last offset."""
        ...


@dataclass(slots=True)
class _Waiter:
    done: Done
    failed: Failed
    response: Message
    timer: Timer | None = None
    over: bool = False

    def finish(self, error: KafkaError | None = None) -> None:
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
class _Appended:
    """An operation whose records are in the log up to `last_offset` but not committed yet."""

    last_offset: int
    state: ReplayState
    waiter: _Waiter


class Controller:
    """The active (or waiting) controller of this node. All methods are called on the event loop.

    Requests and responses are Kafka's own messages, so that the same methods serve a request of a client, of
    another broker or of this node's own broker. It is a listener of the raft driver, to be added after the
    one that publishes images: who gets an answer then finds its effect in the published image.
    """

    def __init__(
        self,
        metadata_log: MetadataLog,
        clock: Clock,
        settings: Settings,
        *,
        bootstrap_records: Sequence[Message] = (),
        max_pending: int = MAX_PENDING_OPERATIONS,
    ) -> None:
        self.settings = settings
        self.active = False
        """This node leads the quorum and has finished its activation."""
        self._log = metadata_log
        self._clock = clock
        self._bootstrap = list(bootstrap_records)
        self._max_pending = max_pending
        self._claimed_epoch: int | None = None
        self._state = ReplayState()
        self._committed = ReplayState()
        self._pending: deque[_Appended] = deque()
        self._heartbeats = BrokerHeartbeats(settings.node_id)
        self._when_active: list[Callable[[], None]] = []

    @property
    def image(self) -> MetadataImage:
        """Everything appended so far, committed or not: what decisions are made on."""
        return self._state.image

    def on_active(self, callback: Callable[[], None]) -> None:
        """Call back once the activation records are committed (at once if they are)."""
        if self.active:
            callback()
        else:
            self._when_active.append(callback)

    # The quorum speaks

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        loading = Replay(ReplayState(EMPTY_IMAGE))
        self._heartbeats.forget_all()
        for batch in batches:
            loading.feed(batch.records)
            self._heartbeats.note_registrations(batch.records, first_offset=snapshot_id.offset - 1, step=0)
        self._state = self._committed = loading.finish(snapshot_id.offset - 1, snapshot_id.epoch)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        if self._claimed_epoch is None:
            self._follow(batches)
            return
        for batch in batches:
            while self._pending and self._pending[0].last_offset <= batch.last_offset:
                appended = self._pending.popleft()
                self._committed = appended.state
                appended.waiter.finish()

    def _follow(self, batches: Iterable[CommittedBatch]) -> None:
        """Another leads, or nobody yet: the log is all there is to know."""
        following = Replay(self._state)
        offset, epoch = self.image.offset, self.image.epoch
        for batch in batches:
            following.feed(batch.records)
            self._heartbeats.note_registrations(batch.records, first_offset=batch.base_offset)
            offset, epoch = batch.last_offset, batch.epoch
        self._state = self._committed = following.finish(offset, epoch)

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        leads = leader_id == self.settings.node_id
        if leads and epoch == self._claimed_epoch:
            return
        if self._claimed_epoch is not None:
            self._renounce()
        if leads:
            self._claim(epoch)

    def _claim(self, epoch: int) -> None:
        self._claimed_epoch = epoch
        result = activation_records(
            self.image, self._bootstrap, self.settings, in_transaction=self._state.in_transaction
        )
        if result.records:
            log.info("This controller becomes active and writes %d record(s)", len(result.records))
        self._run(lambda: result, self._activated, self._activation_failed)

    def _activated(self, _response: None) -> None:
        self.active = True
        waiting, self._when_active = self._when_active, []
        for callback in waiting:
            callback()

    def _activation_failed(self, error: KafkaError) -> None:
        log.warning("This controller did not become active: %s", error.message)

    def _renounce(self) -> None:
        """Another leads now: what is not committed may never be."""
        self._claimed_epoch = None
        self.active = False
        self._state = self._committed
        pending, self._pending = self._pending, deque()
        for appended in pending:
            appended.waiter.finish(_not_controller())

    def shutdown(self) -> None:
        """Fail what waits with NOT_CONTROLLER, and refuse what comes."""
        self._renounce()

    # Running an operation

    def _run(
        self,
        operation: Callable[[], ControllerResult[Any]],
        done: Done,
        failed: Failed,
        timeout_ms: int | None = None,
    ) -> None:
        if self._claimed_epoch is None:
            failed(_not_controller())
            return
        if len(self._pending) >= self._max_pending:
            failed(
                KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{len(self._pending)} operations wait for the metadata log already; try again later.",
                )
            )
            return
        try:
            result = operation()
            if result.records:
                self._append(result)
        except KafkaError as error:
            failed(_not_controller() if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error)
            return
        waiter = _Waiter(done, failed, result.response)
        if result.records:
            self._pending.append(_Appended(self.image.offset, self._state, waiter))
        elif self._pending:
            # It changed nothing, but it may tell of what others have changed: it waits until that is certain.
            last = self._pending[-1]
            self._pending.append(_Appended(last.last_offset, last.state, waiter))
        else:
            waiter.finish()
            return
        if timeout_ms is not None:
            waiter.timer = self._clock.call_later(max(timeout_ms, 0) / 1000, _time_out, waiter)

    def _append(self, result: ControllerResult[Any]) -> None:
        records = result.records
        step = len(records) if result.atomic else MAX_RECORDS_PER_OPERATION
        epoch = self._log.leader_epoch
        first_offset = self._log.log_end_offset
        # Replayed before it is written: what cannot be replayed must not get into the log.
        state = replay(self._state, records, first_offset + len(records) - 1, epoch)
        for start in range(0, len(records), step):
            self._log.append(records[start : start + step])
        self._state = state
        self._heartbeats.note_registrations(records, first_offset)

    # Requests

    def create_topics(self, request: Message, done: Done, failed: Failed) -> None:
        self._run(
            lambda: topics.create_topics(self.image, request, self.settings, self._clock),
            done,
            failed,
            request.timeout_ms,
        )

    def delete_topics(self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST) -> None:
        self._run(
            lambda: topics.delete_topics(self.image, request, self.settings, version),
            done,
            failed,
            request.timeout_ms,
        )

    def create_partitions(self, request: Message, done: Done, failed: Failed) -> None:
        self._run(
            lambda: topics.create_partitions(self.image, request, self._clock),
            done,
            failed,
            request.timeout_ms,
        )

    def alter_configs(self, request: Message, done: Done, failed: Failed) -> None:
        self._run(lambda: configs.alter_configs(self.image, request, self.settings), done, failed)

    def incremental_alter_configs(self, request: Message, done: Done, failed: Failed) -> None:
        self._run(lambda: configs.incremental_alter_configs(self.image, request, self.settings), done, failed)

    def update_features(
        self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST
    ) -> None:
        self._run(
            lambda: features.update_features(self.image, request, self.settings, version),
            done,
            failed,
            request.timeout_ms,
        )

    def register_broker(self, request: Message, done: Done, failed: Failed) -> None:
        """BrokerRegistrationRequest -> BrokerRegistrationResponse (with the broker epoch)."""

        def operation() -> ControllerResult[Message]:
            return brokers.register_broker(
                self.image,
                request,
                self.settings,
                next_offset=self._log.log_end_offset,
                session_is_alive=self._heartbeats.has_session(request.broker_id),
            )

        self._run(operation, done, failed)

    def unregister_broker(self, request: Message, done: Done, failed: Failed) -> None:
        self._run(lambda: brokers.unregister_broker(self.image, request, self.settings), done, failed)

    def register_controller(self, request: Message, done: Done, failed: Failed) -> None:
        """ControllerRegistrationRequest -> ControllerRegistrationResponse."""
        self._run(lambda: brokers.register_controller(self.image, request), done, failed)

    def broker_heartbeat(self, request: Message, done: Done, failed: Failed) -> None:
        """BrokerHeartbeatRequest -> BrokerHeartbeatResponse; unfences, fences or shuts down the broker."""
        broker_id = request.broker_id

        def operation() -> ControllerResult[Message]:
            state, result = brokers.heartbeat(
                self.image,
                request,
                self.settings,
                registration_offset=self._heartbeats.registration_offset(broker_id),
                others_know_shutdown=self._heartbeats.others_know_shutdown(self.image, broker_id),
            )
            last_offset = self._log.log_end_offset + len(result.records) - 1
            self._heartbeats.touch(broker_id, request.current_metadata_offset, state, last_offset)
            return result

        self._run(operation, done, failed)

    def allocate_producer_ids(self, request: Message, done: Done, failed: Failed) -> None:
        """AllocateProducerIdsRequest -> AllocateProducerIdsResponse: a block of 1,000 ids."""
        self._run(lambda: producer_ids.allocate_producer_ids(self.image, request), done, failed)


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


def _time_out(waiter: _Waiter) -> None:
    waiter.finish(
        KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "The change was written but is not committed yet; it may still take effect.",
        )
    )
