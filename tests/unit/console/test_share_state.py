"""The deliveries of a share group, folded from the records of its state."""

from __future__ import annotations

from ottla.console.reader.records import Seen
from ottla.console.reader.share_state import Delivered, Run, fold
from ottla.wire.codec import encode
from ottla.wire.messages import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue

TOPIC = bytes(range(16))
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def record(offset, kind, batches, *, start=0, group="workers", partition=0, deleted=False):
    key_class, value_class = ((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue))[
        kind
    ]
    key = key_class(group_id=group, topic_id=TOPIC, partition=partition)
    value = value_class(
        snapshot_epoch=0,
        leader_epoch=0,
        start_offset=start,
        delivery_complete_count=0,
        state_batches=[
            value_class.StateBatch(first_offset=a, last_offset=b, delivery_state=s, delivery_count=n)
            for a, b, s, n in batches
        ],
    )
    body = None if deleted else (0).to_bytes(2, "big") + bytes(encode(value, 0))
    return Seen("state", 0, offset, 0, kind.to_bytes(2, "big") + bytes(encode(key, 0)), body, (), None)


def test_updates_take_the_place_of_what_a_snapshot_said():
    found = fold(
        "workers",
        [
            record(0, 0, [(0, 9, AVAILABLE, 1)]),
            record(1, 1, [(3, 4, ACKNOWLEDGED, 1), (5, 5, ARCHIVED, 5)]),
            record(2, 1, [(0, 0, AVAILABLE, 2)], group="others"),
        ],
    )
    state = found[TOPIC, 0]
    assert (state.again, state.done, state.given_up, state.deliveries) == (7, 2, 1, 1)


def test_what_stands_before_the_start_is_done():
    found = fold("workers", [record(0, 0, [(0, 9, AVAILABLE, 2)]), record(1, 1, [], start=8)])
    assert found[TOPIC, 0] == Delivered(8, [Run(8, 9, AVAILABLE, 2)])


def test_a_new_snapshot_and_a_deletion_forget_what_was():
    again = record(0, 0, [(0, 9, AVAILABLE, 2)])
    fresh = record(1, 0, [(20, 20, ACKNOWLEDGED, 1)], start=20)
    assert fold("workers", [again, fresh])[TOPIC, 0].runs == [Run(20, 20, ACKNOWLEDGED, 1)]
    assert fold("workers", [again, record(1, 0, [], deleted=True)]) == {}
