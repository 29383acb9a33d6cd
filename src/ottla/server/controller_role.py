"""Registers a controller with the active one, so that the other nodes know where it listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.controller_channel import ControllerChannel
from ottla.clock import Clock, Timer
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.wire.messages import ControllerRegistrationRequest, ControllerRegistrationResponse

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_TIMEOUT_S: Final = 30.0


class ControllerRegistrar:
    """Registers this controller with the active one, and retries until that succeeds."""

    def __init__(
        self, clock: Clock, channel: ControllerChannel, registration: ControllerRegistrationRequest
    ) -> None:
        self._clock = clock
        self._channel = channel
        self._registration = registration
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        self._timer = None
        self._channel.send(self._registration, self._answered, self._failed, timeout_s=_TIMEOUT_S)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, response: ControllerRegistrationResponse) -> None:
        if response.error_code:
            self._failed(ApiException(ErrorCode.of(response.error_code), response.error_message or ""))

    def _failed(self, error: ApiException) -> None:
        if self._stopped or error.code is ErrorCode.UNSUPPORTED_VERSION:
            # An older metadata.version does not know controller registrations.
            return
        _logger.warning(
            "Controller %d could not register: %s %s. Trying again",
            self._registration.controller_id,
            error.code.name,
            error.message,
        )
        self._timer = self._clock.call_later(_RETRY_S, self.start)
