"""The controller's runtime: handles the requests of the active controller, and its periodic tasks.

Pure modules make the decisions (`topics.py`, `alter_partition.py`, `brokers.py` ...; `decisions.py` is their table).
`operations.py` appends and answers. `sessions.py` and `liveness.py` watch the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.controller import brokers, configs, elections, features
from ottla.controller.activation import activation_records
from ottla.controller.decisions import DECISIONS, NO_CLIENT, Inputs, Requester
from ottla.controller.liveness import LivenessWatch
from ottla.controller.operations import MAX_PENDING_OPERATIONS, Operations, QuorumLog
from ottla.controller.periodic import PeriodicTasks
from ottla.controller.result import ControllerResult
from ottla.controller.sessions import BrokerSessions
from ottla.controller.settings import UNCLEAN_KEY, Settings
from ottla.errors import ApiException
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.image import MetadataImage
from ottla.peers import Endpoint
from ottla.promise import Done, Failed
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.messages import ConfigRecord, NoOpRecord

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.ids import BrokerId
    from ottla.peers import Peers
    from ottla.raft.types import CommittedBatch, OffsetAndEpoch
    from ottla.wire import messages
    from ottla.wire.classes import WireMessage

_logger = logging.getLogger(__name__)

Resp = TypeVar("Resp", bound=WireResponse)

_LATEST: Final = 1 << 15
"""Larger than every version: the version of a caller in this process."""
_STALLED_PART: Final = 8
"""A session timer that is late by this fraction of the session proves that this process was stalled."""


class Controller:
    """The active or standby controller of this node. All methods are called on the event loop.

    Requests and responses are Kafka's own messages, so the same methods serve a client, another broker or this node's
    own broker. The controller is a listener of the raft driver. Add it after the listener that publishes images: then
    the published image contains the effect of a request before the request is answered.
    """

    def __init__(
        self,
        metadata_log: QuorumLog,
        clock: Clock,
        settings: Settings,
        *,
        peers: Peers | None = None,
        bootstrap_records: Sequence[WireMessage] = (),
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

    @property
    def image(self) -> MetadataImage:
        """Everything appended so far, committed or not. Decisions are made on it."""
        return self._operations.state.image

    # Events of the quorum

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        self._sessions.forget_registrations()
        self._operations.load_snapshot(snapshot_id, batches)

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        self._operations.committed(batches)

    def handle_leader_change(self, leader_id: BrokerId | None, epoch: int) -> None:
        leads = leader_id == self.settings.node_id
        if leads and epoch == self._claimed_epoch:
            return
        if self._claimed_epoch is not None:
            self._resign()
        if leads:
            self._claim(epoch)

    def _claim(self, epoch: int) -> None:
        self._claimed_epoch = epoch
        self._operations.lead()
        self._sessions.begin(self.image, self._clock.monotonic())
        in_transaction = self._operations.state.in_transaction
        result = activation_records(self.image, self._bootstrap, self.settings, in_transaction=in_transaction)
        _logger.info("This controller becomes active in epoch %d", epoch)
        self._operations.run(lambda: result, self._activated, self._activation_failed)

    def _activated(self, _response: None) -> None:
        self.active = True
        self._watch_sessions()
        for broker_id, session in self._sessions.without_heartbeat():
            self._watch_liveness(broker_id, session.epoch)
        settings, tasks = self.settings, self._tasks
        tasks.start("elect preferred leaders", settings.balance_interval_s, self._balance_leaders)
        tasks.start(
            "elect unclean leaders", settings.unclean_election_interval_s, self._elect_unclean_leaders
        )
        tasks.start("remove expired tokens", settings.token_sweep_interval_s, self._sweep_tokens)
        self._start_no_op_records()

    def _activation_failed(self, error: ApiException) -> None:
        _logger.warning("This controller did not become active: %s", error.message)

    def _resign(self) -> None:
        """Another node leads now, or none."""
        if self.active:
            _logger.info("This controller is not active any more")
        self._claimed_epoch = None
        self.active = False
        self._tasks.stop_all()
        self._liveness.stop()
        self._sessions.end_all()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        self._operations.resign()

    def shutdown(self) -> None:
        """Fail waiting and later requests with NOT_CONTROLLER."""
        self._resign()

    # Sessions of brokers

    def _watch_sessions(self) -> None:
        """Keep one timer for the earliest time at which a session may expire."""
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
            # This process was stalled and may not have read the heartbeats yet: the brokers are not at fault.
            _logger.warning(
                "The controller was stalled for %.1f s; all broker sessions are renewed", now_s - due_s
            )
            self._sessions.renew_all(now_s)
        # One at a time, so that each decision sees the previous one.
        for broker_id, epoch in self._sessions.expired(now_s):
            _logger.warning("Broker %d is fenced: its session has expired", broker_id)
            self._fence(broker_id, epoch)
        self._watch_sessions()

    def _fence(self, broker_id: BrokerId, epoch: int) -> None:
        self._sessions.end(broker_id)
        self._liveness.stop_watching(broker_id)
        self._operations.run(
            lambda: brokers.fence_broker(self.image, self.settings, broker_id, epoch),
            _ignore_response,
            _log_failure,
        )

    def broker_disconnected(self, broker_id: BrokerId, epoch: int, connection: str) -> None:
        """The connection of a broker's heartbeats is lost: find out whether its process is gone."""
        session = self._sessions.of(broker_id, epoch)
        if session is not None and session.connection == connection:
            session.connection = None
            self._watch_liveness(broker_id, epoch)

    def _watch_liveness(self, broker_id: BrokerId, epoch: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or broker_id == self.settings.node_id:
            return
        listener = broker.listeners.get(self.settings.inter_broker_listener)
        listener = listener or next(iter(broker.listeners.values()), None)
        if listener is not None:
            self._liveness.watch(broker_id, epoch, Endpoint(broker_id, listener.host, listener.port))

    def _has_session(self, broker_id: BrokerId, epoch: int) -> bool:
        return self._sessions.of(broker_id, epoch) is not None

    def _broker_is_gone(self, broker_id: BrokerId, epoch: int) -> None:
        if self.active and self._has_session(broker_id, epoch):
            _logger.warning("Broker %d is fenced: its listener refuses connections", broker_id)
            self._fence(broker_id, epoch)

    # Periodic tasks

    def _do_part(self, operation: Callable[[], ControllerResult[bool]]) -> bool:
        more = False

        def decide() -> ControllerResult[bool]:
            nonlocal more
            result = operation()
            more = result.response
            return result

        self._operations.run(decide, _ignore_response, _log_failure)
        return more

    def _balance_leaders(self) -> bool:
        return self._do_part(lambda: elections.balance_leaders(self.image, self.settings))

    def _elect_unclean_leaders(self) -> bool:
        return self._do_part(lambda: elections.elect_unclean_leaders(self.image, self.settings))

    def _sweep_tokens(self) -> bool:
        from ottla.controller.tokens import sweep_expired_tokens

        return self._do_part(lambda: sweep_expired_tokens(self.image, self._clock.now_ms()))

    def _start_no_op_records(self) -> None:
        """Write a NoOpRecord into an idle log, so that other nodes can measure their lag. A single node needs none."""
        image, own = self.image, self.settings.node_id
        if self.active and (image.brokers.keys() | image.controllers.keys()) - {own}:
            self._tasks.start("write no-op records", self.settings.max_idle_s, self._write_if_idle)

    def _write_if_idle(self) -> bool:
        if self._log.log_end_offset == self._idle_since:
            self._operations.run(
                lambda: ControllerResult([NoOpRecord()], None), _ignore_response, _log_failure
            )
        self._idle_since = self._log.log_end_offset
        return False

    # Requests

    def handle(
        self,
        request: WireRequest[Resp],
        done: Done[Resp],
        failed: Failed,
        *,
        version: int = _LATEST,
        requester: Requester = NO_CLIENT,
    ) -> None:
        """Handle a request of the table `DECISIONS`. `done` is called when its records are committed."""
        decision = DECISIONS[request.API_KEY]
        inputs = Inputs(self.image, self.settings, self._clock, version, requester)
        self._operations.run(
            lambda: decision.decide(inputs, request),
            done,
            failed,
            None if decision.timeout_ms is None else decision.timeout_ms(request),
        )

    def update_features(
        self,
        request: messages.UpdateFeaturesRequest,
        done: Done[messages.UpdateFeaturesResponse],
        failed: Failed,
        *,
        version: int,
    ) -> None:
        """Handle UpdateFeatures. kraft.version is raised last: the quorum has control records of its own for it."""
        level = next(
            (u.max_version_level for u in request.feature_updates if u.feature == KRAFT_VERSION), None
        )

        def decided(response: messages.UpdateFeaturesResponse) -> None:
            if level is None or request.validate_only or response.error_code:
                done(response)
            else:
                self._log.upgrade_kraft_version(level, lambda _: done(response), failed)

        self._operations.run(
            lambda: features.update_features(self.image, request, self.settings, version, self._log),
            decided,
            failed,
            request.timeout_ms,
        )

    def alter_configs(
        self,
        request: messages.AlterConfigsRequest,
        done: Done[messages.AlterConfigsResponse],
        failed: Failed,
        *,
        forwarded: bool,
    ) -> None:
        self._change_configs(
            lambda: configs.alter_configs(self.image, request, self.settings, forwarded=forwarded),
            done,
            failed,
        )

    def incremental_alter_configs(
        self,
        request: messages.IncrementalAlterConfigsRequest,
        done: Done[messages.IncrementalAlterConfigsResponse],
        failed: Failed,
        *,
        forwarded: bool,
    ) -> None:
        self._change_configs(
            lambda: configs.incremental_alter_configs(
                self.image, request, self.settings, forwarded=forwarded
            ),
            done,
            failed,
        )

    def _change_configs(
        self, operation: Callable[[], ControllerResult[Resp]], done: Done[Resp], failed: Failed
    ) -> None:
        allows_unclean = False

        def decide() -> ControllerResult[Resp]:
            nonlocal allows_unclean
            result = operation()
            allows_unclean = any(
                isinstance(record, ConfigRecord) and record.name == UNCLEAN_KEY for record in result.records
            )
            return result

        self._operations.run(decide, done, failed)
        if allows_unclean:
            # The user waits for partitions without a leader; the periodic task would take minutes.
            self._elect_unclean_leaders()

    def register_broker(
        self,
        request: messages.BrokerRegistrationRequest,
        done: Done[messages.BrokerRegistrationResponse],
        failed: Failed,
    ) -> None:
        """Handle BrokerRegistration. The response has the broker epoch."""

        def operation() -> ControllerResult[messages.BrokerRegistrationResponse]:
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
        self._start_no_op_records()

    def register_controller(
        self,
        request: messages.ControllerRegistrationRequest,
        done: Done[messages.ControllerRegistrationResponse],
        failed: Failed,
    ) -> None:
        """Handle ControllerRegistration."""
        self._operations.run(lambda: brokers.register_controller(self.image, request), done, failed)
        self._start_no_op_records()

    def broker_heartbeat(
        self,
        request: messages.BrokerHeartbeatRequest,
        done: Done[messages.BrokerHeartbeatResponse],
        failed: Failed,
        *,
        connection: str = "in process",
    ) -> None:
        """Handle BrokerHeartbeat: unfence or fence the broker, or shut it down.

        `connection` is the heartbeat's connection. Call `broker_disconnected` with it when it is lost.
        """
        broker_id = request.broker_id

        def operation() -> ControllerResult[messages.BrokerHeartbeatResponse]:
            state, result = brokers.heartbeat(
                self.image,
                request,
                self.settings,
                registration_offset=self._sessions.registration_offset(broker_id),
                others_know_shutdown=self._sessions.others_know_shutdown(self.image, broker_id),
            )
            self._sessions.touch(request, connection, self._clock.monotonic())
            self._sessions.note_state(broker_id, state, self._log.log_end_offset + len(result.records) - 1)
            self._liveness.stop_watching(broker_id)
            return result

        self._operations.run(operation, done, failed)
        self._watch_sessions()


def _ignore_response(_response: object) -> None:
    """The controller's own operations need no response."""


def _log_failure(error: ApiException) -> None:
    _logger.warning("An operation of the controller failed: %s", error.message)
