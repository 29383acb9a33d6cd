"""Words of the quorum that every file here uses: replicas, places in the log, batches, what listeners are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from ottla.log.types import TopicPartition
from ottla.wire.uuid import ZERO_UUID

CLUSTER_METADATA: Final = TopicPartition("__cluster_metadata", 0)

MAX_BATCH_BYTES: Final = 8 << 20
"""The largest batch of the metadata log; Kafka's bound."""


class OffsetAndEpoch(NamedTuple):
    """A place in the log: an end offset and the epoch of the record before it. Ordered by epoch when asked so."""

    offset: int
    epoch: int

    def is_at_least(self, other: OffsetAndEpoch) -> bool:
        """This log is as up to date as one that ends there (the rule by which votes are given)."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node, and the directory of it (all zero where it is not known)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """The same replica, as far as both directories are known."""
        return self.id == other.id and (
            ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id
        )


class CommittedBatch(msgspec.Struct):
    """A batch of the log (or of a snapshot) as listeners get it. A control batch comes with no records."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp: int
    """Of the append, in milliseconds."""
    size: int
    """Bytes in the log."""
    records: Sequence[Any]

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


class RaftListener(Protocol):
    """Who is told of what is committed, in log order, on the event loop."""

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        """These batches are committed. Iterate to the end: after a start it is the whole log, read as you go."""

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        """Begin anew from a snapshot: all records below its offset are in it. Its batches' offsets mean nothing."""

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """A leader is known (or lost). When it is this node, everything of earlier epochs was handed over before."""


class RecordSerde(Protocol):
    """Records to bytes and back: the quorum itself does not look into them."""

    def encode(self, message: Any) -> bytes: ...

    def decode(self, buf: bytes | memoryview) -> Any: ...


class ReplicaState(msgspec.Struct, frozen=True):
    """How far a replica is, as DescribeQuorum tells it. Times are -1 where unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumInfo(msgspec.Struct, frozen=True):
    """What DescribeQuorum answers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    nodes: Sequence[tuple[int, Sequence[tuple[str, str, int]]]]
    """(node id, its controller listeners as (name, host, port)) of every voter."""
