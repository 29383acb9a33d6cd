"""Checks that the share APIs have in common: the feature level, group and member ids, and acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.api.base import RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.replica.share.sessions import PartitionKey
from ottla.replica.share.states import Acknowledgement, AckType
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import ShareAcknowledgeRequest, ShareFetchRequest

    _FetchTopic = ShareFetchRequest.FetchTopic
    _AcknowledgeTopic = ShareAcknowledgeRequest.AcknowledgeTopic

_FEATURE = "share.version"
_MAX_MEMBER_ID = 36
_RENEW_FROM = 2

Acknowledgements = dict[PartitionKey, list[Acknowledgement]]
Refusals = dict[PartitionKey, ApiException | None]


def require_share_groups(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION where the feature's level does not allow share groups."""
    if broker.image.features.get(_FEATURE, 0) < 1:
        raise ApiException(
            ErrorCode.UNSUPPORTED_VERSION,
            "Share groups are not enabled in this cluster: upgrade the feature share.version",
        )


def require_share_groups_silently(broker: Broker) -> None:
    """The same without a message: ShareGroupHeartbeat and ShareGroupDescribe have none in Kafka."""
    if broker.image.features.get(_FEATURE, 0) < 1:
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION)


def require_member(group_id: GroupId | None, member_id: str | None) -> tuple[GroupId, str]:
    """Group and member id of a request; raises INVALID_REQUEST when one is missing or malformed."""
    if group_id is None:
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if member_id is None or not is_member_id(member_id):
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def is_member_id(member_id: str) -> bool:
    """Whether a member id has a valid length."""
    return 0 < len(member_id) <= _MAX_MEMBER_ID


def acknowledgements(
    broker: Broker, ctx: RequestContext, topics: Sequence[_FetchTopic | _AcknowledgeTopic], is_renewal: bool
) -> tuple[Acknowledgements, Refusals]:
    """The acknowledgements of a request, and errors for those that are refused without a share partition."""
    found: Acknowledgements = {}
    refused: Refusals = {}
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.topic_id for topic in topics))
    for topic in topics:
        known = broker.image.topics.by_id.get(topic.topic_id)
        for part in topic.partitions:
            if not part.acknowledgement_batches:
                continue
            key = (topic.topic_id, part.partition_index)
            batches = [
                Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in part.acknowledgement_batches
            ]
            if known is None:
                refused[key] = ApiException(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id")
            elif topic.topic_id in denied:
                refused[key] = NOT_AUTHORIZED
            elif not _well_formed(batches, ctx.version, is_renewal):
                refused[key] = ApiException(
                    ErrorCode.INVALID_REQUEST, "The acknowledgement batches are not well-formed"
                )
            elif part.partition_index not in known.partitions:
                refused[key] = ApiException(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {known.name} has no such partition"
                )
            else:
                found[key] = batches
    return found, refused


def _well_formed(batches: list[Acknowledgement], version: int, is_renewal: bool) -> bool:
    highest = AckType.RENEW if version >= _RENEW_FROM else AckType.REJECT
    before = -1
    for batch in batches:
        size = batch.last - batch.first + 1
        if size < 1 or batch.first < before or not batch.types:
            return False
        if len(batch.types) not in (1, size) or not all(0 <= kind <= highest for kind in batch.types):
            return False
        if AckType.RENEW in batch.types and not is_renewal:
            return False
        before = batch.last
    return True
