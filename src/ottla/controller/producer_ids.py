"""AllocateProducerIds: hands brokers blocks of producer ids that nobody else gets."""

from __future__ import annotations

from typing import Final

from ottla.controller.cluster import check_broker_epoch
from ottla.controller.result import ControllerResult, Message
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire.messages import AllocateProducerIdsResponse, ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = (1 << 63) - 1


def allocate_producer_ids(image: MetadataImage, request: Message) -> ControllerResult[Message]:
    """AllocateProducerIdsRequest -> AllocateProducerIdsResponse."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = max(image.producer_ids.next, 0)
    if first > _LAST_ID - BLOCK_SIZE:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return ControllerResult([record], response)
