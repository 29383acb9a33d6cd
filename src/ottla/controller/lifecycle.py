"""The broker's side of its registration: register, heartbeat until unfenced, leave in order.

It speaks Kafka's BrokerRegistration and BrokerHeartbeat messages through the two functions it is given: here the
controller of the same process, in a cluster the network.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

log = logging.getLogger(__name__)

Message = Any
Send = Callable[[Message, Callable[[Message], None], Callable[[KafkaError], None]], None]
"""Sends a request; calls one of the two back, once."""

_RETRY_S: Final = 0.1
"""Pause after a failure; and between heartbeats while the broker waits to get in or out."""
_SOON_S: Final = 0.01
"""Pause while nothing but this broker's own reading of the metadata log is missing."""


class BrokerState(IntEnum):
    """Kafka's broker states, with its numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerLifecycle:
    """Registers this node's broker with the controller and keeps it alive there.

        NOT_RUNNING ─start─▶ STARTING ─registered─▶ RECOVERY ─unfenced─▶ RUNNING
        ─begin_controlled_shutdown─▶ PENDING_CONTROLLED_SHUTDOWN ─granted─▶ SHUTTING_DOWN

    `registration` is the BrokerRegistrationRequest to send. `metadata_offset()` is the offset up to which this
    broker has applied the metadata log.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        registration: Message,
        register: Send,
        heartbeat: Send,
        metadata_offset: Callable[[], int],
        heartbeat_interval_ms: int,
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        """-1 until registered."""
        self._clock = clock
        self._registration = registration
        self._register = register
        self._heartbeat = heartbeat
        self._metadata_offset = metadata_offset
        self._interval_s = heartbeat_interval_ms / 1000
        self._timer: Timer | None = None
        self._in_flight = False
        self._on_running: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None

    def start(self, on_running: Callable[[], None]) -> None:
        """Register, then heartbeat; `on_running` is called once when the controller has unfenced the broker."""
        self.state = BrokerState.STARTING
        self._on_running = on_running
        self._send_registration()

    def metadata_applied(self) -> None:
        """This broker has applied more of the metadata log: it may be what the controller waits for."""
        if self.state is BrokerState.RECOVERY and not self._in_flight:
            self._communicate()

    def begin_controlled_shutdown(self, on_done: Callable[[], None]) -> None:
        """Ask the controller to move leadership away; `on_done` when it says that the broker may stop."""
        self._on_stopped = on_done
        if self.state is not BrokerState.RUNNING:
            self._stopped()
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if not self._in_flight:
            self._communicate()

    def stop(self) -> None:
        """No more heartbeats."""
        self.state = BrokerState.SHUTTING_DOWN
        self._cancel_timer()

    def _send_registration(self) -> None:
        self._timer = None
        if self.state is not BrokerState.STARTING:
            return
        self._register(self._registration, self._registered, self._registration_failed)

    def _registered(self, response: Message) -> None:
        if response.error_code:
            error = ErrorCode(response.error_code)
            self._registration_failed(KafkaError(error, f"the controller answered {error.name}"))
            return
        self.broker_epoch = response.broker_epoch
        if self.state is BrokerState.STARTING:
            self.state = BrokerState.RECOVERY
            self._communicate()

    def _registration_failed(self, error: KafkaError) -> None:
        log.warning("Registering broker %d failed: %s", self._registration.broker_id, error.message)
        self._schedule(_RETRY_S, self._send_registration)

    def _communicate(self) -> None:
        self._cancel_timer()
        if self.state not in (
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        ):
            return
        self._in_flight = True
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        )
        self._heartbeat(request, self._heartbeat_answered, self._heartbeat_failed)

    def _heartbeat_answered(self, response: Message) -> None:
        self._in_flight = False
        if response.error_code:
            error = ErrorCode(response.error_code)
            self._heartbeat_failed(KafkaError(error, f"the controller answered {error.name}"))
            return
        pause = self._interval_s
        if self.state is BrokerState.RECOVERY:
            pause = _SOON_S
            if not response.is_fenced:
                self._running()
                return
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            pause = _SOON_S
            if response.should_shut_down:
                self._stopped()
                return
        self._schedule(pause, self._communicate)

    def _running(self) -> None:
        self.state = BrokerState.RUNNING
        self._schedule(self._interval_s, self._communicate)
        callback, self._on_running = self._on_running, None
        if callback is not None:
            callback()

    def _stopped(self) -> None:
        self.stop()
        callback, self._on_stopped = self._on_stopped, None
        if callback is not None:
            callback()

    def _heartbeat_failed(self, error: KafkaError) -> None:
        self._in_flight = False
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            # Nobody is left to hand over to; the next start finds out what became of the partitions.
            self._stopped()
            return
        log.warning("A heartbeat of broker %d failed: %s", self._registration.broker_id, error.message)
        if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            # Unregistered by somebody while alive: a new registration makes it known again.
            self.state = BrokerState.STARTING
            self._schedule(_RETRY_S, self._send_registration)
            return
        self._schedule(_RETRY_S, self._communicate)

    def _schedule(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer()
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._timer = self._clock.call_later(delay_s, callback)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
