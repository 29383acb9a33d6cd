"""Names and small results that the log hands to the layers above: partitions, append results, slices.

Holds no behaviour beyond what describes the values themselves.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from ottla.ids import TopicName

NO_TIMESTAMP = -1
NO_EPOCH = -1
UNKNOWN_OFFSET = -1


class TopicPartition(NamedTuple):
    """A partition by its topic's name: the key of every map of logs, and the stem of its directory."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AppendOrigin(Enum):
    """Who appends: clients are checked most, the raft leader brings offsets of its own."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"


class AppendInfo(msgspec.Struct):
    """What an append did. For a duplicate these are the offsets of the batch that was already there."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """Timestamp set by the broker, or -1 where the producer's own timestamps stand."""
    log_start_offset: int
    duplicate: bool = False
    """An idempotent producer's retry of a batch already in the log: nothing was written."""
    size: int = 0
    count: int = 0
    """Records appended."""


class LogSlice(msgspec.Struct):
    """A run of batches of one segment: begins at the batch that holds the offset asked for, and may end amid one."""

    records: memoryview
    start_offset: int
    """The offset that was asked for."""
    bound: int
    """No record of it has this offset or a later one."""
    first_batch_complete: bool = True
    """False where not even the first batch fitted (`min_one_batch=False`)."""


class TimestampOffset(msgspec.Struct, frozen=True):
    """Where a timestamp was found, with the leader epoch of that record (or -1)."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_EPOCH


class AbortedTxn(NamedTuple):
    """An aborted transaction that ends in some segment, as a fetch response and the transaction index tell it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class WouldBlock(Exception):
    """The pages are not in memory: call again without `nowait`, in a thread."""
