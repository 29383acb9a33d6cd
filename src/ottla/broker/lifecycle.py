"""The broker's side of its registration: registers, sends heartbeats, and shuts down in order.

It sends BrokerRegistration and BrokerHeartbeat requests through a function that finds the active controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.errors import ApiException, ErrorCode
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.messages import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.wire.messages import (
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

_logger = logging.getLogger(__name__)

Resp = TypeVar("Resp", bound=WireResponse)

_RETRY_S: Final = 0.1
"""Pause after a failure."""
_SOON_S: Final = 0.01
"""Pause while only a replica of the metadata log is behind."""
_TIMEOUT_INTERVALS: Final = 2
"""Heartbeat intervals after which a request without response times out and a new one is sent."""


class Send(Protocol):
    """Sends a request to the active controller and calls one of the callbacks, once."""

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
    """Registers this node's broker with the controller and keeps its session alive.

        NOT_RUNNING ─start─▶ STARTING ─registered, caught up─▶ RECOVERY ─ready, unfenced─▶ RUNNING
        ─begin_controlled_shutdown─▶ PENDING_CONTROLLED_SHUTDOWN ─granted─▶ SHUTTING_DOWN

    `registration` is the request to send. `metadata_offset()` is the offset up to which this broker has applied the
    metadata log. `cordoned_directories()` are the ids of the cordoned log directories; None where the cluster does not
    support them.
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
        """Something changed that the heartbeat in flight does not contain."""
        self._failed_directories: dict[bytes, Timer | None] = {}
        """Failed directories. The timer runs until the controller knows."""
        self._is_registered = False
        self._last_refusal = ""
        self._fenced = True
        """The last state that the controller reported."""
        self._ready = True
        self._on_caught_up: Callable[[], None] | None = None
        self._on_running: Callable[[], None] | None = None
        self._on_stopped: Callable[[], None] | None = None

    def start(
        self, on_running: Callable[[], None], *, on_caught_up: Callable[[], None] | None = None
    ) -> None:
        """Register, then send heartbeats. `on_running` is called once when the controller has unfenced the broker.

        With `on_caught_up` the broker stays fenced until `ready`. The callback is called once when this broker has
        applied the metadata log up to its registration, and so knows which logs to load before it can serve.
        """
        self.state = BrokerState.STARTING
        self._on_running = on_running
        self._on_caught_up = on_caught_up
        self._ready = on_caught_up is None
        self._send_registration()

    def ready(self) -> None:
        """The broker can serve: request to be unfenced."""
        self._ready = True
        self._heartbeat_now()

    # Events on this node

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """This broker has applied more of the metadata log. The controller may wait for this."""
        if self.state is BrokerState.STARTING or self._wants_unfencing:
            self._heartbeat_now()
            return
        changed = (image.brokers.get(broker_id) for broker_id in delta.changed_brokers)
        if any(broker is not None and broker.in_controlled_shutdown for broker in changed):
            # That broker may stop when all others know the new leaders of its partitions.
            self._heartbeat_now()

    def controller_changed(self) -> None:
        """Another controller is active, and has had no heartbeat of this broker yet."""
        self._heartbeat_now()

    def directory_failed(self, directory_id: bytes, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        """Report a failed directory to the controller. `on_timeout` is called if that takes too long."""
        if directory_id not in self._failed_directories:
            timer = self._clock.call_later(timeout_s, on_timeout)
            self._failed_directories[directory_id] = timer
            self._heartbeat_now()

    def configs_changed(self) -> None:
        """The content of the next heartbeat may have changed."""
        self._heartbeat_now()

    def begin_controlled_shutdown(self, on_done: Callable[[], None]) -> None:
        """Request the controller to move leadership away. `on_done` is called when the broker may stop."""
        self._on_stopped = on_done
        if self.state is not BrokerState.RUNNING:
            self._stopped()
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._heartbeat_now()

    def stop(self) -> None:
        """Stop sending heartbeats."""
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
        return _TIMEOUT_INTERVALS * self._interval_s

    def _registered(self, response: BrokerRegistrationResponse) -> None:
        if response.error_code:
            self._registration_failed(_error_of(response))
            return
        self.broker_epoch = response.broker_epoch
        self._is_registered = True
        self._fenced = True
        self._heartbeat_now()

    def _registration_failed(self, error: ApiException) -> None:
        # It is sent again ten times a second: a node that comes back waits for the end of its old session, and one
        # line is enough for that.
        level = logging.DEBUG if error.message == self._last_refusal else logging.WARNING
        self._last_refusal = error.message
        _logger.log(
            level, "The registration of broker %d failed: %s", self._registration.broker_id, error.message
        )
        self._schedule(_RETRY_S, self._send_registration)

    # Heartbeats

    def _heartbeat_now(self) -> None:
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
            # Before the broker is ready, its own configs may not have been read.
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
            or self._wants_unfencing
        )
        self._schedule(_SOON_S if waits else self._interval_s, self._send_heartbeat)

    @property
    def _wants_unfencing(self) -> bool:
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
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        unregistered = error.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and unregistered:
            # A broker that is not registered leads nothing.
            self._stopped()
            return
        _logger.warning("A heartbeat of broker %d failed: %s", self._registration.broker_id, error.message)
        if unregistered:
            # The broker was unregistered while it was alive: register again.
            self._is_registered = False
            self._schedule(_RETRY_S, self._send_registration)
            return
        # A controlled shutdown asks again too: the node that stops limits how long it waits.
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
