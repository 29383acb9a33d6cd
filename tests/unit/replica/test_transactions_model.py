"""Producers, zombies, timeouts, unreachable partitions and restarts in any order, against a simple model.

No record is visible to a read_committed reader before its commit is decided, aborted ones never are, and when all is
quiet exactly the committed ones are there, in order. A coordinator that reads the log again knows the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from ottla.coordinator.transaction.state import PREPARED
from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.records.batch import iter_records
from unit.replica.txn_scene import Producer, TxnScene

IDS = ("alpha", "beta")
PARTITIONS = 2
TIMEOUT_MS = 60_000

ids = st.sampled_from(IDS)
partitions = st.integers(0, PARTITIONS - 1)


@dataclass
class Instance:
    """A producer as its user knows it, and what its open transaction holds."""

    producer: Producer
    new: bool
    """Of transaction version 2."""
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    lost: bool = False
    """The broker has refused something: the user gives the transaction up."""


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.txns = TxnScene()
        self.txns.create("t", PARTITIONS)
        self.current: dict[str, Instance] = {}
        self.zombies: list[Instance] = []
        self.decided: set[bytes] = set()
        """Values whose commit was acknowledged."""
        self.dead: set[bytes] = set()
        """Values that can never become visible."""
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """All values in the order of their append."""
        self.count = 0

    # -- what users do

    @rule(name=ids, new=st.booleans())
    def start(self, name: str, new: bool) -> None:
        found = self.txns.init(name, timeout_ms=TIMEOUT_MS)
        if isinstance(found, ErrorCode):
            assert found is ErrorCode.CONCURRENT_TRANSACTIONS
            former = self.current.get(name)
            if former is not None and (former.sent or former.lost):
                # Its open transaction is aborted first. Nobody has its place yet: it may ask for that abort again.
                self._give_up(self.current.pop(name))
            return
        former = self.current.get(name)
        if former is not None:
            self._give_up(former)
            self.zombies.append(former)
        self.current[name] = Instance(found, new)

    @rule(name=ids, index=partitions)
    def send(self, name: str, index: int) -> None:
        instance = self.current.get(name)
        if instance is not None and not instance.lost:
            self._send(instance, index)

    def _send(self, instance: Instance, index: int) -> ErrorCode | None:
        self.count += 1
        value = b"%d" % self.count
        producer = instance.producer
        if not instance.new:
            (code,) = producer.add(("t", index))
            if code is not ErrorCode.NONE:
                instance.lost = code is not ErrorCode.CONCURRENT_TRANSACTIONS
                return code
        code = producer.send(value, index=index, version=12 if instance.new else 9)
        if code is None:
            # Parked while the last transaction is being ended: let it be refused.
            self.txns.advance_ms(200)
            if self.txns.log(index=index).producers.get(producer.producer_id) is not None:
                self._note_parked(instance, index, value)
            return code
        if code is ErrorCode.NONE:
            instance.sent.append((index, value))
            self.written[index].append(value)
        else:
            instance.lost = True
        return code

    def _note_parked(self, instance: Instance, index: int, value: bytes) -> None:
        """Whether a parked batch was appended after all: its user does not know."""
        everything = self._all_values(index)
        if value in everything:
            instance.sent.append((index, value))
            self.written[index].append(value)
        instance.lost = True

    @rule(name=ids, commit=st.booleans())
    def end(self, name: str, commit: bool) -> None:
        instance = self.current.get(name)
        if instance is None or not (instance.sent or instance.lost):
            return
        commit = commit and not instance.lost
        code = instance.producer.end(commit, version=5 if instance.new else 3)
        if code is ErrorCode.NONE:
            values = {value for _, value in instance.sent}
            if commit:
                self.decided |= values
            else:
                self.dead |= values
            instance.sent.clear()
            instance.lost = False
        elif instance.lost and not instance.sent and not instance.new:
            assert code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
            instance.lost = False
        else:
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS

    @rule(name=ids, commit=st.booleans())
    def a_whole_transaction(self, name: str, commit: bool) -> None:
        for index in range(PARTITIONS):
            self.send(name, index)
        self.end(name, commit)

    def _give_up(self, instance: Instance) -> None:
        self.dead |= {value for _, value in instance.sent} - self.decided
        instance.sent.clear()

    @precondition(lambda self: self.zombies)
    @rule(index=partitions, commit=st.booleans(), data=st.data())
    def a_zombie_tries(self, index: int, commit: bool, data: st.DataObject) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        code = self._send(zombie, index)
        assert code is not ErrorCode.NONE, "a zombie wrote"
        assert zombie.producer.end(commit, version=5 if zombie.new else 3) is not ErrorCode.NONE

    # -- what befalls the broker

    @rule(index=partitions)
    def markers_do_not_get_through(self, index: int) -> None:
        self.txns.markers.unreachable.add(TopicPartition("t", index))

    @rule()
    def markers_get_through_again(self) -> None:
        self.txns.markers.unreachable.clear()
        self.txns.advance_ms(100)

    @rule(index=partitions)
    def roll(self, index: int) -> None:
        self.txns.log(index=index).roll()

    @rule()
    def kill_and_restart(self) -> None:
        before = self._states()
        self.txns.restart()
        after = self._states()
        for name, txn in before.items():
            # Nothing is forgotten; what was decided may be complete now.
            assert after[name] == txn or txn.state in PREPARED

    @rule()
    def time_runs_out(self) -> None:
        self.txns.advance_ms(TIMEOUT_MS + 11_000)
        for name in list(self.current):
            if self.current[name].sent:
                instance = self.current.pop(name)
                self._give_up(instance)
                # Of version 2 it may go on with an abort, so it is no zombie; nor does it come back here.
                if not instance.new:
                    self.zombies.append(instance)

    # -- what must hold

    def _states(self) -> dict[str, Any]:
        runtime = self.txns.coordinator.runtime
        found: dict[str, Any] = {}
        for partition in range(runtime.partition_count):
            shard = runtime.shard(partition)
            assert shard is not None
            found.update(shard.transactions)
        return found

    def _all_values(self, index: int) -> list[bytes]:
        log = self.txns.log(index=index)
        values = []
        for segment in log._segments:
            for _, header, batch in segment.batches(0):
                if not header.is_control:
                    values += [record.value for record in iter_records(batch, 0, header)]
        return values

    @invariant()
    def only_what_was_committed_is_visible(self) -> None:
        for index in range(PARTITIONS):
            visible = self.txns.committed(index=index)
            assert set(visible) <= self.decided
            order = [value for value in self.written[index] if value in self.decided]
            assert visible == order[: len(visible)]

    def teardown(self) -> None:
        self.txns.markers.unreachable.clear()
        for instance in self.current.values():
            self._give_up(instance)
        # Every open transaction is aborted, every decided one completed.
        self.txns.advance_ms(TIMEOUT_MS + 11_000)
        assert self.txns.coordinator.unfinished == 0
        for restarted in (False, True):
            if restarted:
                self.txns.restart()
            for index in range(PARTITIONS):
                log = self.txns.log(index=index)
                assert log.last_stable_offset == log.log_end_offset, "a transaction hangs"
                expected = [value for value in self.written[index] if value in self.decided]
                assert self.txns.committed(index=index) == expected
                assert not set(expected) & self.dead


TransactionsMachine.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTransactions = TransactionsMachine.TestCase
