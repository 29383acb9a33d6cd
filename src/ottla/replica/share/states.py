"""The values of a share partition: states of a record, kinds of acknowledgement, and what members acquire.

AVAILABLE ──acquire──▶ ACQUIRED ──accept──▶ ACKNOWLEDGED
    ▲                     │ │
    └──release, time-out──┘ └─reject, gap, too many deliveries──▶ ARCHIVED
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The state of a record; the share coordinator persists these numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def terminal(self) -> bool:
        return self >= RecordState.ACKNOWLEDGED


class AckType(IntEnum):
    """How a consumer acknowledges a record that it holds."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """Whether whole batches may exceed the requested number of records (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Acquired(NamedTuple):
    """Records that a member now holds, the last included."""

    first: int
    last: int
    delivery_count: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class StateBatch(NamedTuple):
    """A change for the share coordinator to persist."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class Acknowledgement(NamedTuple):
    """One range of a member's acknowledgements: one type for all of it, or one for each offset."""

    first: int
    last: int
    types: list[int]


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of a share group for its partitions."""

    record_lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_in_flight: int = 2_000
    renew_enabled: bool = True
    auto_offset_reset: str = "latest"
    read_committed: bool = False
