"""AllocateProducerIds 0: a broker gets a block of producer ids that nobody else gets."""

from __future__ import annotations

from typing import Any

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.controller.asking import controller_of, park
from ottla.errors import KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AllocateProducerIdsResponse


def handle(node: Any, ctx: RequestContext, request: Message) -> Answer:
    return park(ctx, request, controller_of(node).allocate_producer_ids, on_error)


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return AllocateProducerIdsResponse(error_code=error.code)


API = Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, handle, on_error)
