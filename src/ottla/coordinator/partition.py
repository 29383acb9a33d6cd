"""The partition under a shard, as the runtime sees it. `ottla.broker.coordinator_log` implements the Protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.ids import TopicName
from ottla.log.fs import Buffer
from ottla.log.types import AppendInfo
from ottla.log.verification import VerificationGuard

BuildBatch = Callable[[int, int, int], Buffer]
"""`(base offset, leader epoch, now_ms) -> batch`."""


class CoordinatorPartition(Protocol):
    """A partition of a coordinator's topic that this broker leads. Calls raise ApiException when it does not."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int:
        """`max.message.bytes` of the topic: no batch may be larger."""
        ...

    def check_can_append(self) -> None:
        """Raise what an append would raise: not the leader, not enough in-sync replicas, a failed disk."""

    def append(
        self,
        batch: bytes,
        now_ms: int,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append one batch as the leader. `guard` allows a transactional batch to start its transaction here."""
        ...

    def append_at_once(self, build: BuildBatch, count: int, now_ms: int) -> int | None:
        """Append a batch that `build` makes, if it is committed with that. Returns its offset; None: not appended."""
        ...

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Whole batches from `offset` on, perhaps with a partial one at the end. Called in a thread."""
        ...

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """Call back on the loop after the high watermark moved by other means than our appends; None ends it."""


class CoordinatorPartitions(Protocol):
    """Finds the partitions of one coordinator's topic."""

    def prepare(self, topic: TopicName, partition: int, proceed: Callable[[], None]) -> None:
        """Call back when `open` need not create the log; at once where there is nothing to prepare."""

    def open(self, topic: TopicName, partition: int) -> CoordinatorPartition:
        """The partition with its log. Raises what a request to it would get."""
        ...
