"""The share coordinator: what it keeps, whom it fences, and that a new one knows the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.result import CoordinatorResult
from ottla.coordinator.shard import ShardContext
from ottla.coordinator.share.records import SERDE
from ottla.coordinator.share.shard import ShareCoordinatorShard
from ottla.coordinator.share.state import Batch, StateKey, combine
from ottla.coordinator.timers import Timers
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages

TOPIC = b"topic-----------"
KEY = StateKey("g", TOPIC, 0)
OTHER = StateKey("h", TOPIC, 1)


class Coordinator:
    """A shard whose records go through bytes into `log`."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.clock = VirtualClock()
        self.updates_per_snapshot = updates_per_snapshot
        self.log: list[tuple[bytes, bytes | None]] = []
        self.log_start = 0
        self.image = EMPTY_IMAGE
        self.shard = self.new_shard()
        self.change(
            messages.TopicRecord(name="t", topic_id=TOPIC),
            *(messages.PartitionRecord(topic_id=TOPIC, partition_id=number, leader=1) for number in (0, 1)),
        )

    def new_shard(self) -> ShareCoordinatorShard:
        def run(operation: Any, still_wanted: Any, failed: Any) -> None:
            if still_wanted():
                self.apply(operation(self.clock.now_ms()))

        timers = Timers(self.clock, run)
        return ShareCoordinatorShard(
            ShardContext(0, 0, self.clock, timers), lambda: self.updates_per_snapshot
        )

    def change(self, *records: Any) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(self.image.offset + len(records), 0)
        self.shard.on_metadata_update(delta, self.image)

    def apply(self, result: CoordinatorResult[Any]) -> Any:
        for record in result.records:
            written = SERDE.key_bytes(record), SERDE.value_bytes(record)
            self.log.append(written)
            self.shard.replay(len(self.log) - 1, -1, -1, SERDE.decode(*written))
        return result.response

    def reloaded(self) -> ShareCoordinatorShard:
        shard = self.new_shard()
        for offset, written in enumerate(self.log):
            if offset >= self.log_start:
                shard.replay(offset, -1, -1, SERDE.decode(*written))
        shard.on_loaded(self.image, self.clock.now_ms())
        return shard

    def initialize(self, key: StateKey = KEY, *, epoch: int = 1, start: int = 0) -> int:
        part = messages.InitializeShareGroupStateRequest.PartitionData(
            partition=key.partition, state_epoch=epoch, start_offset=start
        )
        return int(self.apply(self.shard.initialize(key, part, self.clock.now_ms())).error_code)

    def write(
        self,
        *batches: Batch,
        key: StateKey = KEY,
        start: int = 0,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        done: int = 0,
    ) -> int:
        request = messages.WriteShareGroupStateRequest
        part = request.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=done,
            state_batches=[batch.to(request.StateBatch) for batch in batches],
        )
        return int(self.apply(self.shard.write(key, part, self.clock.now_ms())).error_code)

    def read(self, leader_epoch: int = -1, key: StateKey = KEY) -> Any:
        part = messages.ReadShareGroupStateRequest.PartitionData(
            partition=key.partition, leader_epoch=leader_epoch
        )
        return self.apply(self.shard.read(key, part, self.clock.now_ms()))

    def kinds(self) -> list[str]:
        """Snapshots, updates and tombstones in the log, a letter each."""
        decoded = [SERDE.decode(*written) for written in self.log]
        return [
            "x" if record.value is None else record.key.NAME.removeprefix("Share")[0].lower()
            for record in decoded
        ]


def test_what_was_written_is_read() -> None:
    coordinator = Coordinator()
    assert coordinator.read().error_code == ErrorCode.INVALID_REQUEST, "nobody has begun it"
    assert coordinator.initialize(start=-1) == ErrorCode.NONE
    assert coordinator.read().start_offset == -1
    assert coordinator.write(Batch(0, 9, 2, 1), done=10) == ErrorCode.NONE
    assert coordinator.write(Batch(20, 29, 0, 1), start=5, done=5) == ErrorCode.NONE
    found = coordinator.read()
    assert (found.start_offset, found.state_epoch) == (5, 1)
    assert [Batch.of(batch) for batch in found.state_batches] == [Batch(5, 9, 2, 1), Batch(20, 29, 0, 1)]


def test_a_write_that_was_overtaken_does_not_bring_the_start_back() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    assert coordinator.write(Batch(60, 64, 2, 1), start=65, done=0) == ErrorCode.NONE
    assert coordinator.write(Batch(65, 66, 2, 1), start=65, done=2) == ErrorCode.NONE
    # Asked again, as its answer was lost: else the records between would be nobody's.
    assert coordinator.write(Batch(60, 60, 2, 1), start=60, done=1) == ErrorCode.NONE
    for shard in (coordinator.shard, coordinator.reloaded()):
        state = shard.states[KEY]
        assert (state.start_offset, state.delivery_complete_count) == (65, 2)
        assert state.batches == (Batch(65, 66, 2, 1),)


def test_a_snapshot_follows_so_many_updates() -> None:
    coordinator = Coordinator(updates_per_snapshot=2)
    coordinator.initialize()
    for number in range(5):
        coordinator.write(Batch(number, number, 2, 1))
    assert coordinator.kinds() == ["s", "u", "u", "s", "u", "u"]
    assert coordinator.shard.states[KEY].batches == (Batch(0, 4, 2, 1),)
    assert coordinator.shard.redundant_before() == 3


def test_what_is_redundant_can_be_deleted() -> None:
    coordinator = Coordinator(updates_per_snapshot=2)
    coordinator.initialize()
    coordinator.initialize(OTHER)
    for number in range(5):
        coordinator.write(Batch(number, number, 2, 1))
    assert coordinator.shard.redundant_before() == 1, "the other one has only its first snapshot"
    coordinator.clock.advance(600)
    coordinator.apply(coordinator.shard.snapshot_cold(coordinator.clock.now_ms(), 300_000))
    coordinator.log_start = coordinator.shard.redundant_before()
    assert coordinator.log_start == 7
    assert coordinator.reloaded().states == coordinator.shard.states
    again = coordinator.shard.snapshot_cold(coordinator.clock.now_ms() + 600_000, 300_000)
    assert not again.records, "repeating repetitions gains nothing"


def test_old_leaders_and_old_states_are_fenced() -> None:
    coordinator = Coordinator()
    coordinator.initialize(epoch=3)
    assert coordinator.read(leader_epoch=5).error_code == ErrorCode.NONE
    assert coordinator.read(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.write(leader_epoch=4, state_epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.write(leader_epoch=5, state_epoch=2) == ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.initialize(epoch=2) == ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.write(leader_epoch=5, state_epoch=3) == ErrorCode.NONE
    assert coordinator.initialize(epoch=4, start=7) == ErrorCode.NONE
    assert coordinator.write(leader_epoch=5, state_epoch=3) == ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.read().start_offset == 7


def test_deleted_topics_are_forgotten() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    coordinator.initialize(OTHER)
    coordinator.change(messages.RemoveTopicRecord(topic_id=TOPIC))
    coordinator.clock.advance(1)
    assert coordinator.shard.states == {}
    assert coordinator.kinds() == ["s", "s", "x", "x"]
    assert coordinator.reloaded().states == {}


def test_a_share_partition_is_deleted() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    part = messages.DeleteShareGroupStateRequest.PartitionData(partition=0)
    for _ in range(2):
        answer = coordinator.apply(coordinator.shard.delete(KEY, part, 0))
        assert answer.error_code == ErrorCode.NONE
    assert coordinator.kinds() == ["s", "x"]


def test_unknown_partitions_are_refused() -> None:
    coordinator = Coordinator()
    assert coordinator.initialize(StateKey("g", TOPIC, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinator.initialize(StateKey("g", bytes(16), 0)) == ErrorCode.INVALID_REQUEST
    assert coordinator.initialize(StateKey("g", TOPIC, -1)) == ErrorCode.INVALID_REQUEST


_BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: Batch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 3),
    ),
    max_size=8,
)


@given(known=_BATCHES, new=_BATCHES, start=st.integers(0, 20))
def test_batches_are_combined_offset_by_offset(known: list[Batch], new: list[Batch], start: int) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for batch in known + new:
        for offset in range(max(batch.first, start), batch.last + 1):
            expected[offset] = max(expected.get(offset, (0, 0)), batch.progress)
    combined = combine(known, new, start)
    found = {offset: batch.progress for batch in combined for offset in range(batch.first, batch.last + 1)}
    assert found == expected
    assert sum(batch.last - batch.first + 1 for batch in combined) == len(expected)
    assert list(combined) == sorted(combined)


@given(writes=st.lists(st.tuples(_BATCHES, st.integers(0, 10)), max_size=12), limit=st.integers(0, 4))
def test_a_new_coordinator_knows_the_same(writes: list[tuple[list[Batch], int]], limit: int) -> None:
    coordinator = Coordinator(updates_per_snapshot=limit)
    coordinator.initialize()
    start = 0
    for batches, step in writes:
        start += step
        coordinator.write(*batches, start=start)
    assert coordinator.reloaded().states == coordinator.shard.states
    coordinator.log_start = coordinator.shard.redundant_before()
    assert coordinator.reloaded().states == coordinator.shard.states
