"""One committed offset, and its record (OffsetCommit)."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ottla.coordinator.records import CoordinatorRecord
from ottla.wire import messages
from ottla.wire.codec import encode
from ottla.wire.uuid import ZERO_UUID

NO_EXPIRY: Final = -1
NO_METADATA: Final = ""

_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1
"""The only version whose value has an expiry time."""


class CommittedOffset(NamedTuple):
    """A committed offset of a partition; `record_offset` is the offset of its record in the coordinator's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires, for commits of OffsetCommit 2-4 with a retention time; else NO_EXPIRY."""
    topic_id: bytes
    record_offset: int


def from_record(value: messages.OffsetCommitValue, record_offset: int) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        record_offset,
    )


def offset_record(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str | None,
    commit_ms: int,
    expire_ms: int,
    topic_id: bytes,
) -> CoordinatorRecord:
    """The record that commits an offset."""
    value = messages.OffsetCommitValue(
        offset=offset,
        leader_epoch=max(leader_epoch, -1),
        metadata=metadata or NO_METADATA,
        commit_timestamp=commit_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    # Long group ids are not cached, so that clients cannot fill the broker's memory with them.
    known = _key if len(group_id) <= _SHORT else _key.__wrapped__
    key, key_bytes = known(group_id, topic, partition)
    if expire_ms != NO_EXPIRY:
        return CoordinatorRecord(key, value, _VERSION_WITH_EXPIRY)
    value_bytes = _encode(value)
    return CoordinatorRecord(key, value, _VERSION, None if value_bytes is None else (key_bytes, value_bytes))


def _encode(value: messages.OffsetCommitValue) -> bytes | None:
    """The bytes of a usual commit, faster than the schema's encoder; None where only that can encode it."""
    metadata = value.metadata.encode()
    if len(metadata) > _SHORT:
        return None
    return b"".join(
        (
            _BEFORE_METADATA.pack(_VERSION, value.offset, value.leader_epoch, len(metadata) + 1),
            metadata,
            _AFTER_METADATA.pack(value.commit_timestamp),
            _NO_TAGS if value.topic_id == ZERO_UUID else _TOPIC_ID_TAG + value.topic_id,
        )
    )


@lru_cache(maxsize=4096)
def _key(group_id: str, topic: str, partition: int) -> tuple[messages.OffsetCommitKey, bytes]:
    """Cached, since a consumer commits for the same partitions again and again."""
    key = messages.OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return key, _KEY_TYPE.pack(key.API_KEY) + encode(key, 0)


_KEY_TYPE: Final = Struct(">h")
_BEFORE_METADATA: Final = Struct(">hqiB")
_AFTER_METADATA: Final = Struct(">q")
_NO_TAGS: Final = b"\0"
_TOPIC_ID_TAG: Final = b"\1\0\20"
"""One tagged field: number 0, of 16 bytes."""
_SHORT: Final = 126
"""The length of a longer string takes more than one byte."""


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that deletes a committed offset."""
    return CoordinatorRecord(messages.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
