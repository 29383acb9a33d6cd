"""The transaction coordinator as the APIs see it: routes requests to their shards, fetches producer ids, sends markers.

The pure modules of this package decide; this one has the timers, the retries and the order of the steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ottla.clock import Clock, Timer
from ottla.coordinator.records import RecordSerde
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.runtime import CoordinatorRuntime, partition_for
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.transaction.add_partitions_manager import AddPartitionsToTxnManager
from ottla.coordinator.transaction.end import Ended, EndRequest, complete, end_transaction
from ottla.coordinator.transaction.expiry import abort_timed_out, expire_ids, timed_out
from ottla.coordinator.transaction.init import (
    Initialized,
    InitOutcome,
    InitRequest,
    NeedsProducerId,
    check_request,
    init_producer_id,
)
from ottla.coordinator.transaction.listing import ListFilter, list_transactions
from ottla.coordinator.transaction.marker_manager import TransactionMarkerManager
from ottla.coordinator.transaction.marker_router import TransactionMarkerRouter
from ottla.coordinator.transaction.partitions import add_partitions, verify_partitions
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import NO_PRODUCER_ID, TransactionMetadata
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, ProducerId, TransactionalId
from ottla.log.types import TopicPartition
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topic_names import TRANSACTIONS_TOPIC
from ottla.promise import Done, Failed

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

_logger = logging.getLogger(__name__)

SERDE: Final = RecordSerde(("TransactionLog",))

_TOMBSTONES_AT_ONCE: Final = 500
_COMPLETION_RETRY_MS: Final = 100

Runtime = CoordinatorRuntime[TransactionShard]
EndOperation = Callable[[TransactionShard, int, ProducerId], CoordinatorResult[Ended]]
"""`(shard, now_ms, new producer id or -1)`."""


class ProducerIdSource(Protocol):
    """Gives out new producer ids."""

    def next_id(self, done: Callable[[ProducerId, ApiException | None], None]) -> None: ...


class TransactionCoordinator:
    """`broker.transactions` in the API handlers. Calls `done` or `failed` once (as `ottla.promise` describes)."""

    __slots__ = (
        "_clock",
        "_markers",
        "_producer_ids",
        "_routes",
        "_timers",
        "add_partitions_manager",
        "config",
        "runtime",
    )

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        producer_ids: ProducerIdSource,
        markers: TransactionMarkerRouter,
        add_partitions_manager: AddPartitionsToTxnManager,
        *,
        exists: Callable[[TopicPartition], bool],
        transaction_version: Callable[[], int],
        make_runtime: Callable[[Callable[[ShardContext], TransactionShard]], Runtime],
    ) -> None:
        self.config = config
        """Replaced when the broker's configuration changes."""
        self._clock = clock
        self._producer_ids = producer_ids
        self._timers: dict[str, Timer] = {}
        self._routes = markers
        self._markers = TransactionMarkerManager(clock, markers, exists=exists, on_complete=self._complete)
        self.add_partitions_manager = add_partitions_manager
        """For transactions that other brokers coordinate."""

        def new_shard(context: ShardContext) -> TransactionShard:
            return TransactionShard(
                context.partition,
                context.leader_epoch,
                transaction_version=transaction_version,
                on_prepared=self._resume,
                on_unloaded=self._markers.remove,
            )

        self.runtime = make_runtime(new_shard)

    @property
    def unfinished(self) -> int:
        """Decided transactions of which a partition does not have its marker yet."""
        return len(self._markers)

    def start(self) -> None:
        """Start the periodic abort of timed-out transactions and the expiry of unused ids."""
        self._every("transaction.abort.timed.out.transaction.cleanup.interval.ms", self.abort_timed_out)
        self._every("transaction.remove.expired.transaction.cleanup.interval.ms", self.expire_ids)

    def shutdown(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._markers.shutdown()
        self._routes.close()
        self.add_partitions_manager.close()
        self.runtime.shutdown()

    def publish(self, delta: MetadataDelta, image: MetadataImage, node_id: int) -> None:
        """A metadata publisher, after the replicas."""
        self.runtime.publish(delta, image, node_id)
        self._routes.leaders_changed(image)

    def partition_of(self, transactional_id: TransactionalId) -> int:
        """The partition of `__transaction_state` of an id. Raises INVALID_REQUEST, COORDINATOR_NOT_AVAILABLE."""
        if not transactional_id:
            raise ApiException(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
        count = self.runtime.partition_count
        if not count:
            raise ApiException(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TRANSACTIONS_TOPIC} does not exist yet"
            )
        return partition_for(transactional_id, count)

    def coordinator_of(self, transactional_id: TransactionalId) -> BrokerId:
        """The broker that coordinates an id's transactions. Raises COORDINATOR_NOT_AVAILABLE when there is none."""
        leader = self.runtime.leader_of(self.partition_of(transactional_id))
        if leader == NO_LEADER:
            raise ApiException(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"No broker coordinates the transactions of {transactional_id} now",
            )
        return leader

    # -- InitProducerId

    def init_producer_id(
        self,
        request: InitRequest,
        *,
        two_phase: bool,
        keep_prepared: bool,
        done: Done[TransactionMetadata],
        failed: Failed,
    ) -> None:
        """Give a transactional id a new epoch; CONCURRENT_TRANSACTIONS while the fenced transaction is aborted."""
        config = self.config
        timeout_ms = check_request(
            request.transactional_id,
            request.timeout_ms,
            two_phase=two_phase,
            keep_prepared=keep_prepared,
            two_phase_enabled=config.bool("transaction.two.phase.commit.enable"),
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
        )
        request = InitRequest(
            request.transactional_id, timeout_ms, request.expected_id, request.expected_epoch
        )
        self._init(self.partition_of(request.transactional_id), request, NO_PRODUCER_ID, done, failed)

    def _init(
        self,
        partition: int,
        request: InitRequest,
        new_id: ProducerId,
        done: Done[TransactionMetadata],
        failed: Failed,
    ) -> None:
        def initialized(outcome: InitOutcome) -> None:
            if isinstance(outcome, NeedsProducerId) or (
                isinstance(outcome, Ended) and outcome.needs_producer_id
            ):
                again = partial(self._init, partition, request, done=done, failed=failed)
                self._with_new_id(again, failed)
            elif isinstance(outcome, Initialized):
                shard = self.runtime.shard(partition)
                if shard is not None:
                    shard.note_last_epoch(outcome.transaction, outcome.last_epoch)
                done(outcome.transaction)
            else:
                self._decided(partition, outcome)
                failed(
                    ApiException(
                        ErrorCode.CONCURRENT_TRANSACTIONS,
                        f"{request.transactional_id}: an open transaction is aborted first; retry",
                    )
                )

        def late(outcome: InitOutcome) -> None:
            if isinstance(outcome, Ended):
                self._decided(partition, outcome)

        self.runtime.write(
            partition,
            lambda shard, now_ms: init_producer_id(shard, request, now_ms, new_id),
            initialized,
            failed,
            late,
        )

    def _with_new_id(self, then: Callable[[ProducerId], None], failed: Failed) -> None:
        def given(producer_id: ProducerId, error: ApiException | None) -> None:
            if error is not None:
                failed(error)
            else:
                then(producer_id)

        self._producer_ids.next_id(given)

    # -- partitions

    def add_partitions(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        done: Done[None],
        failed: Failed,
    ) -> None:
        """Add partitions to the id's transaction."""
        added = frozenset(partitions)
        self.runtime.write(
            self.partition_of(transactional_id),
            lambda shard, now_ms: add_partitions(
                shard, transactional_id, producer_id, producer_epoch, added, client_version, now_ms
            ),
            done,
            failed,
        )

    def verify_partitions(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Done[dict[TopicPartition, ErrorCode]],
        failed: Failed,
    ) -> None:
        """Check which partitions are part of the id's transaction; TRANSACTION_ABORTABLE for those that are not."""
        verified = tuple(partitions)
        self.runtime.read(
            self.partition_of(transactional_id),
            lambda shard, now_ms: verify_partitions(
                shard, transactional_id, producer_id, producer_epoch, verified
            ),
            done,
            failed,
        )

    # -- the end

    def end_transaction(self, request: EndRequest, done: Done[Ended], failed: Failed) -> None:
        """Commit or abort. Responds when the decision is committed; the markers follow."""
        partition = self.partition_of(request.transactional_id)
        self._end(
            partition,
            lambda shard, now_ms, new_id: end_transaction(shard, request, now_ms, new_id),
            done,
            failed,
        )

    def _end(
        self,
        partition: int,
        operation: EndOperation,
        done: Done[Ended],
        failed: Failed,
        new_id: ProducerId = NO_PRODUCER_ID,
    ) -> None:
        def ended(outcome: Ended) -> None:
            if outcome.needs_producer_id:
                self._with_new_id(lambda given: self._end(partition, operation, done, failed, given), failed)
                return
            # The decision is committed, so the producer need not wait for the markers. Those for this broker's
            # partitions are written before its next request is read.
            done(outcome)
            self._decided(partition, outcome)

        self.runtime.write(
            partition,
            lambda shard, now_ms: operation(shard, now_ms, new_id),
            ended,
            failed,
            partial(self._decided, partition),
        )

    def _decided(self, partition: int, outcome: Ended) -> None:
        shard = self.runtime.shard(partition)
        if outcome.prepared is not None and shard is not None:
            self._send_markers(shard, outcome.prepared)

    def _resume(self, partition: int, prepared: TransactionMetadata) -> None:
        """A loaded shard has a decision: send its markers once it is known to be committed."""

        def committed(found: TransactionMetadata | None) -> None:
            shard = self.runtime.shard(partition)
            if found == prepared and shard is not None:
                self._send_markers(shard, prepared)

        def failed(error: ApiException) -> None:
            _logger.info(
                "The end of %s is not known to be committed: %s", prepared.transactional_id, error.message
            )

        self.runtime.write(
            partition,
            lambda shard, now_ms: CoordinatorResult((), shard.find(prepared.transactional_id)),
            committed,
            failed,
            committed,
        )

    def _send_markers(self, shard: TransactionShard, prepared: TransactionMetadata) -> None:
        self._markers.add(shard.partition, shard.coordinator_epoch, prepared)

    def _complete(self, partition: int, prepared: TransactionMetadata) -> None:
        def failed(error: ApiException) -> None:
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._clock.call_later(_COMPLETION_RETRY_MS / 1000, self._complete, partition, prepared)
            else:
                # Another coordinator reads the decision from the log and completes it.
                _logger.info(
                    "Another broker completes the transaction of %s: %s",
                    prepared.transactional_id,
                    error.message,
                )

        self.runtime.write(
            partition, lambda shard, now_ms: complete(shard, prepared, now_ms), lambda after: None, failed
        )

    # -- describing

    def describe(
        self, transactional_id: TransactionalId, done: Done[TransactionMetadata | None], failed: Failed
    ) -> None:
        """The state of a transactional id; None for an unknown one."""
        self.runtime.read(
            self.partition_of(transactional_id),
            lambda shard, now_ms: shard.find(transactional_id),
            done,
            failed,
        )

    def list(self, wanted: ListFilter, done: Done[list[TransactionMetadata]], failed: Failed) -> None:
        """The transactions that this broker coordinates."""

        def answered(found: list[list[TransactionMetadata]]) -> None:
            done([txn for of_shard in found for txn in of_shard])

        self.runtime.read_all(
            lambda shard, now_ms: list_transactions(shard, wanted, now_ms), answered, failed
        )

    # -- timeouts

    def _every(self, interval_key: str, work: Callable[[], None]) -> None:
        def due() -> None:
            self._every(interval_key, work)
            work()

        self._timers[interval_key] = self._clock.call_later(self.config.int(interval_key) / 1000, due)

    def abort_timed_out(self) -> None:
        """Abort the open transactions whose timeout is over."""
        now_ms = self._clock.now_ms()
        for partition in range(self.runtime.partition_count):
            shard = self.runtime.shard(partition)
            for txn in [] if shard is None else timed_out(shard, now_ms):
                self._abort(partition, txn)

    def _abort(self, partition: int, txn: TransactionMetadata) -> None:
        def done(outcome: Ended) -> None:
            if outcome.prepared is not None:
                _logger.info("Aborted the transaction of %s: its timeout is over", txn.transactional_id)

        def failed(error: ApiException) -> None:
            _logger.warning("Cannot abort the transaction of %s: %s", txn.transactional_id, error.message)

        self._end(
            partition,
            lambda shard, now_ms, new_id: abort_timed_out(shard, txn, now_ms, new_id),
            done,
            failed,
        )

    def expire_ids(self) -> None:
        """Expire the transactional ids that were not used for `transactional.id.expiration.ms`."""
        for partition in range(self.runtime.partition_count):
            if self.runtime.is_active(partition):
                self._expire(partition)

    def _expire(self, partition: int) -> None:
        expiration_ms = self.config.int("transactional.id.expiration.ms")

        def done(count: int) -> None:
            if count == _TOMBSTONES_AT_ONCE:
                self._clock.call_later(0.0, self._expire, partition)

        def failed(error: ApiException) -> None:
            _logger.warning("Cannot expire transactional ids: %s", error.message)

        self.runtime.write(
            partition,
            lambda shard, now_ms: expire_ids(shard, expiration_ms, _TOMBSTONES_AT_ONCE, now_ms),
            done,
            failed,
        )
