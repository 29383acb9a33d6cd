"""One committed offset, and the record that keeps it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ottla.coordinator.records import CoordinatorRecord
from ottla.wire import messages

NO_EXPIRY: Final = -1
NO_METADATA: Final = ""

_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1
"""The only version whose value can say when it expires."""


class CommittedOffset(NamedTuple):
    """What a group committed for a partition; `record_offset` is where that stands in the coordinator's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires, for commits of old clients that said so (OffsetCommit 2-4); else NO_EXPIRY."""
    topic_id: bytes
    record_offset: int


def from_record(value: Any, record_offset: int) -> CommittedOffset:
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
    return CoordinatorRecord(
        messages.OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        messages.OffsetCommitValue(
            offset=offset,
            leader_epoch=max(leader_epoch, -1),
            metadata=metadata or NO_METADATA,
            commit_timestamp=commit_ms,
            expire_timestamp=expire_ms,
            topic_id=topic_id,
        ),
        _VERSION if expire_ms == NO_EXPIRY else _VERSION_WITH_EXPIRY,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that deletes one."""
    return CoordinatorRecord(messages.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
