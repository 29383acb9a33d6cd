"""One committed offset."""

from __future__ import annotations

from typing import NamedTuple

NO_EXPIRY = -1


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
