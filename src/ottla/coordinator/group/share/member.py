"""A member of a share group. Members never change: a heartbeat or a record makes the next one.

There is nothing to wait for between members, since partitions are shared: whoever comes gets its target at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """One member at one moment."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)
