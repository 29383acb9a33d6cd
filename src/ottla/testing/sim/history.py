"""The history of a run: what its clients did and saw. The checker reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.ids import GroupId, TransactionalId
from ottla.log.types import TopicPartition

COPY_OF: Final = b"@"
"""A copy's value is its original's value, this mark, and its own name."""


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """A batch of one producer to one partition."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: int = -1


@dataclass(slots=True)
class Transaction:
    """`OK` is committed, `FAILED` is aborted."""

    producer: TransactionalId
    number: int
    sends: list[Send] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Poll:
    """The result of one fetch of a reader."""

    reader: str
    partition: TopicPartition
    committed_only: bool
    records: list[tuple[int, bytes]]
    limit: int
    """The high watermark, or the last stable offset, in the response."""


@dataclass(slots=True)
class Commit:
    """A group's offset, as a member committed or found it."""

    group: GroupId
    partition: TopicPartition
    offset: int
    outcome: Outcome = Outcome.UNKNOWN
    began: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Delivery:
    """A record of a queue that a share consumer acquired."""

    partition: TopicPartition
    offset: int
    count: int
    """The delivery count in the response."""
    began: float
    """When the fetch began."""
    leader_epoch: int
    """The leader epoch that the consumer knew."""
    accepted: Outcome | None = None
    """The outcome of the acknowledgement; None without one."""
    ended: float = 0.0
    """When the response to the acknowledgement came."""


@dataclass(slots=True)
class History:
    """All operations, in the order in which they began."""

    sends: list[Send] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    owned: dict[tuple[GroupId, int, TopicPartition], str] = field(default_factory=dict)
    """The owner of a partition in a generation or member epoch of a group."""
    seen_offsets: list[Commit] = field(default_factory=list)
    """The committed offsets that members fetched."""
    copied_to: dict[TopicPartition, int] = field(default_factory=dict)
    """The final offsets of the copiers' group; empty without copiers."""
    deliveries: list[Delivery] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    """Violations that a client noticed itself."""
