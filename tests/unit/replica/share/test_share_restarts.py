"""A queue on a disk that loses its power again and again: what was acknowledged never comes back, the rest does."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from effort import examples
from ottla.replica.share.persister import ShareKey
from ottla.replica.share.states import AckType, RecordState, ShareSettings
from unit.replica.share.share_scene import GROUP, ShareScene

_SETTINGS = ShareSettings(
    record_lock_ms=1000, delivery_count_limit=3, max_in_flight=30, auto_offset_reset="earliest"
)


class QueueMachine(RuleBasedStateMachine):
    """Two members, a broker that is killed, and a memory of what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ShareScene(_SETTINGS, updates_per_snapshot=2)
        self.produced = 0
        self.over: set[int] = set()
        """Accepted or rejected, with a response."""
        self.held: dict[int, str] = {}

    @rule(count=st.integers(1, 8))
    def produce(self, count: int) -> None:
        assert self.queue.produce(count) == self.produced
        self.produced += count

    @rule(member=st.sampled_from("ab"), most=st.integers(1, 12))
    def fetch(self, member: str, most: int) -> None:
        for first, last, _ in self.queue.acquired(member, max_records=most):
            for offset in range(first, last + 1):
                assert offset not in self.over, "what was done with came again"
                assert offset not in self.held, "two members hold the same record"
                self.held[offset] = member

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kind=st.sampled_from([AckType.ACCEPT, AckType.RELEASE, AckType.REJECT]))
    def acknowledge(self, data: st.DataObject, kind: AckType) -> None:
        offset = data.draw(st.sampled_from(sorted(self.held)))
        assert self.queue.acknowledge(kind, offset, offset, self.held.pop(offset)) is None
        if kind is not AckType.RELEASE:
            self.over.add(offset)

    @rule()
    def locks_end(self) -> None:
        self.queue.clock.advance(1.1)
        self.queue.settle()
        self.held.clear()

    @rule()
    def kill(self) -> None:
        """What is known after a restart is what was kept: states and deliveries, but no locks."""
        before = self._known()
        self.queue.restart()
        self.held.clear()
        self.queue.shares.obtain(ShareKey(GROUP, self.queue.topic_id, 0))
        self.queue.settle()
        after = self._known()
        for offset, state in before.items():
            if state[0] in (RecordState.ACKNOWLEDGED, RecordState.AVAILABLE) and offset in after:
                assert after[offset] == state
            if state[0].terminal and offset not in after:
                assert offset < self.queue.share().flight.start_offset

    def _known(self) -> dict[int, tuple[RecordState, int]]:
        share = self.queue.share()
        if share is None:
            return {}
        return {
            offset: (run.state, run.delivery_count)
            for run in share.flight.runs
            if run.change is None
            for offset in range(run.first, run.last + 1)
        }

    def teardown(self) -> None:
        """Someone patient gets to the end: all that is not over is delivered, or had its chances."""
        self.queue.clock.advance(2)
        self.queue.settle()
        self.held.clear()
        for _ in range(300):
            got = self.queue.acquired("z")
            for first, last, _ in got:
                for offset in range(first, last + 1):
                    assert offset not in self.over
                assert self.queue.acknowledge(AckType.ACCEPT, first, last, "z") is None
            share = self.queue.share()
            if not got and share is not None and share.flight.start_offset >= self.produced:
                return
        share = self.queue.share()
        assert share is not None and share.flight.start_offset == self.produced, share.flight.runs


TestQueue = QueueMachine.TestCase
TestQueue.settings = hypothesis_settings(max_examples=examples(15), stateful_step_count=25, deadline=None)
