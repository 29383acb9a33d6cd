"""The protocol inside the classic protocol: what consumers tell each other in JoinGroup and SyncGroup.

Subscriptions and assignments are opaque to a classic group; where classic members sit in a consumer group the
broker reads and writes them itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire import messages
from ottla.wire.codec import decode_prefix, encode

Message = Any

_VERSION: Final = struct.Struct(">h")


def subscription_of(metadata: bytes) -> Message:
    """A member's ConsumerProtocolSubscription. Raises ApiException for what is none."""
    return _decode(messages.ConsumerProtocolSubscription, metadata)


def assigned_in(assignment: bytes, image: MetadataImage) -> tuple[dict[bytes, frozenset[int]], bool]:
    """The partitions of an assignment by topic id (of topics that exist), and whether it has data of its own."""
    if not assignment:
        return {}, False
    decoded = _decode(messages.ConsumerProtocolAssignment, assignment)
    return _by_topic_id(decoded.assigned_partitions, image), bool(decoded.user_data)


def owned_in(subscription: Message, image: MetadataImage) -> dict[bytes, frozenset[int]]:
    """What a member says it owns (nothing, in the form that the eager protocol uses)."""
    return _by_topic_id(subscription.owned_partitions, image)


def assignment_bytes(
    partitions: Mapping[bytes, Collection[int]], subscription: bytes, image: MetadataImage
) -> bytes:
    """An assignment in the version of the member's own subscription."""
    assignment = messages.ConsumerProtocolAssignment
    version = _version_of(assignment, subscription)
    topics = image.topics.by_id
    message = assignment(
        assigned_partitions=[
            assignment.TopicPartition(topic=topics[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in topics
        ]
    )
    return _VERSION.pack(version) + encode(message, version)


def _by_topic_id(topics: list[Message], image: MetadataImage) -> dict[bytes, frozenset[int]]:
    known = image.topics.by_name
    return {known[each.topic].id: frozenset(each.partitions) for each in topics if each.topic in known}


def _version_of(kind: Any, data: bytes) -> int:
    """The version at the head of the data; a later one than we know is read as the latest we know."""
    if len(data) < _VERSION.size:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "the embedded consumer protocol is malformed")
    version = int(_VERSION.unpack_from(data)[0])
    if version < kind.MIN_VERSION:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no version {version} of {kind.NAME}")
    return min(version, int(kind.MAX_VERSION))


def _decode(kind: Any, data: bytes) -> Message:
    return decode_prefix(kind, _version_of(kind, data), data, _VERSION.size)[0]
