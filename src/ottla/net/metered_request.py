"""A request of a client while there are quotas: it is measured, and its connection is muted for the time to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.throttling import Meter
from ottla.broker.response_errors import reports
from ottla.errors import ErrorCode
from ottla.net.request import Request
from ottla.security.quotas.managers import UNMEASURED
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.headers import decode_response_header
from ottla.wire.messages import response_class

if TYPE_CHECKING:
    from ottla.wire.classes import WireResponse


_respond: Final = Request.respond
_COUNTED: Final = Meter(UNMEASURED, lambda: 0.0, 0.0)
"""In the place of a meter: the request is a Fetch that was counted with its bytes, and is answered at once."""


class MeteredRequest(Request):
    """Counts against the quotas of its client when it is answered."""

    __slots__ = ("known_meter", "produced_bytes")

    known_meter: Meter | None
    """What `meter` returns once it was asked for: most requests that are answered at once need none."""
    produced_bytes: int
    """The size of a Produce request; of others only the time counts here."""

    metered = True

    @property
    def meter(self) -> Meter:  # type: ignore[override]
        meter = self.known_meter
        if meter is None:
            # A request that is not answered at once asks for its meter at once: no other was taken in between.
            connection = self._connection
            measures = connection.measures
            meter = self.known_meter = Meter(measures, connection.monotonic, measures.used_s)
        return meter

    def parked(self) -> None:
        self.meter.parked()

    def max_fetch_bytes(self) -> int | None:
        # Asked for as soon as the request was taken.
        measure = self._connection.measures.fetch
        return None if measure is None else int(measure.allowance)

    def fetched(self, size: int) -> int:
        meter = self.known_meter
        if meter is not None:
            return meter.fetched(size)
        connection = self._connection
        measures = connection.measures
        now = connection.monotonic()
        throttle_ms = measures.charge(measures.fetch, size, now - measures.used_s, now)
        # What comes after this counts with the next request: see `respond`.
        measures.used_s = now
        self.known_meter = _COUNTED
        if throttle_ms:
            measures.take_back(size, now)
            connection.mute(throttle_ms / 1000)
        return throttle_ms

    def respond(self, response: WireResponse) -> None:
        if self.known_meter is None and self.frame is None:
            # It is answered at once, so the connection's measures are still those of its client.
            connection = self._connection
            measures = connection.measures
            now = connection.monotonic()
            throttle_ms = measures.charge(measures.produce, self.produced_bytes, now - measures.used_s, now)
            if throttle_ms:
                self._throttle(response, throttle_ms)
            _respond(self, response)
            if measures.request is not None:
                measures.carried_s += connection.monotonic() - now
            return
        if self.known_meter is _COUNTED:
            measures = self._connection.measures
            _respond(self, response)
            if measures.request is not None:
                measures.carried_s += self._connection.monotonic() - measures.used_s
            return
        if self.buffers is not None or self.closed_by_client:
            return
        if self.frame is not None and reports(response, ErrorCode.NOT_CONTROLLER):
            # It is forwarded, and another node measures it.
            super().respond(response)
            return
        meter = self.known_meter or self.meter
        if not meter.counted and (meter.timed or self.produced_bytes):
            meter.answered(self.produced_bytes)
        # A controller that has decided a part of the request may have set a time already.
        throttle_ms = max(meter.throttle_ms, getattr(response, "throttle_time_ms", 0))
        if throttle_ms > 0:
            self._throttle(response, throttle_ms)
        _respond(self, response)
        if meter.timed:
            meter.sent()

    def _throttle(self, response: WireResponse, throttle_ms: int) -> None:
        if "throttle_time_ms" in response.__struct_fields__:
            # Most responses have the field, and it has the same type in all of them.
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        self._connection.mute(throttle_ms / 1000)

    def no_response(self) -> None:
        """A Produce with acks=0: its bytes count, its time does not."""
        meter = self.meter
        meter.produced(self.produced_bytes)
        if meter.throttle_ms > 0:
            self._connection.mute(meter.throttle_ms / 1000)
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
