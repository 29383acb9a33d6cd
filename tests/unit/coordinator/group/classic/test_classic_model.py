"""Classic groups and offsets against a model: members come, go, fail and restart in any order, and so does the broker.

Always: no partition has two owners in one generation; an offset is what was last committed, and never another;
and what a restart brings back is what was there before.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from ottla.coordinator.group.classic.state import ClassicState
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.coordinator_rig import Answer, GroupRig

PARTITIONS = range(4)
SESSION_MS = 10_000


class Consumer:
    """A member as a client library runs it: joins, syncs (the leader assigns), heartbeats, owns what it was given."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.joining: Answer | None = None
        self.syncing: Answer | None = None
        self.listed: list[str] = []

    def forget(self) -> None:
        self.owned = frozenset()
        self.generation = -1
        self.joining = self.syncing = None


class ClassicModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = GroupRig()
        self.consumers: list[Consumer] = []
        self.committed: dict[int, int] = {}
        self.pending: dict[int, dict[int, int]] = {}
        self.handed_out: dict[int, dict[int, str]] = {}
        """By generation: who was given each partition."""
        self.next_offset = 0
        self.arrived = 0

    def _pick(self, index: int) -> Consumer:
        return self.consumers[index % len(self.consumers)]

    # -- members

    @rule(static=st.booleans())
    @precondition(lambda self: len(self.consumers) < 5)
    def arrive(self, static: bool) -> None:
        self.arrived += 1
        self.consumers.append(Consumer(f"i{self.arrived}" if static else None))
        self._join(self.consumers[-1])

    @rule(index=st.integers(0, 4))
    @precondition(lambda self: self.consumers)
    def join_again(self, index: int) -> None:
        self._join(self._pick(index))

    def _join(self, consumer: Consumer) -> None:
        member_id = consumer.member_id
        consumer.forget()
        answer = self.rig.join(member_id, instance_id=consumer.instance_id, session_ms=SESSION_MS)
        if answer.there and answer.code == ErrorCode.MEMBER_ID_REQUIRED:
            member_id = answer.get().member_id
            answer = self.rig.join(member_id, session_ms=SESSION_MS)
        consumer.member_id = member_id
        consumer.joining = answer
        self._look_around()

    def _look_around(self) -> None:
        """Everyone reads the answers that have come."""
        if self.rig.group() is None:
            # An empty group without offsets is removed after a while; a new one counts generations from 1 again.
            self.handed_out.clear()
        for consumer in self.consumers:
            joining, syncing = consumer.joining, consumer.syncing
            if joining is not None and joining.there:
                consumer.joining = None
                if joining.code:
                    self._refused(consumer, joining.code)
                    continue
                response = joining.get()
                consumer.member_id = response.member_id
                consumer.generation = response.generation_id
                consumer.listed = [member.member_id for member in response.members]
            if syncing is not None and syncing.there:
                consumer.syncing = None
                if syncing.code:
                    self._refused(consumer, syncing.code)
                    continue
                self._take(consumer, frozenset(syncing.get().assignment))

    def _take(self, consumer: Consumer, owned: frozenset[int]) -> None:
        consumer.owned = owned
        given = self.handed_out.setdefault(consumer.generation, {})
        who = consumer.instance_id or consumer.member_id
        for partition in owned:
            assert given.setdefault(partition, who) == who, "two owners in one generation"

    def _refused(self, consumer: Consumer, code: int) -> None:
        consumer.forget()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.member_id = ""

    @rule(index=st.integers(0, 4))
    @precondition(lambda self: self.consumers)
    def sync(self, index: int) -> None:
        consumer = self._pick(index)
        if consumer.generation < 0 or consumer.syncing is not None or consumer.joining is not None:
            return
        assignments: dict[str, bytes] = {}
        for position, partition in enumerate(PARTITIONS if consumer.listed else ()):
            member_id = consumer.listed[position % len(consumer.listed)]
            assignments[member_id] = assignments.get(member_id, b"") + bytes([partition])
        consumer.syncing = self.rig.sync(
            consumer.member_id, consumer.generation, assignments, instance_id=consumer.instance_id
        )
        self._look_around()

    @rule(index=st.integers(0, 4))
    @precondition(lambda self: self.consumers)
    def leave(self, index: int) -> None:
        consumer = self.consumers.pop(index % len(self.consumers))
        if consumer.member_id:
            member: Any = consumer.member_id
            if consumer.instance_id is not None:
                member = (consumer.member_id, consumer.instance_id)
            self.rig.leave(member)
        self._look_around()

    @rule(index=st.integers(0, 4))
    @precondition(lambda self: self.consumers)
    def crash(self, index: int) -> None:
        """Gone without a word; a static one comes back as itself."""
        consumer = self._pick(index)
        if consumer.instance_id is None:
            self.consumers.remove(consumer)
            return
        consumer.member_id = ""
        self._join(consumer)

    @rule(seconds=st.integers(1, 70), alive=st.booleans())
    def time_passes(self, seconds: int, alive: bool) -> None:
        for _ in range(seconds if alive else 1):
            self.rig.clock.advance(1 if alive else seconds)
            self._look_around()
            if alive:
                self._heartbeats()

    def _heartbeats(self) -> None:
        for consumer in self.consumers:
            if consumer.generation >= 0 and consumer.joining is None:
                code = self.rig.heartbeat(
                    consumer.member_id, consumer.generation, instance_id=consumer.instance_id
                )
                if code and code != ErrorCode.REBALANCE_IN_PROGRESS:
                    self._refused(consumer, code)

    # -- offsets

    @rule(index=st.integers(0, 4))
    @precondition(lambda self: self.consumers)
    def commit(self, index: int) -> None:
        consumer = self._pick(index)
        for partition in sorted(consumer.owned):
            self.next_offset += 1
            answer = self.rig.commit(
                self.next_offset,
                partition,
                member_id=consumer.member_id,
                generation=consumer.generation,
                instance_id=consumer.instance_id,
            )
            if not isinstance(answer.outcomes[0], ApiException):
                assert self.rig.group().generation == consumer.generation, "an old generation committed"
                self.committed[partition] = self.next_offset

    @rule(index=st.integers(0, 4), back=st.integers(1, 3))
    @precondition(lambda self: self.consumers)
    def commit_late(self, index: int, back: int) -> None:
        """A commit of a generation that is over, which its member sent and forgot about.

        A restart forgets a generation that is not in the log, and the one before it is current again: as in Kafka,
        the coordinator decides which generations are over, and not what the member has last joined.
        """
        consumer = self._pick(index)
        group = self.rig.group()
        if group is not None and group.generation > back:
            answer = self.rig.commit(
                0,
                0,
                member_id=consumer.member_id,
                generation=group.generation - back,
                instance_id=consumer.instance_id,
            )
            assert isinstance(answer.outcomes[0], ApiException)

    @rule(partition=st.sampled_from(PARTITIONS), producer=st.integers(0, 2))
    def commit_in_transaction(self, partition: int, producer: int) -> None:
        self.next_offset += 1
        answer = self.rig.commit_in_transaction(1000 + producer, self.next_offset, partition)
        assert answer.get().topics[0].partitions[0].error_code == 0
        self.pending.setdefault(1000 + producer, {})[partition] = self.next_offset

    @rule(producer=st.integers(0, 2), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        ended = self.pending.pop(1000 + producer, None)
        if ended is None:
            return
        self.rig.end_transaction(1000 + producer, commit=commit).get()
        if commit:
            for partition, offset in ended.items():
                # The later of two commits stands, whichever way it was made.
                self.committed[partition] = max(offset, self.committed.get(partition, -1))

    # -- the broker

    @rule()
    def restart(self) -> None:
        offsets, group = self._kept()
        self.rig.restart()
        self._look_around()
        offsets_after, group_after = self._kept()
        assert offsets_after == offsets
        assert group is None or group_after == group
        for consumer in self.consumers:
            consumer.joining = consumer.syncing = None

    def _kept(self) -> Any:
        """Offsets, and the group where its generation is settled: what a restart must bring back."""
        shard = self.rig.shard
        offsets = sorted(shard.offsets.of_group("g"))
        group = shard.groups.get("g")
        if group is None or group.state not in (ClassicState.STABLE, ClassicState.EMPTY):
            return offsets, None
        members = sorted((m.member_id, m.instance_id, m.assignment) for m in group.members.values())
        protocol_type = group.protocol_type if group.generation else ""
        return offsets, (group.state, group.generation, protocol_type, group.leader_id, members)

    # -- always

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        for partition in PARTITIONS:
            assert self.rig.fetch(partition) == (self.committed.get(partition, -1), 0)
            held = any(partition in places for places in self.pending.values())
            unstable = self.rig.fetch(partition, stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert unstable == held

    @invariant()
    def the_group_counts_right(self) -> None:
        group = self.rig.group()
        if group is None:
            return
        members = group.members.values()
        assert group.joining_count == sum(member.joining is not None for member in members)
        assert group.leader_id is None or group.leader_id in group.members
        assert set(group.static_members.values()) == {m.member_id for m in members if m.is_static}
        assert group.pending_sync <= set(group.members)
        assert group.generation >= max(self.handed_out, default=0), (
            "a generation with assignments is forgotten"
        )
        if group.state is ClassicState.EMPTY:
            assert not members

    def teardown(self) -> None:
        """Left in peace, the group settles, and every partition has one owner."""
        for _ in range(120):
            self.rig.clock.advance(1)
            self._look_around()
            for index, consumer in enumerate(self.consumers):
                self._go_on(index, consumer)
            if self._settled():
                owned = sorted(p for consumer in self.consumers for p in consumer.owned)
                assert owned == list(PARTITIONS)
                return
        assert not self.consumers, "the group never settled"

    def _go_on(self, index: int, consumer: Consumer) -> None:
        """What a client does next by itself."""
        if consumer.joining is not None or consumer.syncing is not None:
            return
        if consumer.generation < 0:
            self._join(consumer)
            return
        code = self.rig.heartbeat(consumer.member_id, consumer.generation, instance_id=consumer.instance_id)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(consumer)
        elif code:
            self._refused(consumer, code)
        elif not consumer.owned:
            self.sync(index)

    def _settled(self) -> bool:
        group = self.rig.group()
        return (
            bool(self.consumers)
            and group is not None
            and group.state is ClassicState.STABLE
            and set(group.members) == {consumer.member_id for consumer in self.consumers}
            and all(group.members[c.member_id].assignment == bytes(sorted(c.owned)) for c in self.consumers)
        )


TestClassicModel = ClassicModel.TestCase
TestClassicModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
