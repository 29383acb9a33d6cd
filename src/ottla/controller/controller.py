"""The controller's runtime: every request that the active controller answers, and what it does by itself.

The decisions are the pure modules' (`topics.py`, `alter_partition.py`, `brokers.py` ...); appending and answering is
`operations.py`; sessions of brokers are `sessions.py` and `liveness.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.controller import (
    alter_partition,
    brokers,
    configs,
    directories,
    elections,
    features,
    producer_ids,
    reassignments,
    topics,
)
from ottla.controller.activation import activation_records
from ottla.controller.liveness import LivenessWatch
from ottla.controller.operations import MAX_PENDING_OPERATIONS, Done, Failed, MetadataLog, Operations
from ottla.controller.periodic import PeriodicTasks
from ottla.controller.result import ControllerResult, Message
from ottla.controller.sessions import BrokerSessions
from ottla.controller.settings import UNCLEAN_KEY, Settings
from ottla.errors import ApiException
from ottla.metadata.image import MetadataImage
from ottla.peers import Endpoint
from ottla.wire.messages import NoOpRecord

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.peers import Peers
    from ottla.raft.types import CommittedBatch, OffsetAndEpoch

log = logging.getLogger(__name__)

_LATEST: Final = 1 << 15
"""A version beyond all: what a caller inside this process speaks."""
_STALLED_PART: Final = 8
"""A session timer that is late by this part of the session says that it was this process that stood still."""


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
        peers: Peers | None = None,
        bootstrap_records: Sequence[Message] = (),
        max_pending: int = MAX_PENDING_OPERATIONS,
    ) -> None:
        self.settings = settings
        self.active = False
        """This node leads the quorum and has finished its activation."""
        self._log = metadata_log
        self._clock = clock
        self._bootstrap = list(bootstrap_records)
        self._claimed_epoch: int | None = None
        self._sessions = BrokerSessions(settings.node_id, settings.session_timeout_s)
        self._session_timer: Timer | None = None
        self._liveness = LivenessWatch(clock, peers, self._broker_is_gone, self._has_session)
        self._tasks = PeriodicTasks(clock)
        self._idle_since = -1
        self._operations = Operations(metadata_log, clock, self._sessions.note_registrations, max_pending)
        self._when_active: list[Callable[[], None]] = []

    @property
    def image(self) -> MetadataImage:
        """Everything appended so far, committed or not: what decisions are made on."""
        return self._operations.state.image

    def on_active(self, callback: Callable[[], None]) -> None:
        """Call back once the activation records are committed (at once if they are)."""
        if self.active:
            callback()
        else:
            self._when_active.append(callback)

    # The quorum speaks

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        self._sessions.forget_registrations()
        self._operations.load_snapshot(snapshot_id, batches)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        self._operations.committed(batches)

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
        self._operations.lead()
        self._sessions.begin(self.image, self._clock.monotonic())
        in_transaction = self._operations.state.in_transaction
        result = activation_records(self.image, self._bootstrap, self.settings, in_transaction=in_transaction)
        log.info("This controller becomes active in epoch %d", epoch)
        self._operations.run(lambda: result, self._activated, self._activation_failed)

    def _activated(self, _response: None) -> None:
        self.active = True
        self._watch_sessions()
        for broker_id, session in self._sessions.unheard():
            self._watch_liveness(broker_id, session.epoch)
        settings, tasks = self.settings, self._tasks
        tasks.start("elect preferred leaders", settings.balance_interval_s, self._balance_leaders)
        tasks.start(
            "elect unclean leaders", settings.unclean_election_interval_s, self._elect_unclean_leaders
        )
        self._break_silence_for_others()
        waiting, self._when_active = self._when_active, []
        for callback in waiting:
            callback()

    def _activation_failed(self, error: ApiException) -> None:
        log.warning("This controller did not become active: %s", error.message)

    def _renounce(self) -> None:
        """Another leads now, or nobody."""
        if self.active:
            log.info("This controller is not active any more")
        self._claimed_epoch = None
        self.active = False
        self._tasks.stop_all()
        self._liveness.stop()
        self._sessions.end_all()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        self._operations.renounce()

    def shutdown(self) -> None:
        """Fail what waits with NOT_CONTROLLER, and refuse what comes."""
        self._renounce()

    # Brokers that are silent

    def _watch_sessions(self) -> None:
        """Have one timer at the earliest time at which a session may run out."""
        if self._session_timer is not None:
            return
        deadline_s = self._sessions.next_deadline_s()
        if deadline_s is not None and self.active:
            delay_s = max(deadline_s - self._clock.monotonic(), 0)
            self._session_timer = self._clock.call_later(delay_s, self._check_sessions, deadline_s)

    def _check_sessions(self, due_s: float) -> None:
        self._session_timer = None
        now_s = self._clock.monotonic()
        if now_s - due_s > self.settings.session_timeout_s / _STALLED_PART:
            # This process stood still: heartbeats may lie unread, and nobody else is to blame.
            log.warning("The controller stood still for %.1f s; sessions start afresh", now_s - due_s)
            self._sessions.start_afresh(now_s)
        # One after the other, so that each decision sees the one before it.
        for broker_id, epoch in self._sessions.expired(now_s):
            log.warning("Broker %d is fenced: its session has run out", broker_id)
            self._fence(broker_id, epoch)
        self._watch_sessions()

    def _fence(self, broker_id: int, epoch: int) -> None:
        self._sessions.end(broker_id)
        self._liveness.heard(broker_id)
        self._operations.run(
            lambda: brokers.fence_broker(self.image, self.settings, broker_id, epoch),
            _nobody_waits,
            _log_failure,
        )

    def broker_disconnected(self, broker_id: int, epoch: int, connection: str) -> None:
        """The connection that a broker's heartbeats came by is lost: find out whether the broker is."""
        session = self._sessions.of(broker_id, epoch)
        if session is not None and session.connection == connection:
            session.connection = None
            self._watch_liveness(broker_id, epoch)

    def _watch_liveness(self, broker_id: int, epoch: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or broker_id == self.settings.node_id:
            return
        listener = broker.listeners.get(self.settings.inter_broker_listener)
        listener = listener or next(iter(broker.listeners.values()), None)
        if listener is not None:
            self._liveness.watch(broker_id, epoch, Endpoint(broker_id, listener.host, listener.port))

    def _has_session(self, broker_id: int, epoch: int) -> bool:
        return self._sessions.of(broker_id, epoch) is not None

    def _broker_is_gone(self, broker_id: int, epoch: int) -> None:
        if self.active and self._has_session(broker_id, epoch):
            log.warning("Broker %d is fenced: nobody listens there any more", broker_id)
            self._fence(broker_id, epoch)

    # By the clock

    def _elect(self, operation: Callable[[], ControllerResult[bool]]) -> bool:
        more = False

        def decide() -> ControllerResult[bool]:
            nonlocal more
            result = operation()
            more = result.response
            return result

        self._operations.run(decide, _nobody_waits, _log_failure)
        return more

    def _balance_leaders(self) -> bool:
        return self._elect(lambda: elections.balance_leaders(self.image, self.settings))

    def _elect_unclean_leaders(self) -> bool:
        return self._elect(lambda: elections.elect_unclean_leaders(self.image, self.settings))

    def _break_silence_for_others(self) -> None:
        """Write a NoOpRecord into an idle log, by which other nodes see that they keep up; alone, it would be vain."""
        image, own = self.image, self.settings.node_id
        if self.active and (image.brokers.keys() | image.controllers.keys()) - {own}:
            self._tasks.start("write no-op records", self.settings.max_idle_s, self._write_if_idle)

    def _write_if_idle(self) -> bool:
        if self._log.log_end_offset == self._idle_since:
            self._operations.run(lambda: ControllerResult([NoOpRecord()], None), _nobody_waits, _log_failure)
        self._idle_since = self._log.log_end_offset
        return False

    # Requests of clients

    def create_topics(self, request: Message, done: Done, failed: Failed) -> None:
        self._operations.run(
            lambda: topics.create_topics(self.image, request, self.settings, self._clock),
            done,
            failed,
            request.timeout_ms,
        )

    def delete_topics(self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST) -> None:
        self._operations.run(
            lambda: topics.delete_topics(self.image, request, self.settings, version),
            done,
            failed,
            request.timeout_ms,
        )

    def create_partitions(self, request: Message, done: Done, failed: Failed) -> None:
        self._operations.run(
            lambda: topics.create_partitions(self.image, request, self._clock),
            done,
            failed,
            request.timeout_ms,
        )

    def alter_configs(self, request: Message, done: Done, failed: Failed, *, forwarded: bool) -> None:
        self._change_configs(
            lambda: configs.alter_configs(self.image, request, self.settings, forwarded=forwarded),
            done,
            failed,
        )

    def incremental_alter_configs(
        self, request: Message, done: Done, failed: Failed, *, forwarded: bool
    ) -> None:
        self._change_configs(
            lambda: configs.incremental_alter_configs(
                self.image, request, self.settings, forwarded=forwarded
            ),
            done,
            failed,
        )

    def _change_configs(
        self, operation: Callable[[], ControllerResult[Message]], done: Done, failed: Failed
    ) -> None:
        allows_unclean = False

        def decide() -> ControllerResult[Message]:
            nonlocal allows_unclean
            result = operation()
            allows_unclean = any(getattr(record, "name", None) == UNCLEAN_KEY for record in result.records)
            return result

        self._operations.run(decide, done, failed)
        if allows_unclean:
            # Whoever sets it waits for partitions that have no leader; the clock would take minutes.
            self._elect_unclean_leaders()

    def update_features(
        self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST
    ) -> None:
        self._operations.run(
            lambda: features.update_features(self.image, request, self.settings, version),
            done,
            failed,
            request.timeout_ms,
        )

    def elect_leaders(self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST) -> None:
        self._operations.run(
            lambda: elections.elect_leaders(self.image, request, self.settings, version),
            done,
            failed,
            request.timeout_ms,
        )

    def alter_partition_reassignments(self, request: Message, done: Done, failed: Failed) -> None:
        self._operations.run(
            lambda: reassignments.alter_partition_reassignments(self.image, request, self.settings),
            done,
            failed,
            request.timeout_ms,
        )

    def list_partition_reassignments(self, request: Message, done: Done, failed: Failed) -> None:
        self._operations.run(
            lambda: reassignments.list_partition_reassignments(self.image, request), done, failed
        )

    def unregister_broker(self, request: Message, done: Done, failed: Failed) -> None:
        self._operations.run(
            lambda: brokers.unregister_broker(self.image, request, self.settings), done, failed
        )

    # Requests of other nodes

    def register_broker(self, request: Message, done: Done, failed: Failed) -> None:
        """BrokerRegistrationRequest -> BrokerRegistrationResponse (with the broker epoch)."""

        def operation() -> ControllerResult[Message]:
            existing = self.image.brokers.get(request.broker_id)
            return brokers.register_broker(
                self.image,
                request,
                self.settings,
                next_offset=self._log.log_end_offset,
                session_is_alive=existing is not None
                and self._sessions.is_alive(existing, request.log_dirs, self._clock.monotonic()),
            )

        self._operations.run(operation, done, failed)
        self._break_silence_for_others()

    def register_controller(self, request: Message, done: Done, failed: Failed) -> None:
        """ControllerRegistrationRequest -> ControllerRegistrationResponse."""
        self._operations.run(lambda: brokers.register_controller(self.image, request), done, failed)
        self._break_silence_for_others()

    def broker_heartbeat(
        self, request: Message, done: Done, failed: Failed, *, connection: str = "in process"
    ) -> None:
        """BrokerHeartbeatRequest -> BrokerHeartbeatResponse; unfences, fences or shuts down the broker.

        `connection` is what the heartbeat came by, to be told of in `broker_disconnected` when it is lost.
        """
        broker_id = request.broker_id

        def operation() -> ControllerResult[Message]:
            state, result = brokers.heartbeat(
                self.image,
                request,
                self.settings,
                registration_offset=self._sessions.registration_offset(broker_id),
                others_know_shutdown=self._sessions.others_know_shutdown(self.image, broker_id),
            )
            self._sessions.touch(request, connection, self._clock.monotonic())
            self._sessions.note_state(broker_id, state, self._log.log_end_offset + len(result.records) - 1)
            self._liveness.heard(broker_id)
            return result

        self._operations.run(operation, done, failed)
        self._watch_sessions()

    def alter_partition(
        self, request: Message, done: Done, failed: Failed, *, version: int = _LATEST
    ) -> None:
        """AlterPartitionRequest -> AlterPartitionResponse: another in-sync set."""
        self._operations.run(
            lambda: alter_partition.alter_partition(self.image, request, self.settings, version), done, failed
        )

    def assign_replicas_to_dirs(self, request: Message, done: Done, failed: Failed) -> None:
        """AssignReplicasToDirsRequest -> AssignReplicasToDirsResponse."""
        self._operations.run(
            lambda: directories.assign_replicas_to_dirs(self.image, request, self.settings), done, failed
        )

    def allocate_producer_ids(self, request: Message, done: Done, failed: Failed) -> None:
        """AllocateProducerIdsRequest -> AllocateProducerIdsResponse: a block of 1,000 ids."""
        self._operations.run(lambda: producer_ids.allocate_producer_ids(self.image, request), done, failed)


def _nobody_waits(_response: Any) -> None:
    """What the controller does by itself needs no answer."""


def _log_failure(error: ApiException) -> None:
    log.warning("The controller could not do what it had to: %s", error.message)
