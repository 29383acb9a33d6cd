"""Lookups of brokers in an image that several controller modules share."""

from __future__ import annotations

from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.image import BrokerRegistration, MetadataImage


def is_active(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Registered, unfenced and not in controlled shutdown: it may lead and be in an ISR."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def check_broker_epoch(image: MetadataImage, broker_id: BrokerId, broker_epoch: int) -> BrokerRegistration:
    """The registration of a broker that sends a request. Raises STALE_BROKER_EPOCH if its epoch is not current."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiException(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}."
        )
    if broker.epoch != broker_epoch:
        raise ApiException(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}.",
        )
    return broker
