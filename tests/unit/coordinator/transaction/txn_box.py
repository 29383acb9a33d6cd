"""A shard of the transaction coordinator and nothing around it: operations run, their records replayed from bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.transaction.end import Ended, EndRequest, complete, end_transaction
from ottla.coordinator.transaction.init import Initialized, InitRequest, NeedsProducerId, init_producer_id
from ottla.coordinator.transaction.partitions import add_partitions
from ottla.coordinator.transaction.service import SERDE
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import TransactionMetadata
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition

NOW = 1_700_000_000_000
TIMEOUT_MS = 60_000
A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class Box:
    """One shard. `log` holds the bytes of every record, as the topic would."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.shard = self.empty_shard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = NOW
        self.next_producer_id = 1000

    def empty_shard(self) -> TransactionShard:
        return TransactionShard(transaction_version=lambda: self.version)

    def apply(self, result: Any) -> Any:
        for record in result.records:
            self.write(record)
        return result.response

    def write(self, record: CoordinatorRecord) -> None:
        entry = (SERDE.key_bytes(record), SERDE.value_bytes(record))
        self.log.append(entry)
        self.shard.replay(len(self.log) - 1, -1, -1, SERDE.decode(*entry))

    def reloaded(self) -> TransactionShard:
        """What another coordinator makes of the same log."""
        shard = self.empty_shard()
        for offset, entry in enumerate(self.log):
            shard.replay(offset, -1, -1, SERDE.decode(*entry))
        return shard

    def new_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    # -- what producers do

    def init(
        self, name: str = "tx", expected: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS
    ) -> Any:
        """The id and epoch; None where an open transaction is aborted first."""
        request = InitRequest(name, timeout_ms, *expected)
        outcome = self.apply(init_producer_id(self.shard, request, self.now_ms))
        if isinstance(outcome, NeedsProducerId) or (isinstance(outcome, Ended) and outcome.needs_producer_id):
            outcome = self.apply(init_producer_id(self.shard, request, self.now_ms, self.new_id()))
        if isinstance(outcome, Initialized):
            self.shard.note_last_epoch(outcome.transaction, outcome.last_epoch)
            return outcome.transaction.producer_id, outcome.transaction.producer_epoch
        assert isinstance(outcome, Ended)
        return None

    def add(
        self, producer: tuple[int, int], *partitions: TopicPartition, name: str = "tx", version: int = 2
    ) -> None:
        self.apply(add_partitions(self.shard, name, *producer, frozenset(partitions), version, self.now_ms))

    def end(self, producer: tuple[int, int], commit: bool, name: str = "tx", version: int = 2) -> Ended:
        request = EndRequest(name, *producer, commit, version)
        outcome: Ended = self.apply(end_transaction(self.shard, request, self.now_ms))
        if outcome.needs_producer_id:
            outcome = self.apply(end_transaction(self.shard, request, self.now_ms, self.new_id()))
        return outcome

    def complete(self, name: str = "tx") -> TransactionMetadata | None:
        return self.apply(complete(self.shard, self.txn(name), self.now_ms))

    def txn(self, name: str = "tx") -> TransactionMetadata:
        return self.shard.require(name)


def refused(call: Callable[..., Any], *args: Any, **options: Any) -> ErrorCode:
    try:
        call(*args, **options)
    except ApiException as error:
        return error.code
    return ErrorCode.NONE
