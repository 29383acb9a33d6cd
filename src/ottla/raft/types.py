"""Types that every module of the quorum uses: replicas, positions in the log, batches, the listener interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from ottla.ids import BrokerId, TopicName
from ottla.log.types import TopicPartition
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

METADATA_TOPIC: Final = TopicName("__cluster_metadata")
CLUSTER_METADATA: Final = TopicPartition(METADATA_TOPIC, 0)

MAX_BATCH_BYTES: Final = 8 << 20
"""The largest batch of the metadata log; Kafka's bound."""


class OffsetAndEpoch(NamedTuple):
    """A position in the log: an end offset and the epoch of the record before it."""

    offset: int
    epoch: int

    def is_at_least(self, other: OffsetAndEpoch) -> bool:
        """A log that ends here is at least as up to date as one that ends there: the rule for granting votes."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and its directory (all zero where the directory is not known)."""

    id: BrokerId
    directory_id: bytes = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """The same replica, as far as both directories are known."""
        return self.id == other.id and (
            ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id
        )


class CommittedBatch(msgspec.Struct):
    """A batch of the log or of a snapshot, as listeners get it. A control batch has no records here."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp: int
    """Of the append, in milliseconds."""
    size: int
    """Bytes in the log."""
    records: Sequence[WireMessage]

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class RaftListener(Protocol):
    """Receives committed batches in log order, on the event loop."""

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        """These batches are committed. Iterate to the end: after a start they are the whole log, read lazily."""

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        """Start over from a snapshot, which holds all records below its offset. Its batches' offsets mean nothing."""

    def handle_leader_change(self, leader_id: BrokerId | None, epoch: int) -> None:
        """A leader is known, or lost. When this node leads, all records of earlier epochs were delivered before."""


class RecordSerde(Protocol):
    """Converts records to bytes and back; the quorum itself does not look into them."""

    def encode(self, message: WireMessage) -> bytes: ...

    def decode(self, buf: bytes | memoryview) -> WireMessage: ...


class ReplicaState(msgspec.Struct, frozen=True):
    """How far a replica is, as DescribeQuorum reports it. Times are -1 where unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumInfo(msgspec.Struct, frozen=True):
    """The content of a DescribeQuorum response."""

    leader_id: BrokerId
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: Sequence[tuple[BrokerId, Sequence[tuple[str, str, int]]]]
    """For every voter: its id, and its controller listeners as (name, host, port)."""
