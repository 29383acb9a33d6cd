"""A member of a share group. Members are immutable: a heartbeat or a record makes a new one.

Partitions are shared, so members never wait for each other: a member gets its target at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.ids import TopicName

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """One member. Immutable."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[TopicName] = frozenset()
    assigned: Partitions = field(default_factory=dict)
