"""The records of `__share_group_state`: snapshots of a state, updates between them, and tombstones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.coordinator.records import CoordinatorRecord, RecordSerde
from ottla.coordinator.share.state import Batch, ShareState, StateKey
from ottla.wire import messages
from ottla.wire.classes import WireMessage

SERDE: Final = RecordSerde(("ShareSnapshot", "ShareUpdate"), compacted=False)


def snapshot_record(key: StateKey, state: ShareState) -> CoordinatorRecord:
    value = messages.ShareSnapshotValue
    return CoordinatorRecord(
        messages.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        value(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp,
            write_timestamp=state.write_timestamp,
            state_batches=[batch.to(value.StateBatch) for batch in state.batches],
        ),
    )


def update_record(
    key: StateKey,
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Iterable[Batch],
) -> CoordinatorRecord:
    value = messages.ShareUpdateValue
    return CoordinatorRecord(
        messages.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        value(
            snapshot_epoch=snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[batch.to(value.StateBatch) for batch in batches],
        ),
    )


def tombstone(key: StateKey) -> CoordinatorRecord:
    return CoordinatorRecord(
        messages.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None
    )


def key_of(message: WireMessage) -> StateKey:
    """The share partition of a snapshot or update."""
    assert isinstance(message, (messages.ShareSnapshotKey, messages.ShareUpdateKey))
    return StateKey(message.group_id, message.topic_id, message.partition)


def state_of(value: messages.ShareSnapshotValue) -> ShareState:
    """The state in a snapshot."""
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=tuple(Batch.of(batch) for batch in value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
    )
