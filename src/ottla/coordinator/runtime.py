"""The runtime that all coordinators share: shards on partitions, loading, writing, waiting for commits, timers.

The shards have the logic; the log is behind `ottla.coordinator.partition`. Everything runs on the event loop, except
the reading and decoding when a shard is loaded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.clock import Clock
from ottla.coordinator.built_operation import BuiltOperation
from ottla.coordinator.host import RuntimeContext, ShardHost, State
from ottla.coordinator.partition import CoordinatorPartitions
from ottla.coordinator.pending_operation import PendingOperation
from ottla.coordinator.records import RecordSerde
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import CoordinatorShard, ShardContext
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.log.verification import VerificationGuard
from ottla.metadata.endpoints import leader_of
from ottla.promise import Done, Failed, Promise
from ottla.records.codecs import Compression

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_logger = logging.getLogger(__name__)

LOAD_SLICE_S: Final = 0.003
"""The longest time for which opening logs may hold the loop."""

S = TypeVar("S", bound=CoordinatorShard)
R = TypeVar("R")

WriteOperation = Callable[[S, int], CoordinatorResult[R]]
"""`(shard, now_ms) -> result`. May raise ApiException: nothing is written then, and `failed` is called with it."""

ReadOperation = Callable[[S, int], R]


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator (`topic`) on this broker.

    `new_shard(context)` makes an empty shard. Each operation calls `done` or `failed` exactly once, before the call
    returns or later on the loop (as `ottla.promise` describes). Errors of the runtime itself: NOT_COORDINATOR (this
    broker does not lead the partition), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (it cannot write now).
    """

    __slots__ = (
        "_context",
        "_hosts",
        "_image",
        "_loads",
        "_partitions",
        "_reload_in_new_epoch",
        "_scheduled",
    )

    def __init__(
        self,
        *,
        topic: TopicName,
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
        write_timeout_ms: int = 5_000,
        reload_in_new_epoch: bool = False,
    ) -> None:
        """`post` is `loop.call_soon_threadsafe`. `linger_ms` -1: as long as the loop's turn; 0: not at all.

        `reload_in_new_epoch`: the shard's state depends on the leader epoch.
        """
        self._image = image
        self._partitions = partitions
        self._reload_in_new_epoch = reload_in_new_epoch
        self._hosts: dict[int, ShardHost[S]] = {}
        self._loads: deque[ShardHost[S]] = deque()
        self._scheduled = False
        self._context = RuntimeContext(
            topic=topic,
            clock=clock,
            executor=executor,
            post=post,
            serde=serde,
            new_shard=new_shard,
            open=lambda partition: partitions.open(topic, partition),
            image=lambda: self._image,
            compression=compression,
            linger_ms=linger_ms,
            load_buffer_bytes=load_buffer_bytes,
            write_timeout_ms=write_timeout_ms,
        )

    def load_times_s(self, within_s: float) -> list[float]:
        """How long the partitions took that were loaded lately."""
        since_s = self._context.clock.monotonic() - within_s
        return [took_s for at_s, took_s in self._context.loads if at_s >= since_s]

    # -- leadership

    def elect(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: load the shard. Until then operations get COORDINATOR_LOAD_IN_PROGRESS."""
        host = self._hosts.get(partition)
        if host is not None and host.state is not State.FAILED:
            if leader_epoch <= host.leader_epoch:
                return
            if not self._reload_in_new_epoch:
                # No other broker led the partition meanwhile, or the metadata would have made this one resign.
                host.leader_epoch = leader_epoch
                return
            host.close()
        host = self._hosts[partition] = ShardHost(self._context, partition, leader_epoch)
        self._partitions.prepare(self._context.topic, partition, partial(self._load_soon, host))

    def _load_soon(self, host: ShardHost[S]) -> None:
        self._loads.append(host)
        if not self._scheduled:
            self._scheduled = True
            self._context.clock.call_later(0.0, self._load_some)

    def _load_some(self) -> None:
        """There are many logs, and each takes time to open: a few per turn of the loop."""
        clock = self._context.clock
        end = clock.monotonic() + LOAD_SLICE_S
        try:
            while self._loads:
                self._loads.popleft().load()
                if clock.monotonic() >= end:
                    break
        finally:
            self._scheduled = bool(self._loads)
            if self._scheduled:
                clock.call_later(0.0, self._load_some)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """No longer the leader (None: in any epoch): unload. Pending operations fail with NOT_COORDINATOR."""
        host = self._hosts.get(partition)
        if host is None or (leader_epoch is not None and leader_epoch < host.leader_epoch):
            return
        del self._hosts[partition]
        host.close()

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher: elect and resign by the leaders of the topic's partitions, then update the shards."""
        self._image = image
        topic = self._context.topic
        if any(deleted.name == topic for deleted in delta.deleted_topics.values()):
            for partition in list(self._hosts):
                self.resign(partition)
        for change in delta.changed_topics.values():
            if change.name != topic:
                continue
            for partition, registration in change.partition_changes.items():
                if registration.leader == node_id:
                    self.elect(partition, registration.leader_epoch)
                else:
                    self.resign(partition, registration.leader_epoch)
        for host in list(self._hosts.values()):
            host.publish(delta, image)

    def shutdown(self) -> None:
        """Unload every shard."""
        for partition in list(self._hosts):
            self.resign(partition)

    # -- operations

    def write(
        self,
        partition: int,
        operation: WriteOperation[S, R],
        done: Done[R],
        failed: Failed,
        late: Done[R] | None = None,
    ) -> None:
        """Run the operation, append its records, replay them, and respond when they are committed.

        `late` is called for a commit that comes after the write timeout, for which `failed` was called.
        """
        host = self._hosts.get(partition)
        if host is None or host.state is not State.ACTIVE:
            host = self._host(partition, failed)
        if host is not None:
            host.run(operation, PendingOperation(done, failed, late))

    def write_at_once(self, partition: int, operation: BuiltOperation[S]) -> bool:
        """Do an operation that waits for nothing, alone in its batch. False: nothing has happened, it needs `write`."""
        host = self._hosts.get(partition)
        return host is not None and host.run_at_once(operation)

    def write_all(self, operation: WriteOperation[S, R]) -> None:
        """Run the operation on every active shard; failures are logged (cleaning up after deleted topics)."""
        for host in list(self._hosts.values()):
            if host.state is State.ACTIVE:
                pending: PendingOperation[R] = PendingOperation(_ignore, partial(_log_failure, repr(host)))
                host.run(operation, pending)

    def write_transactional(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        operation: WriteOperation[S, R],
        done: Done[R],
        failed: Failed,
        guard: VerificationGuard | None = None,
    ) -> None:
        """As `write`, with the records in a batch of their own that belongs to the producer's transaction.

        `guard` proves that the partition was verified, unless the transaction is open in it already.
        """
        host = self._host(partition, failed)
        if host is not None:
            host.run_transactional(
                operation, producer_id, producer_epoch, PendingOperation(done, failed), guard
            )

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
        """Append the end marker of a transaction, replay it, and respond when it is committed."""
        host = self._host(partition, failed)
        if host is not None:
            host.end_transaction(
                producer_id,
                producer_epoch,
                coordinator_epoch,
                commit,
                transaction_version,
                PendingOperation(done, failed),
            )

    def read(self, partition: int, operation: ReadOperation[S, R], done: Done[R], failed: Failed) -> None:
        """Run the operation now, and respond when all that it can have seen is committed."""
        host = self._host(partition, failed)
        if host is not None:
            host.read(operation, PendingOperation(done, failed))

    def read_all(self, operation: ReadOperation[S, R], done: Done[list[R]], failed: Failed) -> None:
        """Read from every shard led here, with the responses in one list; fails while one of them is loading."""
        hosts = list(self._hosts.values())
        responses: list[R] = []
        missing = len(hosts)
        all_read: Promise[list[R]] = Promise()
        all_read.then(done, failed)

        def one_settled() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                all_read.resolve(responses)

        def read(response: R) -> None:
            responses.append(response)
            one_settled()

        def refused(error: ApiException) -> None:
            if error.code is ErrorCode.NOT_COORDINATOR:
                one_settled()
            else:
                all_read.reject(error)

        if not hosts:
            all_read.resolve(responses)
        for host in hosts:
            error = host.unusable()
            if error is not None:
                refused(error)
            else:
                host.read(operation, PendingOperation(read, refused))

    def _host(self, partition: int, failed: Failed) -> ShardHost[S] | None:
        host = self._hosts.get(partition)
        if host is None:
            failed(
                ApiException(
                    ErrorCode.NOT_COORDINATOR,
                    f"{self._context.topic}-{partition} is not coordinated by this broker",
                )
            )
            return None
        error = host.unusable()
        if error is not None:
            failed(error)
            return None
        return host

    # -- state

    @property
    def partition_count(self) -> int:
        """Partitions of the topic in the published image; 0 while it does not exist."""
        topic = self._image.topics.by_name.get(self._context.topic)
        return 0 if topic is None else len(topic.partitions)

    def leader_of(self, partition: int) -> BrokerId:
        """The broker that coordinates a partition in the published image; NO_LEADER when there is none."""
        return leader_of(self._image, self._context.topic, partition)

    def is_active(self, partition: int) -> bool:
        """Whether the shard is loaded."""
        host = self._hosts.get(partition)
        return host is not None and host.state is State.ACTIVE

    def each_shard(self, visit: Callable[[S], None]) -> None:
        """Call with every shard that is loaded or being loaded."""
        for host in self._hosts.values():
            if host.shard is not None:
                visit(host.shard)

    def shard(self, partition: int) -> S | None:
        """The loaded shard, for tests and metrics."""
        host = self._hosts.get(partition)
        return host.shard if host is not None and host.state is State.ACTIVE else None


def _ignore(response: object) -> None:
    """No caller waits for this response."""


def _log_failure(name: str, error: ApiException) -> None:
    _logger.warning("%s: %s", name, error.message)


@lru_cache(maxsize=1024)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of a coordinator topic that keeps a key, by Java's hash of strings."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    if value == 0x8000_0000:
        # Java's Integer.MIN_VALUE has no absolute value; Kafka counts it as 0.
        return 0
    return min(value, 0x1_0000_0000 - value) % partition_count
