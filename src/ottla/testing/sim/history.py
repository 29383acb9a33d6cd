"""What the clients of a run did and saw: the material of the checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.ids import GroupId, TransactionalId
from ottla.log.types import TopicPartition

COPY_OF: Final = b"@"
"""A copy's value is that of its original, this mark, and its own name."""


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
    """What one fetch of a reader brought."""

    reader: str
    partition: TopicPartition
    committed_only: bool
    records: list[tuple[int, bytes]]
    limit: int
    """The high watermark, or the last stable offset, that the answer told."""


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
    """A record of a queue that a share consumer was given."""

    partition: TopicPartition
    offset: int
    count: int
    """Which delivery it was, as the broker told."""
    began: float
    """When it was asked for."""
    leader_epoch: int
    """In which the leader was asked, as far as the consumer knew."""
    accepted: Outcome | None = None
    """What became of the acknowledgement; None where there was none."""
    ended: float = 0.0
    """When the acknowledgement was answered."""


@dataclass(slots=True)
class History:
    """Everything, in the order in which it began."""

    sends: list[Send] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    owned: dict[tuple[GroupId, int, TopicPartition], str] = field(default_factory=dict)
    """Who owned a partition in which generation or member epoch of a group."""
    seen_offsets: list[Commit] = field(default_factory=list)
    """What members were told when they asked where their group is."""
    copied_to: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the group of the transactional copies is in the end; empty where nothing was copied."""
    deliveries: list[Delivery] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    """What a client could tell to be wrong on the spot."""
