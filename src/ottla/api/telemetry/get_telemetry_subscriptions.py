"""GetTelemetrySubscriptions (key 71), version 0.

Tells a client which of its metrics to send, how often, and under which id. A client without an id gets one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.base import NOTHING, Api, RequestContext
from ottla.api.telemetry.clients import client_of
from ottla.broker.client_telemetry import ACCEPTED_CODECS
from ottla.broker.services import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.messages import GetTelemetrySubscriptionsResponse
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.wire.messages import GetTelemetrySubscriptionsRequest

_DELTAS: Final = True
"""Counters are sent as what was added since the last push."""


def handle(
    broker: Broker, ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = broker.clock.random_uuid()
    telemetry = broker.telemetry
    instance = telemetry.subscribe(client_of(ctx, instance_id), broker.image, _now_ms(broker))
    # As in Kafka, a client that comes back need not wait for the rest of its interval.
    ctx.on_disconnect("telemetry", partial(telemetry.forget, instance_id))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=broker.config.int("telemetry.max.bytes"),
        delta_temporality=_DELTAS,
        requested_metrics=list(instance.metrics),
    )


def _now_ms(broker: Broker) -> int:
    return int(broker.clock.monotonic() * 1000)


API = Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, handle, needs=NOTHING)
