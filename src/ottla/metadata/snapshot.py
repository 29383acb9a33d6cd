"""Converts an image to the records of a snapshot. Replayed on the empty image, they make an equal image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.ids import BrokerId
from ottla.metadata.cluster import broker_to_record, controller_to_record
from ottla.metadata.features import (
    CONTROLLER_REGISTRATION_FROM,
    DELEGATION_TOKENS_FROM,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    SCRAM_FROM,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.partitions import partition_to_record
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage


def written_at(image: MetadataImage) -> int:
    """The metadata.version for the image's records: its own, or the newest where it has none."""
    return image.features.get(METADATA_VERSION, LATEST_METADATA_VERSION)


def image_to_records(image: MetadataImage) -> Iterator[WireMessage]:
    """All records of the image. Features come first because the metadata.version decides how to read the rest.

    Record types that the image's metadata.version does not have are left out: an older node could not read them.
    """
    yield from _features(image)
    yield from _cluster(image)
    for topic in image.topics.by_id.values():
        yield messages.TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield partition_to_record(topic.id, index, partition, written_at(image))
    for (resource_type, name), values in image.configs.resources.items():
        for key, value in values.items():
            yield messages.ConfigRecord(
                resource_type=resource_type, resource_name=name, name=key, value=value
            )
    yield from _client_quotas(image)
    if image.producer_ids.next >= 0:
        yield messages.ProducerIdsRecord(
            broker_id=BrokerId(-1), broker_epoch=-1, next_producer_id=image.producer_ids.next
        )
    for acl_id, acl in image.acls.items():
        yield messages.AccessControlEntryRecord(id=acl_id, **acl._asdict())
    yield from _credentials(image)


def _features(image: MetadataImage) -> Iterator[WireMessage]:
    if METADATA_VERSION in image.features:
        yield messages.FeatureLevelRecord(
            name=METADATA_VERSION, feature_level=image.features[METADATA_VERSION]
        )
    for name in sorted(image.features.keys() - {METADATA_VERSION}):
        yield messages.FeatureLevelRecord(name=name, feature_level=image.features[name])


def _cluster(image: MetadataImage) -> Iterator[WireMessage]:
    for broker in image.brokers.values():
        yield broker_to_record(broker, written_at(image))
    if written_at(image) >= CONTROLLER_REGISTRATION_FROM:
        for controller in image.controllers.values():
            yield controller_to_record(controller)


def _client_quotas(image: MetadataImage) -> Iterator[WireMessage]:
    cls = messages.ClientQuotaRecord
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            yield cls(
                entity=[cls.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )


def _credentials(image: MetadataImage) -> Iterator[WireMessage]:
    if written_at(image) >= SCRAM_FROM:
        for (mechanism, name), credential in image.scram.items():
            yield messages.UserScramCredentialRecord(name=name, mechanism=mechanism, **credential._asdict())
    if written_at(image) >= DELEGATION_TOKENS_FROM:
        for token in image.tokens.values():
            fields = token._asdict()
            yield messages.DelegationTokenRecord(**{**fields, "renewers": list(token.renewers)})
