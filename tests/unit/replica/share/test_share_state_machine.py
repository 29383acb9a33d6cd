"""A share partition driven at random: nothing is lost, nothing is acknowledged twice, a restart finds what was kept."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from ottla.errors import ApiException
from ottla.records.batch import BatchHeader
from ottla.replica.share.acknowledgement import acknowledge, expire, release, settle
from ottla.replica.share.acquisition import acquire
from ottla.replica.share.in_flight import Change, InFlight
from ottla.replica.share.states import (
    Acknowledgement,
    AckType,
    AcquireMode,
    RecordState,
    ShareSettings,
    StateBatch,
)

_SETTINGS = ShareSettings(record_lock_ms=1000, delivery_count_limit=3, max_in_flight=40)
_MEMBERS = st.sampled_from(["a", "b", "c"])


def header(base: int, count: int) -> BatchHeader:
    return BatchHeader(base, 100, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


class SharePartitionMachine(RuleBasedStateMachine):
    """The log, the members and the share coordinator around the state machine, each as simple as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: list[BatchHeader] = []
        self.log_end = 0
        self.log_start = 0
        self.flight = InFlight(0)
        self.kept: dict[int, tuple[RecordState, int]] = {}
        self.kept_start = 0
        self.held: dict[int, tuple[str, float]] = {}
        """Who may acknowledge an offset, and until when."""
        self.accepted: set[int] = set()
        self.deliveries: dict[int, int] = {}
        self.pending: list[tuple[Change, set[int]]] = []

    # -- the world

    @rule(counts=st.lists(st.integers(1, 12), min_size=1, max_size=3))
    def produce(self, counts: list[int]) -> None:
        for count in counts:
            self.log.append(header(self.log_end, count))
            self.log_end += count

    @rule(hole=st.integers(1, 4))
    def compacted_away(self, hole: int) -> None:
        self.log_end += hole

    @rule(seconds=st.sampled_from([0.3, 0.6, 1.1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._expire()

    def _expire(self) -> None:
        changes, _ = expire(self.flight, _SETTINGS, self.now)
        self._keep(changes)
        self.flight.advance()
        self.held = {offset: held for offset, held in self.held.items() if held[1] > self.now}

    def _keep(self, batches: list[StateBatch]) -> None:
        self.kept_start = max(self.kept_start, self.flight.start_offset)
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                self.kept[offset] = (batch.state, batch.delivery_count)

    # -- members

    @rule(
        member=_MEMBERS,
        most=st.integers(1, 30),
        batch_size=st.integers(1, 20),
        mode=st.sampled_from(list(AcquireMode)),
        read=st.integers(1, 5),
    )
    def fetch(self, member: str, most: int, batch_size: int, mode: AcquireMode, read: int) -> None:
        offset = self.flight.next_fetch_offset()
        batches = [batch for batch in self.log if batch.last_offset >= offset][:read]
        acquired = acquire(
            self.flight,
            _SETTINGS,
            member,
            batches,
            offset,
            now=self.now,
            max_records=most,
            batch_size=batch_size,
            mode=mode,
        )
        if mode is AcquireMode.RECORD_LIMIT:
            assert sum(part.size for part in acquired) <= most
        for part in acquired:
            assert 1 <= part.delivery_count <= _SETTINGS.delivery_count_limit
            for each in range(part.first, part.last + 1):
                assert each not in self.held, "two members hold the same record"
                assert each not in self.accepted, "an acknowledged record was delivered again"
                assert part.delivery_count == self.deliveries.get(each, 0) + 1
                self.deliveries[each] = part.delivery_count
                self.held[each] = (member, self.now + 1.0)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kind=st.sampled_from(list(AckType)), width=st.integers(1, 9), later=st.booleans())
    def acknowledge(self, data: st.DataObject, kind: AckType, width: int, later: bool) -> None:
        first = data.draw(st.sampled_from(sorted(self.held)))
        member = self.held[first][0]
        last = first
        while last - first + 1 < width and self.held.get(last + 1, ("", 0))[0] == member:
            last += 1
        before = repr(self.flight.runs)
        try:
            change = acknowledge(
                self.flight, _SETTINGS, member, [Acknowledgement(first, last, [kind])], self.now
            )
        except ApiException:
            assert repr(self.flight.runs) == before
            raise
        offsets = set(range(first, last + 1))
        if kind is AckType.RENEW:
            for offset in offsets:
                self.held[offset] = (member, self.now + 1.0)
            assert not change.batches
            return
        for offset in offsets:
            del self.held[offset]
        if kind is AckType.ACCEPT:
            self.accepted |= offsets
        self.pending.append((change, offsets))
        if not later:
            self.coordinator_keeps(len(self.pending) - 1)

    @rule(member=_MEMBERS, offset=st.integers(0, 60))
    def acknowledge_what_is_not_held(self, member: str, offset: int) -> None:
        if self.held.get(offset, ("", 0))[0] == member or offset < self.flight.start_offset:
            return
        before = (repr(self.flight.runs), self.flight.terminal)
        held = [offset for offset, held in self.held.items() if held[0] == member]
        acks = [Acknowledgement(each, each, [AckType.ACCEPT]) for each in sorted([*held[:1], offset])]
        try:
            acknowledge(self.flight, _SETTINGS, member, acks, self.now)
        except ApiException:
            # What was split stays split; what it says is the same.
            flat = [(o, run.state) for run in self.flight.runs for o in range(run.first, run.last + 1)]
            assert self.flight.terminal == before[1]
            assert all(state is RecordState.ACQUIRED for o, state in flat if o in held)
            return
        raise AssertionError(f"{member} acknowledged {offset}")

    @rule(member=_MEMBERS)
    def leave(self, member: str) -> None:
        change = release(self.flight, _SETTINGS, member)
        offsets = {offset for offset, held in self.held.items() if held[0] == member}
        for offset in offsets:
            del self.held[offset]
        self._keep(change.batches)
        settle(self.flight, _SETTINGS, change, self.now, persisted=True)

    # -- the share coordinator

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 5))
    def coordinator_keeps(self, which: int) -> None:
        change, _ = self.pending.pop(which % len(self.pending))
        self._keep(change.batches)
        settle(self.flight, _SETTINGS, change, self.now, persisted=True)

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 5))
    def coordinator_refuses(self, which: int) -> None:
        change, offsets = self.pending.pop(which % len(self.pending))
        settle(self.flight, _SETTINGS, change, self.now, persisted=False)
        self.accepted -= offsets
        for run in self.flight.over(change.first, change.last):
            if run.state is RecordState.ACQUIRED:
                for offset in offsets & set(range(run.first, run.last + 1)):
                    self.held[offset] = (run.member, run.deadline)

    @rule()
    def restart(self) -> None:
        """Whatever was not kept is forgotten: changes under way and locks."""
        for _, offsets in self.pending:
            self.accepted -= offsets
        self.pending.clear()
        self.held.clear()
        start = self.kept_start
        batches = [
            StateBatch(offset, offset, state, count)
            for offset, (state, count) in sorted(self.kept.items())
            if offset >= start
        ]
        self.flight = InFlight.load(start, batches)
        self.deliveries = {offset: count for offset, (_, count) in self.kept.items()}
        for run in self.flight.runs:
            for offset in range(run.first, run.last + 1):
                assert self.kept.get(offset, (RecordState.AVAILABLE, 0)) == (run.state, run.delivery_count)

    # -- what always holds

    @invariant()
    def runs_lie_end_to_end(self) -> None:
        flight = self.flight
        next_offset = flight.start_offset
        for run in flight.runs:
            assert run.first == next_offset and run.last >= run.first
            next_offset = run.last + 1
        if flight.runs:
            assert flight.end_offset == next_offset - 1
        assert flight.terminal == sum(run.count for run in flight.runs if run.state.terminal)

    @invariant()
    def only_holders_hold(self) -> None:
        acquired = {
            offset
            for run in self.flight.runs
            if run.state is RecordState.ACQUIRED
            for offset in range(run.first, run.last + 1)
        }
        assert acquired == {offset for offset in self.held if offset >= self.flight.start_offset}

    def teardown(self) -> None:
        """Someone who accepts whatever comes gets to the end: nothing is lost on the way."""
        for change, _ in self.pending:
            self._keep(change.batches)
            settle(self.flight, _SETTINGS, change, self.now, persisted=True)
        self.pending.clear()
        self.now += 5
        self._expire()
        for _ in range(500):
            offset = self.flight.next_fetch_offset()
            batches = [batch for batch in self.log if batch.last_offset >= offset][:3]
            if not batches:
                break
            for part in acquire(
                self.flight, _SETTINGS, "z", batches, offset, now=self.now, max_records=10, batch_size=5
            ):
                ack = Acknowledgement(part.first, part.last, [AckType.ACCEPT])
                change = acknowledge(self.flight, _SETTINGS, "z", [ack], self.now)
                settle(self.flight, _SETTINGS, change, self.now, persisted=True)
        assert self.flight.next_new_offset > max((batch.last_offset for batch in self.log), default=-1)
        assert not any(run.available for run in self.flight.runs if self._exists(run.first))

    def _exists(self, offset: int) -> bool:
        return any(batch.base_offset <= offset <= batch.last_offset for batch in self.log)


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = hypothesis_settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None
)
