"""A request of a client while there are quotas: it is measured, and its connection is muted for the time to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.response_errors import reports
from ottla.errors import ErrorCode
from ottla.net.request import Request
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.headers import decode_response_header
from ottla.wire.messages import response_class

if TYPE_CHECKING:
    from ottla.api.throttling import Meter
    from ottla.wire.classes import WireResponse

_PRODUCE: Final = int(ApiKey.PRODUCE)


class MeteredRequest(Request):
    """Counts against the quotas of its client when it is answered."""

    __slots__ = ("meter", "request_size")

    meter: Meter
    request_size: int

    def parked(self) -> None:
        self.meter.parked()

    def respond(self, response: WireResponse) -> None:
        if self.buffers is not None or self.closed_by_client:
            return
        if self.frame is not None and reports(response, ErrorCode.NOT_CONTROLLER):
            # It is forwarded, and another node measures it.
            super().respond(response)
            return
        meter = self.meter
        if self.api_key == _PRODUCE:
            meter.answered(self.request_size)
        elif meter.timed:
            meter.answered()
        # A controller that has decided a part of the request may have set a time already.
        if meter.throttle_ms > 0 or getattr(response, "throttle_time_ms", 0) > 0:
            self._throttle(response)
        Request.respond(self, response)
        if meter.timed:
            meter.sent()

    def _throttle(self, response: WireResponse) -> None:
        throttle_ms = max(self.meter.throttle_ms, getattr(response, "throttle_time_ms", 0))
        if "throttle_time_ms" in response.__struct_fields__:
            # Most responses have the field, and it has the same type in all of them.
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        self._connection.mute(throttle_ms / 1000)

    def no_response(self) -> None:
        """A Produce with acks=0: its bytes count, its time does not."""
        self.meter.produced(self.request_size)
        if self.meter.throttle_ms > 0:
            self._connection.mute(self.meter.throttle_ms / 1000)
        super().no_response()

    def forwarded_answer(self, answer: bytes) -> None:
        """The controller has measured the request: its answer says how long the client has to wait."""
        try:
            _, offset = decode_response_header(self.api_key, self.version, answer)
            response, _ = decode_prefix(response_class(self.api_key), self.version, answer, offset)
            throttle_ms = getattr(response, "throttle_time_ms", 0)
        except DecodeError:
            throttle_ms = 0
        if throttle_ms > 0:
            self._connection.mute(throttle_ms / 1000)
        super().forwarded_answer(answer)
