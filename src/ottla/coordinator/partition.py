"""The partition under a shard, as the runtime sees it: Protocols that `ottla.server` fulfils with replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.log.types import AppendInfo
from ottla.log.verification import VerificationGuard


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
        """Raise what an append would raise: not the leader, not enough replicas in sync, a failed disk."""

    def append(
        self,
        batch: bytes,
        now_ms: int,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append one batch as the leader. `guard` lets a transactional one begin its transaction here."""
        ...

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Whole batches from `offset` on (perhaps a partial one at the end). Called in a thread."""
        ...

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """Call back on the loop after the high watermark moved other than by an append of ours; None ends it."""


class CoordinatorPartitions(Protocol):
    """Finds the partitions of one coordinator's topic."""

    def open(self, topic: str, partition: int) -> CoordinatorPartition: ...
