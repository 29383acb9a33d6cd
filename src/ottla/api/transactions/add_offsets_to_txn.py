"""AddOffsetsToTxn (key 25), versions 0-4.

Adds a group's offsets to a transaction, with which they will be committed.

2 knows PRODUCER_FENCED; 3 is flexible; 4 (KIP-890): the client can handle TRANSACTION_ABORTABLE.
Clients of transaction version 2 do not send it: their TxnOffsetCommit adds the group's partition itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.transactions.errors import known_to
from ottla.broker.services import Broker
from ottla.coordinator.runtime import partition_for
from ottla.errors import ApiException
from ottla.log.types import TopicPartition
from ottla.metadata.topic_names import OFFSETS_TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AddOffsetsToTxnRequest

_FENCED_FROM: Final = 2


def handle(
    broker: Broker, ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Outcome:
    # If the topic does not exist yet: the producer next looks for the group's coordinator, which creates it.
    count = broker.groups.runtime.partition_count or broker.config.int("offsets.topic.num.partitions")
    partition = TopicPartition(OFFSETS_TOPIC, partition_for(request.group_id, count))
    broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        0,
        lambda _: ctx.respond(AddOffsetsToTxnResponse()),
        lambda error: ctx.respond(on_error(ctx, request, error)),
    )
    return PARKED


def on_error(
    ctx: RequestContext, request: AddOffsetsToTxnRequest, error: ApiException
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=known_to(error.code, ctx.version, fenced_from=_FENCED_FROM))


API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    handle,
    on_error,
    needs=(
        Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
        Right(AclOperation.READ, ResourceType.GROUP, "group_id"),
    ),
)
