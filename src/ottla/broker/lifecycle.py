"""The broker's side of its registration: register, send heartbeats, controlled shutdown.

It sends BrokerRegistration and BrokerHeartbeat requests to the active controller through a given function, which finds
the controller and retries if another node takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.peers import Resp
    from ottla.wire.classes import WireRequest
    from ottla.wire.messages import (
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
"""The back-off after a failure."""
_SOON_S: Final = 0.01
"""The interval of heartbeats while this broker only waits for a broker to apply the metadata log."""
_TIMEOUT_INTERVALS: Final = 2
"""The timeout of a request, in heartbeat intervals."""


class Send(Protocol):
    """Sends a request to the active controller; calls one of the two callbacks, once."""

    def __call__(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
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
    """Registers this broker with the controller, and keeps its session alive with heartbeats.

        NOT_RUNNING ─start─▶ STARTING ─registered, caught up─▶ RECOVERY ─ready, unfenced─▶ RUNNING
        ─begin_controlled_shutdown─▶ PENDING_CONTROLLED_SHUTDOWN ─granted─▶ SHUTTING_DOWN

    `registration` is the BrokerRegistrationRequest to send. `metadata_offset()` is the offset up to which this
    broker has applied the metadata log; `cordoned_directories()` are the ids of the log directories that get no new
    partitions, or None if the metadata.version has no cordoned directories.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        registration: BrokerRegistrationRequest,
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
        self._send_again = False
        """The state changed after the request in flight was built."""
        self._failed_directories: dict[bytes, Timer | None] = {}
        """Failed directories. The timer runs until the controller knows."""
        self._is_registered = False
        self._fenced = True
        """As in the controller's last response."""
        self._ready = True
        self._on_caught_up: Callable[[], None] | None = None
        self._on_running: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None

    def start(
        self, on_running: Callable[[], None], *, on_caught_up: Callable[[], None] | None = None
    ) -> None:
        """Register, then send heartbeats. `on_running` is called once when the controller has unfenced the broker.

        With `on_caught_up` the broker stays fenced until `ready`. It is called once when this broker has applied the
        metadata log up to its registration, and so knows which logs it has to load.
        """
        self.state = BrokerState.STARTING
        self._on_running = on_running
        self._on_caught_up = on_caught_up
        self._ready = on_caught_up is None
        self._send_registration()

    def ready(self) -> None:
        """The broker can serve: ask to be unfenced."""
        self._ready = True
        self._send_soon()

    # -- events on this node

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """This broker has applied more of the metadata log, which the controller may wait for."""
        if self.state is BrokerState.STARTING or self._waits_for_unfencing:
            self._send_soon()
            return
        changed = (image.brokers.get(broker_id) for broker_id in delta.changed_brokers)
        if any(broker is not None and broker.in_controlled_shutdown for broker in changed):
            # That broker can stop when all others know the new leaders of its partitions.
            self._send_soon()

    def controller_changed(self) -> None:
        """Another controller is active and needs a heartbeat of this broker."""
        self._send_soon()

    def directory_failed(self, directory_id: bytes, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        """Report the directory to the controller. `on_timeout` is called if that does not succeed in time."""
        if directory_id not in self._failed_directories:
            timer = self._clock.call_later(timeout_s, on_timeout)
            self._failed_directories[directory_id] = timer
            self._send_soon()

    def configs_changed(self) -> None:
        """The cordoned directories may have changed."""
        self._send_soon()

    def begin_controlled_shutdown(self, on_done: Callable[[], None]) -> None:
        """Ask the controller to move leaderships away. `on_done` is called when the broker may stop."""
        self._on_stopped = on_done
        if self.state is not BrokerState.RUNNING:
            self._stopped()
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._send_soon()

    def stop(self) -> None:
        """Stop the heartbeats."""
        self.state = BrokerState.SHUTTING_DOWN
        self._cancel_timer()
        for timer in self._failed_directories.values():
            if timer is not None:
                timer.cancel()

    # -- registration

    def _send_registration(self) -> None:
        self._timer = None
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._send(
                self._registration, self._registered, self._registration_failed, timeout_s=self._timeout_s
            )

    @property
    def _timeout_s(self) -> float:
        return _TIMEOUT_INTERVALS * self._interval_s

    def _registered(self, response: BrokerRegistrationResponse) -> None:
        if response.error_code:
            self._registration_failed(_error_of(response))
            return
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._fenced = True
        self._send_soon()

    def _registration_failed(self, error: ApiException) -> None:
        _logger.warning(
            "Broker %d could not register: %s. Trying again", self._registration.broker_id, error.message
        )
        self._schedule(_RETRY_S, self._send_registration)

    # -- heartbeats

    def _send_soon(self) -> None:
        if not self._is_registered or self.state is BrokerState.SHUTTING_DOWN:
            return
        if self._in_flight:
            self._send_again = True
        else:
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        self._cancel_timer()
        self._in_flight = True
        self._send_again = False
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._failed_directories),
            # Before `ready` this broker may not know its own dynamic configs.
            cordoned_log_dirs=self._cordoned_directories() if self._ready else None,
        )
        self._send(
            request,
            lambda response: self._heartbeat_answered(request, response),
            self._heartbeat_failed,
            timeout_s=self._timeout_s,
        )

    def _heartbeat_answered(self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse) -> None:
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
        if self._send_again:
            self._send_heartbeat()
            return
        waits = (
            self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            or self._waits_for_unfencing
        )
        self._schedule(_SOON_S if waits else self._interval_s, self._send_heartbeat)

    @property
    def _waits_for_unfencing(self) -> bool:
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
            # No controller is left to move leaderships; the next start finds out what happened to the partitions.
            self._stopped()
            return
        _logger.warning("A heartbeat of broker %d failed: %s", self._registration.broker_id, error.message)
        if error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            # An operator has unregistered this broker while it runs: register again.
            self._is_registered = False
            self._schedule(_RETRY_S, self._send_registration)
            return
        self._schedule(_RETRY_S, self._send_heartbeat)

    def _schedule(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer()
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._timer = self._clock.call_later(delay_s, callback)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _error_of(response: BrokerRegistrationResponse | BrokerHeartbeatResponse) -> ApiException:
    error = ErrorCode.of(response.error_code)
    return ApiException(error, f"the controller answered {error.name}")
