"""The consumer protocol that is embedded in JoinGroup and SyncGroup: subscriptions and assignments.

They are opaque to a classic group; for classic members of a consumer group the broker reads and writes them itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import MetadataImage
from ottla.wire import messages
from ottla.wire.classes import WireMessage
from ottla.wire.codec import decode_prefix, encode

M = TypeVar("M", bound=WireMessage)

_VERSION: Final = struct.Struct(">h")


def subscription_of(metadata: bytes) -> messages.ConsumerProtocolSubscription:
    """Decode a member's subscription. Raises ApiException for malformed bytes."""
    return _decode(messages.ConsumerProtocolSubscription, metadata)


def assigned_in(assignment: bytes, image: MetadataImage) -> tuple[dict[bytes, frozenset[int]], bool]:
    """The partitions of an assignment by topic id (of topics that exist), and whether it has user data."""
    if not assignment:
        return {}, False
    decoded = _decode(messages.ConsumerProtocolAssignment, assignment)
    return _by_topic_id(decoded.assigned_partitions, image), bool(decoded.user_data)


def owned_in(
    subscription: messages.ConsumerProtocolSubscription, image: MetadataImage
) -> dict[bytes, frozenset[int]]:
    """The partitions that a member reports as its own (none with the eager protocol)."""
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


class _TopicPartition(Protocol):
    @property
    def topic(self) -> TopicName: ...

    @property
    def partitions(self) -> list[int]: ...


def _by_topic_id(topics: Iterable[_TopicPartition], image: MetadataImage) -> dict[bytes, frozenset[int]]:
    known = image.topics.by_name
    return {known[each.topic].id: frozenset(each.partitions) for each in topics if each.topic in known}


def _version_of(kind: type[WireMessage], data: bytes) -> int:
    """The version at the start of the data; an unknown later version is read as the latest known one."""
    if len(data) < _VERSION.size:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "The embedded consumer protocol is malformed")
    version = int(_VERSION.unpack_from(data)[0])
    if version < kind.MIN_VERSION:
        raise ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"{kind.NAME} has no version {version}")
    return min(version, kind.MAX_VERSION)


def _decode(kind: type[M], data: bytes) -> M:
    return decode_prefix(kind, _version_of(kind, data), data, _VERSION.size)[0]
