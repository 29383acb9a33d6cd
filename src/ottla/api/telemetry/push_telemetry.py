"""PushTelemetry (key 72), version 0.

Takes a client's metrics, as OTLP and possibly compressed. They are unpacked and read in a thread.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from ottla.api.base import NOTHING, PARKED, Api, Outcome, RequestContext
from ottla.api.telemetry.clients import client_of
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.records.codecs import decompress
from ottla.wire.apis import ApiKey
from ottla.wire.messages import PushTelemetryResponse

if TYPE_CHECKING:
    from ottla.wire.messages import PushTelemetryRequest

_MOST_UNPACKED = 10
"""A push may unpack to this many times `telemetry.max.bytes`."""
_RESERVED_IDS: Final = (bytes(16), bytes(15) + b"\1")
"""Kafka's ids for no instance, and for the topic of the metadata."""


def handle(
    broker: Broker, ctx: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse | Outcome:
    if request.client_instance_id in _RESERVED_IDS:
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid request: Client instance id is reserved")
    max_bytes = broker.config.int("telemetry.max.bytes")
    telemetry = broker.telemetry
    client = client_of(ctx, request.client_instance_id)
    telemetry.check_push(
        client,
        broker.image,
        int(broker.clock.monotonic() * 1000),
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        size=len(request.metrics),
        max_bytes=max_bytes,
    )
    receive = telemetry.receive
    if receive is None or not request.metrics:
        return PushTelemetryResponse()
    packed, codec = bytes(request.metrics), request.compression_type

    def take() -> None:
        receive(client, decompress(codec, packed, _MOST_UNPACKED * max_bytes))

    def done(future: Future[None]) -> None:
        error = future.exception()
        code = ErrorCode.NONE
        if isinstance(error, (ApiException, ValueError)):
            code = ErrorCode.INVALID_RECORD
        elif error is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        telemetry.pushed(client, code)
        ctx.respond(PushTelemetryResponse(error_code=code))

    broker.replicas.offload.run(take, done)
    return PARKED


API = Api(ApiKey.PUSH_TELEMETRY, handle, needs=NOTHING)
