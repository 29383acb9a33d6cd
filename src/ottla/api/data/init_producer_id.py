"""InitProducerId (22): a producer id and epoch for an idempotent producer.

0, 1  the same
2     flexible
3     the id and epoch that the producer has already
4     PRODUCER_FENCED for producers that were overtaken
5     KIP-890: the client can handle TRANSACTION_ABORTABLE
(6    two-phase commit, not stable in Kafka 4.3)

Transactional producers need a transaction coordinator, which is not there yet.
"""

from __future__ import annotations

from typing import Final

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Broker
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.messages import InitProducerIdResponse

_NO_ID: Final = -1
_NO_EPOCH: Final = -1


def handle(broker: Broker, ctx: RequestContext, request: Message) -> Answer:
    if (request.producer_id == _NO_ID) != (request.producer_epoch == _NO_EPOCH):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A producer id needs its epoch, and an epoch its producer id"
        )
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty")
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Transactions are not served here yet")

    def done(producer_id: int, error: KafkaError | None) -> None:
        if error is not None:
            ctx.respond(on_error(ctx, request, error))
        else:
            ctx.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.producer_ids.next_id(done)
    return PARKED


def on_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    return InitProducerIdResponse(error_code=error.code, producer_id=_NO_ID, producer_epoch=_NO_EPOCH)


API = Api(key=ApiKey.INIT_PRODUCER_ID, min_version=0, max_version=5, handle=handle, on_error=on_error)
