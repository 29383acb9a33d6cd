"""Small types that the log shares with the layers above: partitions, append results, slices."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from ottla.ids import TopicName

NO_TIMESTAMP = -1
NO_EPOCH = -1
UNKNOWN_OFFSET = -1


class TopicPartition(NamedTuple):
    """A partition by its topic's name: the key of the maps of logs, and the name of its directory."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AppendOrigin(Enum):
    """The source of an append. Batches of clients get most checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"


class AppendInfo(msgspec.Struct):
    """The result of an append. For a duplicate these are the offsets of the original batch."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """The timestamp set by the broker, or -1 if the producer's timestamps are kept."""
    log_start_offset: int
    duplicate: bool = False
    """An idempotent producer's retry of a batch already in the log: nothing was written."""
    size: int = 0
    count: int = 0
    """Records appended."""


class LogSlice(msgspec.Struct):
    """Batches of one segment: from the batch that holds the requested offset. The end may cut a batch."""

    records: memoryview
    start_offset: int
    """The requested offset."""
    bound: int
    """All records have offsets below this one."""
    first_batch_complete: bool = True
    """False if not even the first batch fits (`min_one_batch=False`)."""


class TimestampOffset(msgspec.Struct, frozen=True):
    """The offset of a record with its timestamp and leader epoch (or -1)."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_EPOCH


class AbortedTxn(NamedTuple):
    """An aborted transaction, as in fetch responses and in the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class WouldBlock(Exception):
    """The data is not in the page cache: call again in a thread without `nowait`."""
