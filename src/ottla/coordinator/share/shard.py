"""One shard of the share coordinator: the share partitions that hash to one partition of `__share_group_state`.

A write is kept as an update of the last snapshot. After a number of updates the next write makes a new snapshot, and
records that are older than the last snapshots of all share partitions can be deleted. A leader or a state of an older
epoch is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.share.records import key_of, snapshot_record, state_of, tombstone, update_record
from ottla.coordinator.share.state import NO_COUNT, NO_EPOCH, NO_OFFSET, Batch, ShareState, StateKey, combine
from ottla.errors import ErrorCode
from ottla.metadata.image import EMPTY_IMAGE
from ottla.wire import messages
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage

R = TypeVar("R")

_CLEAN_UP = "deleted topics"


class ShareCoordinatorShard:
    """Implements `CoordinatorShard`. Each operation concerns one share partition and returns its `PartitionResult`."""

    __slots__ = (
        "_context",
        "_image",
        "_leader_epochs",
        "_snapshot_offsets",
        "_state_epochs",
        "_tombstone_offset",
        "_updates",
        "_updates_per_snapshot",
        "states",
    )

    def __init__(self, context: ShardContext, updates_per_snapshot: Callable[[], int]) -> None:
        self._context = context
        self._updates_per_snapshot = updates_per_snapshot
        self._image: MetadataImage = EMPTY_IMAGE
        self.states: dict[StateKey, ShareState] = {}
        self._leader_epochs: dict[StateKey, int] = {}
        self._state_epochs: dict[StateKey, int] = {}
        self._updates: dict[StateKey, int] = {}
        """Updates since the last snapshot."""
        self._snapshot_offsets: dict[StateKey, int] = {}
        self._tombstone_offset = 0

    # -- CoordinatorShard

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        key, value = key_of(record.key), record.value
        if isinstance(record.key, messages.ShareSnapshotKey):
            assert value is None or isinstance(value, messages.ShareSnapshotValue)
            self._replay_snapshot(offset, key, value)
        elif isinstance(value, messages.ShareUpdateValue):
            self._replay_update(key, value)

    def _replay_snapshot(self, offset: int, key: StateKey, value: messages.ShareSnapshotValue | None) -> None:
        self._updates.pop(key, None)
        if value is None:
            self.states.pop(key, None)
            for kept in (self._leader_epochs, self._state_epochs, self._snapshot_offsets):
                kept.pop(key, None)
            self._tombstone_offset = offset
            return
        self.states[key] = state_of(value)
        self._leader_epochs[key] = max(value.leader_epoch, self._leader_epochs.get(key, NO_EPOCH))
        self._state_epochs[key] = max(value.state_epoch, self._state_epochs.get(key, NO_EPOCH))
        self._snapshot_offsets[key] = offset

    def _replay_update(self, key: StateKey, value: messages.ShareUpdateValue) -> None:
        state = self.states.get(key)
        if state is None:
            # Its snapshot was deleted, or is before the log's start: there is nothing to update.
            return
        start = state.start_offset if value.start_offset == NO_OFFSET else value.start_offset
        epoch = state.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch
        self.states[key] = replace(
            state,
            start_offset=start,
            delivery_complete_count=value.delivery_complete_count,
            leader_epoch=epoch,
            batches=combine(state.batches, map(Batch.of, value.state_batches), start),
        )
        self._leader_epochs[key] = max(value.leader_epoch, self._leader_epochs.get(key, NO_EPOCH))
        self._updates[key] = self._updates.get(key, 0) + 1

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Share state is not written in transactions."""

    def on_loaded(self, image: MetadataImage, now_ms: int) -> None:
        self._image = image
        if any(key.topic_id not in image.topics.by_id for key in self.states):
            self._context.timers.schedule(_CLEAN_UP, 0, self.forget_deleted_topics)

    def on_unloaded(self) -> None:
        """No operation waits here."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        if delta.deleted_topics and self.states:
            self._context.timers.schedule(_CLEAN_UP, 0, self.forget_deleted_topics)

    # -- operations on one share partition

    def initialize(
        self, key: StateKey, part: messages.InitializeShareGroupStateRequest.PartitionData, now_ms: int
    ) -> CoordinatorResult[messages.InitializeShareGroupStateResponse.PartitionResult]:
        """Start a share partition, or restart it in a newer state epoch."""
        result = messages.InitializeShareGroupStateResponse.PartitionResult
        error = self._invalid(key) or self._fenced_state(key, part.state_epoch) or self._unknown(key)
        if error is not None:
            return _refused(result, key, error)
        known = self.states.get(key)
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=part.state_epoch,
            leader_epoch=0,
            start_offset=part.start_offset,
            delivery_complete_count=NO_COUNT if part.start_offset == NO_OFFSET else 0,
            batches=(),
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return CoordinatorResult([snapshot_record(key, state)], result(partition=key.partition))

    def read(
        self, key: StateKey, part: messages.ReadShareGroupStateRequest.PartitionData, now_ms: int
    ) -> CoordinatorResult[messages.ReadShareGroupStateResponse.PartitionResult]:
        """The whole state, for a new leader; from now on older leaders are fenced."""
        result = messages.ReadShareGroupStateResponse.PartitionResult
        error = (
            self._invalid(key)
            or self._uninitialized(key, "Read")
            or self._fenced_leader(key, part.leader_epoch)
            or self._unknown(key)
        )
        if error is not None:
            return _refused(result, key, error)
        state = self.states[key]
        response = result(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                batch.to(messages.ReadShareGroupStateResponse.StateBatch) for batch in state.batches
            ],
        )
        if part.leader_epoch in (NO_EPOCH, self._leader_epochs.get(key)):
            return CoordinatorResult([], response)
        record = self._record(
            key, now_ms, part.leader_epoch, state.start_offset, state.delivery_complete_count, ()
        )
        return CoordinatorResult([record], response)

    def summary(
        self, key: StateKey, part: messages.ReadShareGroupStateSummaryRequest.PartitionData, now_ms: int
    ) -> CoordinatorResult[messages.ReadShareGroupStateSummaryResponse.PartitionResult]:
        """The offsets and epochs of a share partition, without its batches."""
        result = messages.ReadShareGroupStateSummaryResponse.PartitionResult
        error = self._invalid(key) or self._unknown(key)
        if error is not None:
            return _refused(result, key, error)
        state = self.states.get(key)
        if state is None:
            return CoordinatorResult(
                [],
                result(
                    partition=key.partition,
                    state_epoch=0,
                    leader_epoch=0,
                    start_offset=NO_OFFSET,
                    delivery_complete_count=NO_COUNT,
                ),
            )
        return CoordinatorResult(
            [],
            result(
                partition=key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            ),
        )

    def write(
        self, key: StateKey, part: messages.WriteShareGroupStateRequest.PartitionData, now_ms: int
    ) -> CoordinatorResult[messages.WriteShareGroupStateResponse.PartitionResult]:
        """Keep the new delivery states of records."""
        result = messages.WriteShareGroupStateResponse.PartitionResult
        error = (
            self._invalid(key)
            or self._uninitialized(key, "Write")
            or self._fenced_leader(key, part.leader_epoch)
            or self._fenced_state(key, part.state_epoch)
            or self._unknown(key)
        )
        if error is not None:
            return _refused(result, key, error)
        state = self.states[key]
        start, complete = part.start_offset, part.delivery_complete_count
        if NO_OFFSET < start < state.start_offset:
            # A repeated request that a later one has overtaken: offsets before the start are dropped.
            start, complete = state.start_offset, state.delivery_complete_count
        record = self._record(
            key,
            now_ms,
            state.leader_epoch,
            start,
            complete,
            tuple(map(Batch.of, part.state_batches)),
        )
        return CoordinatorResult([record], result(partition=key.partition))

    def delete(
        self, key: StateKey, part: messages.DeleteShareGroupStateRequest.PartitionData, now_ms: int
    ) -> CoordinatorResult[messages.DeleteShareGroupStateResponse.PartitionResult]:
        """Delete the state of a share partition."""
        result = messages.DeleteShareGroupStateResponse.PartitionResult
        error = self._invalid(key) or self._unknown(key)
        if error is not None:
            return _refused(result, key, error)
        records = [tombstone(key)] if key in self.states else []
        return CoordinatorResult(records, result(partition=key.partition))

    def _record(
        self,
        key: StateKey,
        now_ms: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: tuple[Batch, ...],
    ) -> CoordinatorRecord:
        state = self.states[key]
        if leader_epoch == NO_EPOCH:
            leader_epoch = state.leader_epoch
        if self._updates.get(key, 0) < self._updates_per_snapshot():
            return update_record(
                key,
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=combine((), batches, start_offset),
            )
        start = state.start_offset if start_offset == NO_OFFSET else start_offset
        return snapshot_record(
            key,
            ShareState(
                snapshot_epoch=state.snapshot_epoch + 1,
                state_epoch=state.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start,
                delivery_complete_count=delivery_complete_count,
                batches=combine(state.batches, batches, start),
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            ),
        )

    # -- housekeeping

    def redundant_before(self) -> int:
        """Later records repeat all that records before this offset say; 0: there are none."""
        return min(self._snapshot_offsets.values(), default=self._tombstone_offset)

    def snapshot_cold(self, now_ms: int, interval_ms: int) -> CoordinatorResult[None]:
        """Write new snapshots of states that were not written for long, so that older records can be deleted."""
        if all(state.create_timestamp != state.write_timestamp for state in self.states.values()):
            # All states are repeated snapshots already: another repetition gains nothing.
            return CoordinatorResult([], None)
        return CoordinatorResult(
            [
                snapshot_record(
                    key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)
                )
                for key, state in self.states.items()
                if now_ms - state.write_timestamp >= interval_ms
            ],
            None,
        )

    def forget_deleted_topics(self, now_ms: int) -> CoordinatorResult[None]:
        """Write tombstones for share partitions of deleted topics."""
        topics = self._image.topics.by_id
        return CoordinatorResult([tombstone(key) for key in self.states if key.topic_id not in topics], None)

    # -- checks, in Kafka's order

    def _invalid(self, key: StateKey) -> _Refusal | None:
        if key.topic_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST, "The topic id is missing"
        if key.partition < 0:
            return ErrorCode.INVALID_REQUEST, "The partition number is negative"
        return None

    def _uninitialized(self, key: StateKey, what: str) -> _Refusal | None:
        if key in self.states:
            return None
        return ErrorCode.INVALID_REQUEST, f"{what} of a share partition that was not initialized"

    def _fenced_leader(self, key: StateKey, leader_epoch: int) -> _Refusal | None:
        if leader_epoch == NO_EPOCH or self._leader_epochs.get(key, NO_EPOCH) <= leader_epoch:
            return None
        return ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {leader_epoch} is over"

    def _fenced_state(self, key: StateKey, state_epoch: int) -> _Refusal | None:
        if state_epoch == NO_EPOCH or self._state_epochs.get(key, NO_EPOCH) <= state_epoch:
            return None
        return ErrorCode.FENCED_STATE_EPOCH, f"State epoch {state_epoch} is over"

    def _unknown(self, key: StateKey) -> _Refusal | None:
        topic = self._image.topics.by_id.get(key.topic_id)
        if topic is not None and key.partition in topic.partitions:
            return None
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition"


_Refusal = tuple[ErrorCode, str]


def _refused(result: Callable[..., R], key: StateKey, refusal: _Refusal) -> CoordinatorResult[R]:
    code, message = refusal
    return CoordinatorResult([], result(partition=key.partition, error_code=code, error_message=message))
