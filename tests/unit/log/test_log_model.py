"""The log against a list: whatever is done to it, it holds what the list holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from effort import examples
from ottla.config.topic import TopicConfig
from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import iter_batches
from ottla.testing.memfs import MemFs
from unit.log.log_rig import NOW, Rig, batch, records_of


class LogMachine(RuleBasedStateMachine):
    """`model` is a list of (base offset, [(offset, timestamp, value)], epoch): the batches there should be."""

    @initialize(
        segment_bytes=st.sampled_from([250, 700, 5000]),
        index_interval=st.sampled_from([0, 150, 4096]),
    )
    def begin(self, segment_bytes: int, index_interval: int) -> None:
        self.rig = Rig(segment_bytes=segment_bytes, index_interval_bytes=index_interval, retention_ms=-1)
        self.model: list[tuple[int, list[tuple[int, int, str]], int]] = []
        self.start = 0
        self.end = 0
        self.flushed = 0
        self.epoch = 0
        self.counter = 0

    # -- what is done -------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), shift=st.integers(-50, 50))
    def append(self, count: int, shift: int) -> None:
        values = [f"{self.counter + n}" for n in range(count)]
        self.counter += count
        timestamp = NOW + self.counter + shift
        first = self.rig.append(*values, timestamp=timestamp, epoch=self.epoch)
        assert first == self.end
        self.model.append(
            (first, [(first + n, timestamp + n, value) for n, value in enumerate(values)], self.epoch)
        )
        self.end += count

    @rule(gap=st.integers(0, 5))
    def follow(self, gap: int) -> None:
        base = self.end + gap
        raw = batch(f"{self.counter}", timestamp=NOW, base_offset=base, partition_leader_epoch=self.epoch)
        self.rig.log.append_as_follower(raw)
        self.rig.log.high_watermark = self.rig.log.log_end_offset
        self.model.append((base, [(base, NOW, f"{self.counter}")], self.epoch))
        self.counter += 1
        self.end = base + 1

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.rig.log.assign_epoch_start_offset(self.epoch, self.end)

    @rule()
    def roll(self) -> None:
        self.rig.log.roll()

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        target = max(self.end - back, 0)
        self.rig.log.truncate_to(target)
        if target < self.end:
            self.model = [entry for entry in self.model if entry[1][-1][0] < target]
            self.start = min(self.start, target)
            self.end = target
            self.flushed = min(self.flushed, target)
        if self.rig.log.log_start_offset > self.end:
            raise AssertionError("the log begins after its end")

    @rule(forward=st.integers(0, 10))
    def delete_records(self, forward: int) -> None:
        self.start = min(self.start + forward, self.end)
        self.rig.log.advance_log_start(self.start)
        self.rig.log.delete_old_segments(NOW)

    @rule()
    def flush(self) -> None:
        self.rig.log.flush()
        self.flushed = self.end

    @rule()
    def restart_cleanly(self) -> None:
        self.rig.log.close()
        self._reopen(clean=True)

    @rule()
    def kill(self) -> None:
        assert isinstance(self.rig.fs, MemFs)
        self.rig.fs = self.rig.fs.kill()
        self._reopen(clean=False)

    def _reopen(self, *, clean: bool) -> None:
        self.rig.config = _with_gaps(self.rig)
        self.rig.open(clean=clean, log_start_offset=self.start, recovery_point=self.flushed)
        self.rig.log.high_watermark = self.rig.log.log_end_offset
        if not self.model:
            # An empty log is where its last batch ended, or at the offset where it restarts.
            self.end = self.rig.log.log_end_offset
        else:
            self.end = max(self.model[-1][1][-1][0] + 1, self.rig.log.segments[-1].base_offset, self.start)
        self.flushed = min(self.flushed, self.end)

    # -- what holds ---------------------------------------------------------------------------------------

    @invariant()
    def has_what_the_model_has(self) -> None:
        log = self.rig.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        kept = [(offset, value) for _, records, _ in self.model for offset, _, value in records]
        assert records_of(log, max_bytes=400) == [entry for entry in kept if entry[0] >= self.start]

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), max_bytes=st.integers(1, 600))
    def read_anywhere(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        upper = data.draw(st.integers(self.start, self.end))
        piece = self.rig.log.read(offset, max_bytes, upper_offset=upper).records
        expected = [entry for entry in self.model if offset <= entry[1][-1][0] < upper]
        headers = [header for _, header in iter_batches(piece)]
        if not expected or offset >= upper:
            assert len(piece) == 0
            return
        assert headers[0].base_offset == expected[0][0]
        assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [
            (base, epoch) for base, _, epoch in expected[: len(headers)]
        ]

    @rule(shift=st.integers(-60, 200))
    def find_timestamp(self, shift: int) -> None:
        wanted = NOW + self.counter + shift - 50
        found = self.rig.log.offset_for_timestamp(wanted)
        matching = [
            (offset, timestamp)
            for _, records, _ in self.model
            for offset, timestamp, _ in records
            if timestamp >= wanted and offset >= self.start
        ]
        if matching:
            assert found is not None
            assert (found.offset, found.timestamp) == matching[0]
        else:
            assert found is None

    @rule()
    def outside_is_refused(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            try:
                self.rig.log.read(offset, 100)
            except ApiException as e:
                assert e.code is ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                raise AssertionError(f"offset {offset} was read")


def _with_gaps(rig: Rig) -> TopicConfig:
    """Followers make gaps here: for recovery that is what compaction does."""
    return replace(rig.config, cleanup_policy=frozenset({"compact", "delete"}))


LogMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
TestLogModel = LogMachine.TestCase
