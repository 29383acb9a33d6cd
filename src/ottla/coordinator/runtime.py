"""The runtime that all coordinators share: shards on partitions, loading, writing, waiting for commits, timers.

The logic is the shards'; the log is behind `ottla.coordinator.partition`. Everything here runs on the event loop but
for reading and decoding when a shard is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.clock import Clock
from ottla.coordinator.partition import CoordinatorPartitions
from ottla.coordinator.records import RecordSerde
from ottla.coordinator.result import CoordinatorResult, Done, Failed
from ottla.coordinator.shard import CoordinatorShard, ShardContext
from ottla.records.codecs import Compression

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")

WriteOperation = Callable[[S, int], CoordinatorResult[R]]
"""`(shard, now_ms) -> result`. May raise KafkaError: nothing is written then and `failed` is told."""

ReadOperation = Callable[[S, int], R]


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator (`topic`) on this broker.

    `new_shard(context)` makes an empty shard. Each call answers through `done`/`failed`, exactly once, at once or later
    on the loop. Errors of the runtime itself: NOT_COORDINATOR (this broker does not lead the partition),
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (cannot be written now), RECORD_LIST_TOO_LARGE.
    """

    def __init__(
        self,
        *,
        topic: str,
        clock: Clock,
        executor: Executor,
        post: Callable[..., object],
        partitions: CoordinatorPartitions,
        serde: RecordSerde,
        new_shard: Callable[[ShardContext], S],
        image: MetadataImage,
        compression: Compression = Compression.NONE,
        linger_ms: int = -1,
        load_buffer_bytes: int = 5 * 1024 * 1024,
    ) -> None:
        """`post` is `loop.call_soon_threadsafe`. `linger_ms` -1: as long as the loop's turn; 0: not at all."""

    # -- leadership

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: load the shard. Answers meanwhile: COORDINATOR_LOAD_IN_PROGRESS."""

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """No longer the leader (None: whatever the epoch): unload. What waits fails with NOT_COORDINATOR."""

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher: elect and resign by who leads the topic's partitions, then tell the shards."""

    def shutdown(self) -> None:
        """Unload every shard."""

    # -- operations

    def write(self, partition: int, operation: WriteOperation[S, R], done: Done[R], failed: Failed) -> None:
        """Run the operation, append its records, replay them, and answer when they are committed."""

    def write_all(self, operation: WriteOperation[S, Any]) -> None:
        """Run the operation on every active shard; failures are logged (cleaning up after deleted topics)."""

    def write_transactional(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        operation: WriteOperation[S, R],
        done: Done[R],
        failed: Failed,
    ) -> None:
        """The same, the records in a batch of their own that belongs to the producer's transaction.

        That the partition is part of the transaction has been verified by the caller.
        """

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        done: Done[None],
        failed: Failed,
        transaction_version: int = 0,
    ) -> None:
        """Append the end marker of a transaction, tell the shard, and answer when it is committed."""

    def read(self, partition: int, operation: ReadOperation[S, R], done: Done[R], failed: Failed) -> None:
        """Run the operation now; the answer goes out when everything it could see is committed."""

    def read_all(self, operation: ReadOperation[S, R], done: Done[list[R]], failed: Failed) -> None:
        """The same on every shard led here, answers in one list; fails when one of them is still loading."""

    # -- what there is

    @property
    def partition_count(self) -> int:
        """Partitions of the topic in the published image; 0 while it does not exist."""
        return 0

    def is_active(self, partition: int) -> bool:
        """Whether the shard is loaded."""
        return False

    def shard(self, partition: int) -> S | None:
        """The loaded shard, for tests and metrics."""
        return None


def partition_for(key: str, partition_count: int) -> int:
    """The partition of a coordinator topic that keeps a key: by the hash that Java has for strings."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    if value == 0x8000_0000:
        # The one number without a positive twin counts as 0.
        return 0
    return min(value, 0x1_0000_0000 - value) % partition_count
