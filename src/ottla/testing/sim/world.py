"""One run: a cluster, clients, faults, then peace, and the check. Everything follows from the seed."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.log.types import TopicPartition
from ottla.testing.sim.checker import Log, check
from ottla.testing.sim.faults import FAULTS, Faults
from ottla.testing.sim.history import History, Outcome
from ottla.testing.sim.invariants import Invariants
from ottla.testing.sim.loop import SimLoop, StuckError
from ottla.testing.sim.mutations import mutated
from ottla.testing.sim.network import Address, Network
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.process import Process
from ottla.testing.sim.producers import Producer, TransactionalProducer
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.wire_client import NotSent, Unanswered, WireClient
from ottla.wire import messages

_LOOK_EACH_S: Final = 0.1
_PEACE_S: Final = 90.0
"""Once faults are healed, every client must get on within this time."""

PLAIN: Final = [TopicPartition("plain", i) for i in range(2)]
TRANSACTIONAL: Final = [TopicPartition("txn", i) for i in range(2)]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of."""

    seed: int
    nodes: int = 3
    fault_s: float = 25.0
    producers: int = 2
    transactional: int = 2
    kinds: Sequence[str] = tuple(FAULTS)
    mutation: str | None = None
    """A way in which the brokers are broken on purpose."""


@dataclass(slots=True)
class Result:
    """What came of it."""

    plan: Plan
    trace: int
    steps: int
    seconds: float
    violations: list[str]
    notes: list[str] = field(default_factory=list)
    acknowledged: int = 0
    committed: int = 0


class World:
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = Network(self.loop, self._draw())
        self.network.on_delivery = self._trace_delivery
        self.history = History()
        self.violations: list[str] = []
        self.notes: list[str] = []
        self._trace = 0
        self.nodes = [
            SimNode(self.loop, self.network, i, _properties(i, plan.nodes), self._draw(), self._node_failed)
            for i in range(1, plan.nodes + 1)
        ]
        self.invariants = Invariants(self.nodes, self.violations)
        self._clients: dict[str, Process] = {}
        self._tasks: list[asyncio.Task[Any]] = []

    def _draw(self) -> random.Random:
        """A source of its own for each part: what one draws does not change what another gets."""
        return random.Random(self.random.getrandbits(64))

    def note(self, text: str) -> None:
        self.notes.append(f"{self.loop.time():9.3f} {text}")
        self._trace = zlib.crc32(text.encode(), self._trace)

    def _trace_delivery(self, data: bytes | None) -> None:
        self._trace = zlib.crc32(data or b"end", zlib.crc32(b"%.6f" % self.loop.time(), self._trace))

    def _node_failed(self, node: SimNode, failure: BaseException) -> None:
        self.note(f"{node.host} failed: {failure}")
        self.violations.append(f"{node.host} gave up: {type(failure).__name__}: {failure}")

    # -- the run

    def run(self) -> Result:
        try:
            self._run()
        except (_Stuck, StuckError) as stuck:
            self.violations.append(str(stuck))
        finally:
            result = self._result()
            self.loop.close()
        return result

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._do("set-up", self._create_topics(), 60)
        self._look()
        self._start_clients()
        faults = Faults(self.nodes, self.network, self._draw(), self.note)
        self._do("faults", faults.run(self.plan.fault_s, self.plan.kinds), self.plan.fault_s + 120)
        self._peace()
        for task in self._tasks:
            task.cancel()
        self.loop.run_for(1.0)
        logs = self._do("final read", self._read_all(committed_only=False), _PEACE_S)
        committed = self._do("final read, committed", self._read_all(committed_only=True), _PEACE_S)
        self.violations += check(self.history, logs, committed)
        self.invariants.look(final=True)

    def _result(self) -> Result:
        for failure in self.loop.failures:
            self.violations.append(f"unexpected: {failure.get('message')} {failure.get('exception')!r}")
        return Result(
            self.plan,
            self._trace,
            self.loop.steps,
            self.loop.time(),
            self.violations,
            self.notes,
            sum(len(s.values) for s in self.history.sends if s.outcome is Outcome.OK),
            sum(t.outcome is Outcome.OK for t in self.history.transactions),
        )

    def _do(self, what: str, work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
        task = self.loop.create_task(work)
        if not self.loop.run_until(task.done, timeout_s):
            task.cancel()
            raise _Stuck(f"{what} did not end within {timeout_s:g} s")
        return task.result()

    def _look(self) -> None:
        self.invariants.look()
        self.loop.call_later(_LOOK_EACH_S, self._look)

    # -- clients

    def client(self, name: str) -> WireClient:
        self._clients.setdefault(name, Process(name, name))
        bootstrap: list[Address] = [(node.host, 9092) for node in self.nodes]
        return WireClient(self.loop, name, bootstrap, self._draw())

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self.loop.spawn(self._clients[name], work))

    def _start_clients(self) -> None:
        for i in range(self.plan.producers):
            name = f"p{i}"
            self._spawn(name, Producer(self.client(name), self.history, PLAIN).run())
        for i in range(self.plan.transactional):
            name = f"t{i}"
            self._spawn(name, TransactionalProducer(self.client(name), self.history, TRANSACTIONAL).run())
        everything = PLAIN + TRANSACTIONAL
        for name, committed_only in (("r0", False), ("r1", True)):
            reader = Reader(self.client(name), self.history, everything, committed_only=committed_only)
            self._spawn(name, reader.run())

    async def _create_topics(self) -> None:
        client = self.client("admin")
        request = messages.CreateTopicsRequest
        for topic, partitions in (("plain", len(PLAIN)), ("txn", len(TRANSACTIONAL))):
            new = request.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=self.plan.nodes,
                configs=[request.CreatableTopicConfig(name="min.insync.replicas", value="2")],
            )
            while True:
                try:
                    answer = await client.ask_any(request(topics=[new], timeout_ms=3000), 7)
                except (NotSent, Unanswered):
                    await asyncio.sleep(0.1)
                    continue
                code = ErrorCode.of(answer.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    break
                await asyncio.sleep(0.1)

    def _peace(self) -> None:
        """Progress once faults heal: each producer gets an acknowledgement, each transactional one a commit."""
        self.note("peace")
        sends, transactions = len(self.history.sends), len(self.history.transactions)
        waiting = {name for name in self._clients if name[0] in "pt"}

        def all_got_on() -> bool:
            waiting.difference_update(
                send.producer for send in self.history.sends[sends:] if send.outcome is Outcome.OK
            )
            done = {t.producer for t in self.history.transactions[transactions:] if t.outcome is Outcome.OK}
            return not waiting and {f"t{i}" for i in range(self.plan.transactional)} <= done

        deadline = self.loop.time() + _PEACE_S
        while not all_got_on():
            if self.loop.time() > deadline:
                raise _Stuck(f"no progress within {_PEACE_S:g} s of peace: {sorted(waiting)} wait")
            self.loop.run_for(0.5)

    async def _read_all(self, *, committed_only: bool) -> Mapping[TopicPartition, Log]:
        """Everything there is, by a reader that nothing disturbs."""
        history = History()
        client = self.client(f"final{int(committed_only)}")
        reader = Reader(client, history, PLAIN + TRANSACTIONAL, committed_only=committed_only)
        for tp in reader.positions:
            quiet = 0
            while quiet < 3:
                before = reader.positions[tp]
                answered = await reader.poll(tp)
                at_end = answered and reader.positions[tp] == before
                quiet = quiet + 1 if at_end and not self._open_transactions(tp, committed_only) else 0
                if not answered:
                    await asyncio.sleep(0.1)
        logs: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in reader.positions}
        for poll in history.polls:
            logs[poll.partition] += poll.records
        return logs

    def _open_transactions(self, tp: TopicPartition, committed_only: bool) -> bool:
        """A transaction whose client was stopped is still open: its time-out ends it."""
        if not committed_only:
            return False
        for node in self.nodes:
            broker = node.broker
            if broker is not None and broker.replicas.hosts(tp):
                log = broker.replicas.partition(*tp).log
                if log is not None and log.last_stable_offset < log.high_watermark:
                    return True
        return False


class _Stuck(Exception):
    """Something that had to happen did not."""


def _properties(node_id: int, count: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://n{node_id}:9092,CONTROLLER://n{node_id}:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{i}@n{i}:9093" for i in range(1, count + 1)),
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": str(min(count, 3)),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(min(count, 3)),
        "transaction.state.log.min.isr": "2",
    }


def run(plan: Plan) -> Result:
    """One run; the broker's own words are kept quiet."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with mutated(plan.mutation):
            return World(plan).run()
    finally:
        logging.disable(before)
        # Each start of a node has frozen what was there: let it go.
        gc.unfreeze()
        gc.collect()
