"""AllocateProducerIds: gives each broker its own blocks of producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.cluster import check_broker_epoch
from ottla.controller.result import ControllerResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId
from ottla.metadata.image import MetadataImage
from ottla.wire.messages import AllocateProducerIdsResponse, ProducerIdsRecord

if TYPE_CHECKING:
    from ottla.wire.messages import AllocateProducerIdsRequest

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = (1 << 63) - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Decide AllocateProducerIds: the next block of 1,000 ids."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = max(image.producer_ids.next, ProducerId(0))
    if first > _LAST_ID - BLOCK_SIZE:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are allocated.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return ControllerResult([record], response)
