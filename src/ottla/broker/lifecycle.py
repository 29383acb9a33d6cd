"""The broker's side of its registration: register, heartbeat until unfenced, leave in order.

It speaks Kafka's BrokerRegistration and BrokerHeartbeat messages to the active controller, through the function it is
given; finding that controller, and asking again when another takes over, is that function's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

log = logging.getLogger(__name__)

Message = Any

_RETRY_S: Final = 0.1
"""Pause after a failure."""
_SOON_S: Final = 0.01
"""Pause while nothing but somebody's reading of the metadata log is missing."""
_PATIENCE: Final = 2
"""Heartbeat intervals after which an unanswered request is given up, and a newer one sent."""


class Send(Protocol):
    """Sends a request to the active controller; calls one of the two back, once."""

    def __call__(
        self,
        request: Message,
        done: Callable[[Message], object],
        failed: Callable[[ApiException], object],
        *,
        timeout_s: float,
    ) -> None: ...


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

        NOT_RUNNING ─start─▶ STARTING ─registered, caught up─▶ RECOVERY ─ready, unfenced─▶ RUNNING
        ─begin_controlled_shutdown─▶ PENDING_CONTROLLED_SHUTDOWN ─granted─▶ SHUTTING_DOWN

    `registration` is the BrokerRegistrationRequest to send. `metadata_offset()` is the offset up to which this
    broker has applied the metadata log; `cordoned_directories()` are the ids of the log directories that are to get
    nothing new, None where the cluster does not know of such.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        registration: Message,
        send: Send,
        metadata_offset: Callable[[], int],
        heartbeat_interval_ms: int,
        cordoned_directories: Callable[[], list[bytes] | None] = lambda: None,
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        """-1 until registered."""
        self._clock = clock
        self._registration = registration
        self._send = send
        self._metadata_offset = metadata_offset
        self._cordoned_directories = cordoned_directories
        self._interval_s = heartbeat_interval_ms / 1000
        self._timer: Timer | None = None
        self._in_flight = False
        self._again_at_once = False
        """Something happened that the request in flight does not tell."""
        self._failed_directories: dict[bytes, Timer | None] = {}
        """Directories that have failed; the timer runs until the controller knows."""
        self._is_registered = False
        self._fenced = True
        """As the controller last told us."""
        self._ready = True
        self._on_caught_up: Callable[[], None] | None = None
        self._on_running: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None

    def start(
        self, on_running: Callable[[], None], *, on_caught_up: Callable[[], None] | None = None
    ) -> None:
        """Register, then heartbeat; `on_running` is called once when the controller has unfenced the broker.

        With `on_caught_up` the broker stays fenced until `ready`: it is called once when this broker has applied the
        metadata log up to its registration, and so knows what it has to load before it can serve.
        """
        self.state = BrokerState.STARTING
        self._on_running = on_running
        self._on_caught_up = on_caught_up
        self._ready = on_caught_up is None
        self._send_registration()

    def ready(self) -> None:
        """The broker can serve: ask to be unfenced."""
        self._ready = True
        self._soon()

    # What happens on this node

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """This broker has applied more of the metadata log: it may be what the controller waits for."""
        if self.state is BrokerState.STARTING or self._wants_in:
            self._soon()
            return
        changed = (image.brokers.get(broker_id) for broker_id in delta.changed_brokers)
        if any(broker is not None and broker.in_controlled_shutdown for broker in changed):
            # That broker may go when all others know who leads in its place.
            self._soon()

    def controller_changed(self) -> None:
        """Another controller is active: it has not heard of this broker yet."""
        self._soon()

    def directory_failed(self, directory_id: bytes, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        """Tell the controller; `on_timeout` if that does not succeed in time."""
        if directory_id not in self._failed_directories:
            timer = self._clock.call_later(timeout_s, on_timeout)
            self._failed_directories[directory_id] = timer
            self._soon()

    def configs_changed(self) -> None:
        """What the controller has to know may have changed."""
        self._soon()

    def begin_controlled_shutdown(self, on_done: Callable[[], None]) -> None:
        """Ask the controller to move leadership away; `on_done` when it says that the broker may stop."""
        self._on_stopped = on_done
        if self.state is not BrokerState.RUNNING:
            self._stopped()
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._soon()

    def stop(self) -> None:
        """No more heartbeats."""
        self.state = BrokerState.SHUTTING_DOWN
        self._cancel_timer()
        for timer in self._failed_directories.values():
            if timer is not None:
                timer.cancel()

    # Registration

    def _send_registration(self) -> None:
        self._timer = None
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._send(
                self._registration, self._registered, self._registration_failed, timeout_s=self._timeout_s
            )

    @property
    def _timeout_s(self) -> float:
        return _PATIENCE * self._interval_s

    def _registered(self, response: Message) -> None:
        if response.error_code:
            self._registration_failed(_error_of(response))
            return
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._fenced = True
        self._soon()

    def _registration_failed(self, error: ApiException) -> None:
        log.warning("Registering broker %d failed: %s", self._registration.broker_id, error.message)
        self._schedule(_RETRY_S, self._send_registration)

    # Heartbeats

    def _soon(self) -> None:
        if not self._is_registered or self.state is BrokerState.SHUTTING_DOWN:
            return
        if self._in_flight:
            self._again_at_once = True
        else:
            self._communicate()

    def _communicate(self) -> None:
        self._cancel_timer()
        self._in_flight = True
        self._again_at_once = False
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._failed_directories),
            # Before that its own configs may not have been read.
            cordoned_log_dirs=self._cordoned_directories() if self._ready else None,
        )
        self._send(
            request,
            lambda response: self._heartbeat_answered(request, response),
            self._heartbeat_failed,
            timeout_s=self._timeout_s,
        )

    def _heartbeat_answered(self, request: Message, response: Message) -> None:
        self._in_flight = False
        if response.error_code:
            self._heartbeat_failed(_error_of(response))
            return
        self._fenced = response.is_fenced
        for directory_id in request.offline_log_dirs:
            timer, self._failed_directories[directory_id] = self._failed_directories[directory_id], None
            if timer is not None:
                timer.cancel()
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self.state = BrokerState.RECOVERY
            self._caught_up()
        if self.state is BrokerState.RECOVERY and self._ready and not response.is_fenced:
            self._running()
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and response.should_shut_down:
            self._stopped()
        if self.state is BrokerState.SHUTTING_DOWN or self._in_flight:
            return
        if self._again_at_once:
            self._communicate()
            return
        waits = (
            self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN) or self._wants_in
        )
        self._schedule(_SOON_S if waits else self._interval_s, self._communicate)

    @property
    def _wants_in(self) -> bool:
        return self._ready and self._fenced

    def _caught_up(self) -> None:
        callback, self._on_caught_up = self._on_caught_up, None
        if callback is not None:
            callback()

    def _running(self) -> None:
        self.state = BrokerState.RUNNING
        callback, self._on_running = self._on_running, None
        if callback is not None:
            callback()

    def _stopped(self) -> None:
        self.stop()
        callback, self._on_stopped = self._on_stopped, None
        if callback is not None:
            callback()

    def _heartbeat_failed(self, error: ApiException) -> None:
        self._in_flight = False
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            # Nobody is left to hand over to; the next start finds out what became of the partitions.
            self._stopped()
            return
        log.warning("A heartbeat of broker %d failed: %s", self._registration.broker_id, error.message)
        if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            # Unregistered by somebody while alive: a new registration makes it known again.
            self._is_registered = False
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


def _error_of(response: Message) -> ApiException:
    error = ErrorCode.of(response.error_code)
    return ApiException(error, f"the controller answered {error.name}")
