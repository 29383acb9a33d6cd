"""Brokers broken on purpose, to check that the simulator notices. Each mutation breaks one guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, cast

from ottla.broker.markers import LocalMarkerWriter
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.offsets import Offsets
from ottla.coordinator.host import ShardHost
from ottla.coordinator.shard import CoordinatorShard
from ottla.coordinator.transaction.marker_manager import MarkersDone, TxnMarker
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStateManager
from ottla.log.types import TopicPartition
from ottla.raft.quorum_state import ElectionState, QuorumStateStore
from ottla.records.batch import BatchHeader
from ottla.replica import follower_read, replica_fetcher
from ottla.replica.isr import InSyncSet, Proposal
from ottla.replica.partition import Partition

_Undo = list[Callable[[], None]]


def _replace(undo: _Undo, owner: object, name: str, value: object) -> None:
    before = getattr(owner, name)
    undo.append(lambda: setattr(owner, name, before))
    setattr(owner, name, value)


def _acknowledge_early(undo: _Undo) -> None:
    """A leader acknowledges acks=all before its followers have the records."""

    def replicated(self: Partition, log: PartitionLog, end_offset: int) -> ErrorCode | None:
        return ErrorCode.NONE

    def has_committed(self: Partition, offset: int) -> bool:
        return True

    _replace(undo, Partition, "replicated", replicated)
    _replace(undo, Partition, "has_committed", has_committed)


def _skip_truncation(undo: _Undo) -> None:
    """A follower does not truncate what its new leader does not have."""

    def keep(log: PartitionLog, leader_epoch: int, leader_end: int) -> None:
        return None

    _replace(undo, replica_fetcher, "_truncate", keep)


def _forget_the_vote(undo: _Undo) -> None:
    """A voter persists its vote only when it knows the leader."""
    write = QuorumStateStore.write

    def forget(
        self: QuorumStateStore, state: ElectionState, voters: frozenset[BrokerId], kraft_version: int
    ) -> None:
        if state.leader_id is not None:
            write(self, state, voters, kraft_version)

    _replace(undo, QuorumStateStore, "write", forget)


def _own_high_watermark(undo: _Undo) -> None:
    """The high watermark is the leader's log end offset."""

    def high_watermark(self: InSyncSet, leader_end: int, now_ms: float) -> int:
        return leader_end

    _replace(undo, InSyncSet, "high_watermark", high_watermark)


def _ignore_epochs(undo: _Undo) -> None:
    """A leader does not check whether a follower's log diverges from its own."""

    def same(part: object, log: PartitionLog) -> None:
        return None

    _replace(undo, follower_read, "diverging_epoch", same)


def _shrink_early(undo: _Undo) -> None:
    """A leader ignores lagging followers before the controller has removed them from the ISR."""

    def propose(
        self: InSyncSet, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int
    ) -> Proposal:
        self.pending = Proposal(isr, leader_epoch, partition_epoch)
        self.maximal = frozenset(isr)
        return self.pending

    _replace(undo, InSyncSet, "propose", propose)


def _coordinate_early(undo: _Undo) -> None:
    """A coordinator responds before its followers have the records."""

    def moved(self: ShardHost[CoordinatorShard]) -> None:
        while self._pending:
            self._pending.popleft().succeed()

    _replace(undo, ShardHost, "_high_watermark_moved", moved)


def _lose_markers(undo: _Undo) -> None:
    """One partition of a transaction does not get its marker."""
    write = LocalMarkerWriter.write

    def lose(
        self: LocalMarkerWriter, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone
    ) -> None:
        asked = list(partitions)
        lost = {tp: ErrorCode.NONE for tp in asked[1:] if tp.topic == "txn"}
        write(self, marker, [tp for tp in asked if tp not in lost], lambda found: done({**found, **lost}))

    _replace(undo, LocalMarkerWriter, "write", lose)


def _forget_sequences(undo: _Undo) -> None:
    """A duplicate batch is not detected."""

    def find_duplicate(self: ProducerStateManager, header: BatchHeader) -> None:
        return None

    _replace(undo, ProducerStateManager, "find_duplicate", find_duplicate)


def _read_ahead(undo: _Undo) -> None:
    """Consumers read uncommitted records of the leader's log."""
    _replace(
        undo,
        PartitionLog,
        "last_stable_offset",
        property(lambda self: cast("PartitionLog", self).log_end_offset),
    )


def _any_generation(undo: _Undo) -> None:
    """A classic group accepts offsets from any client."""

    def validate(self: ClassicGroup, *words: object) -> None:
        return None

    _replace(undo, ClassicGroup, "validate_offset_commit", validate)


def _keep_aborted_offsets(undo: _Undo) -> None:
    """The offsets of an aborted transaction are kept."""
    replay = Offsets.replay_end_transaction_marker

    def commit(self: Offsets, producer_id: int, commit: bool) -> None:
        replay(self, producer_id, True)

    _replace(undo, Offsets, "replay_end_transaction_marker", commit)


def _show_unstable_offsets(undo: _Undo) -> None:
    """OffsetFetch ignores offsets that an open transaction may change."""

    def has_pending(self: Offsets, group_id: str, topic: str, partition: int) -> bool:
        return False

    _replace(undo, Offsets, "has_pending", has_pending)


MUTATIONS: Final[dict[str, Callable[[_Undo], None]]] = {
    "acknowledge-early": _acknowledge_early,
    "skip-truncation": _skip_truncation,
    "forget-the-vote": _forget_the_vote,
    "own-high-watermark": _own_high_watermark,
    "ignore-epochs": _ignore_epochs,
    "shrink-early": _shrink_early,
    "coordinate-early": _coordinate_early,
    "lose-markers": _lose_markers,
    "forget-sequences": _forget_sequences,
    "read-ahead": _read_ahead,
    "any-generation": _any_generation,
    "keep-aborted-offsets": _keep_aborted_offsets,
    "show-unstable-offsets": _show_unstable_offsets,
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Apply the mutation `name` to the brokers of this process within the block."""
    undo: _Undo = []
    try:
        if name is not None:
            MUTATIONS[name](undo)
        yield
    finally:
        for each in reversed(undo):
            each()
