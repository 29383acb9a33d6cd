"""What makes a node a controller: its part in deciding, and that the others know where it listens."""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.broker.controller_channel import ControllerChannel
from ottla.clock import Clock, Timer
from ottla.errors import ApiException, ErrorCode

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_TIMEOUT_S: Final = 30.0


class ControllerRegistrar:
    """Registers this controller with the active one, until that has been done."""

    def __init__(self, clock: Clock, channel: ControllerChannel, registration: Any) -> None:
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

    def _answered(self, response: Any) -> None:
        if response.error_code:
            self._failed(ApiException(ErrorCode.of(response.error_code), response.error_message or ""))

    def _failed(self, error: ApiException) -> None:
        if self._stopped or error.code is ErrorCode.UNSUPPORTED_VERSION:
            # An older metadata.version has no registrations of controllers.
            return
        log.warning(
            "Registering controller %d failed: %s %s",
            self._registration.controller_id,
            error.code.name,
            error.message,
        )
        self._timer = self._clock.call_later(_RETRY_S, self.start)
