"""One simulated run: a cluster, clients, faults, then recovery, and the checks. The seed determines everything."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
import struct
import zlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla.clock import random_uuid_from
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.log.types import TopicPartition
from ottla.raft.types import ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.testing.checks.checker import check
from ottla.testing.checks.history import Outcome
from ottla.testing.sim.classic import Membership
from ottla.testing.sim.clients import (
    COPIES,
    COPY_GROUP,
    EVERYTHING,
    PLAIN,
    QUEUE,
    TRANSACTIONAL,
    Clients,
)
from ottla.testing.sim.faults import Campaign, Victims
from ottla.testing.sim.history import History, Log
from ottla.testing.sim.invariants import Invariants
from ottla.testing.sim.loop import SimLoop, StuckError, current_process
from ottla.testing.sim.mutations import mutated
from ottla.testing.sim.network import Address, Network
from ottla.testing.sim.node import CONTROLLER_PORT, SimNode
from ottla.testing.sim.orders import Orders
from ottla.testing.sim.plan import Plan, properties
from ottla.testing.sim.process import Process
from ottla.testing.sim.readers import Reader
from ottla.testing.sim.watch import Watch
from ottla.testing.sim.wire_client import NotSent, Unanswered
from ottla.wire import messages

T = TypeVar("T")

_LOOK_EACH_S: Final = 0.1
_pack_time: Final = struct.Struct(">d").pack
_PEACE_S: Final = 40.0
"""After the faults, every client must make progress and every replica be in sync within this time."""
_RUNS_PER_COLLECTION: Final = 16
_runs: Final = itertools.count(1)
"""Numbers the runs of this process."""


@dataclass(slots=True)
class Result:
    """The result of a run."""

    plan: Plan
    trace: int
    steps: int
    seconds: float
    violations: list[str]
    notes: list[str] = field(default_factory=list)
    acknowledged: int = 0
    committed: int = 0
    rounds: int = 0
    """The number of rounds of faults."""


class World:
    """A simulated cluster with its clients, faults and checks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.loop = SimLoop()  # type: ignore[abstract]
        self.loop.on_failure = self._uncaught
        self.network = Network(self.loop, self._draw())
        self.watch = Watch(self.say)
        self.network.on_delivery = self._trace_delivery
        self.network.on_send = self.watch.sent
        self.history = History()
        self.violations: list[str] = []
        self.notes: list[str] = []
        self._trace = 0
        self._campaign: Campaign | None = None
        voters = self._first_voters() if plan.dynamic else None
        self.nodes = [
            SimNode(
                self.loop,
                self.network,
                i,
                properties(plan, i),
                self._draw(),
                self._node_failed,
                voters if voters is not None and i in voters.nodes else None,
            )
            for i in range(1, len(plan.layout) + 1)
        ]
        self.brokers = [node for node in self.nodes if node.config.is_broker]
        self.invariants = Invariants(self.nodes, self.say)
        bootstrap: list[Address] = [(node.host, 9092) for node in self.brokers]
        self.clients = Clients(self.loop, self.network, self.history, bootstrap, self._draw, plan.pause_s)

    def _draw(self) -> random.Random:
        """Return a new random source, so that the parts do not influence each other."""
        return random.Random(self.random.getrandbits(64))

    def _first_voters(self) -> VoterSet:
        """Return the first three voters of a dynamic quorum."""
        ids = [i for i, roles in enumerate(self.plan.layout, 1) if "controller" in roles][:3]
        return VoterSet.of(
            VoterNode(
                ReplicaKey(BrokerId(i), random_uuid_from(self.random)),
                {"CONTROLLER": VoterEndpoint(f"n{i}", CONTROLLER_PORT)},
            )
            for i in ids
        )

    def note(self, text: str) -> None:
        self.notes.append(f"{self.loop.time():9.3f} {text}")
        self._trace = zlib.crc32(text.encode(), self._trace)

    def say(self, violation: str) -> None:
        """Record a violation."""
        if violation not in self.violations:
            self.notes.append(f"{self.loop.time():9.3f} VIOLATED {violation}")
            self.violations.append(violation)

    def _trace_delivery(self, data: bytes | None) -> None:
        self._trace = zlib.crc32(data or b"end", zlib.crc32(_pack_time(self.loop.time()), self._trace))

    def _node_failed(self, node: SimNode, failure: BaseException) -> None:
        self.note(f"{node.host} failed: {failure}")
        if not node.sick:
            self.say(f"{node.host} gave up: {type(failure).__name__}: {failure}")

    def _uncaught(self, process: Process | None, context: Mapping[str, object]) -> None:
        if process is None or not self._is_sick(process):
            self.say(f"{process}: {context.get('message')}: {context.get('exception')!r}")

    def logged(self, record: logging.LogRecord) -> None:
        """Record an exception that a healthy node has logged: network faults do not explain it."""
        process = current_process()
        if process is None or (process.alive and not self._is_sick(process)):
            error = record.exc_info[1] if record.exc_info else None
            self.say(f"{process} logged: {record.getMessage()}: {error!r}")

    def _is_sick(self, process: Process) -> bool:
        return any(node.process is process and node.sick for node in self.nodes)

    # -- the run

    def run(self) -> Result:
        try:
            self._run()
        except (_Stuck, StuckError) as stuck:
            for anomaly in self.history.anomalies:
                self.say(anomaly)
            self.say(str(stuck))
        finally:
            result = self._result()
            self.loop.close()
        return result

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._do("set-up", self._create_topics(), 60)
        self._look()
        self.clients.start(self.plan.clients)
        self._campaign = Campaign(self._victims(), self.random.getrandbits(64))
        self._do("faults", self._campaign.run(self.plan), self.plan.fault_s + 120)
        self._peace()
        self._drain()
        logs = self._do("final read", self._read_all(committed_only=False), _PEACE_S)
        committed = self._do("final read, committed", self._read_all(committed_only=True), _PEACE_S)
        if any(name[0] == "x" for name in self.plan.clients):
            self.history.copied_to = self._do("final offsets", self._copied_to(), _PEACE_S)
        for noticed in self.history.anomalies:
            self.say(noticed)
        for anomaly in check(self.history.shared(logs, committed)):
            self.say(f"{anomaly.kind}: {anomaly.what}")
        self.invariants.look(final=True)

    def _result(self) -> Result:
        return Result(
            self.plan,
            self._trace,
            self.loop.steps,
            self.loop.time(),
            list(self.violations),
            list(self.notes),
            sum(len(s.values) for s in self.history.sends if s.outcome is Outcome.OK),
            sum(t.outcome is Outcome.OK for t in self.history.transactions),
            self._campaign.rounds if self._campaign is not None else 0,
        )

    def _do(self, what: str, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        task = self.loop.create_task(work)
        if not self.loop.run_until(task.done, timeout_s):
            task.cancel()
            raise _Stuck(f"{what} did not end within {timeout_s:g} s")
        return task.result()

    def _look(self) -> None:
        self.invariants.look()
        self.loop.call_later(_LOOK_EACH_S, self._look)

    # -- steps

    def _victims(self) -> Victims:
        return Victims(
            self.nodes,
            self.network,
            self.watch,
            self.invariants.in_sync,
            Orders(self.nodes, self.clients.client("operator"), self._draw(), self.note),
            self.clients,
            self.note,
        )

    async def _create_topics(self) -> None:
        client = self.clients.client("admin")
        request = messages.CreateTopicsRequest
        settings = {"min.insync.replicas": "2"}
        if self.plan.internal_segment_bytes is not None:
            settings["internal.segment.bytes"] = str(self.plan.internal_segment_bytes)
        configs = [request.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        new = [
            request.CreatableTopic(
                name=partitions[0].topic,
                num_partitions=len(partitions),
                replication_factor=min(3, len(self.brokers)),
                configs=configs,
            )
            for partitions in (PLAIN, TRANSACTIONAL, QUEUE, COPIES)
        ]
        while new:
            try:
                answer = await client.ask_any(request(topics=new, timeout_ms=3000), 7)
            except (NotSent, Unanswered):
                await asyncio.sleep(0.1)
                continue
            done = {
                topic.name
                for topic in answer.topics
                if ErrorCode.of(topic.error_code) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
            new = [topic for topic in new if topic.name not in done]
            if new:
                await asyncio.sleep(0.1)
        await self.clients.prepare(self.plan.clients)

    def _peace(self) -> None:
        """Wait until every client makes progress and every replica is in sync."""
        self.note("peace")
        left = self.clients.progress(self.plan.clients)
        deadline = self.loop.time() + _PEACE_S
        while left() or not self.invariants.in_sync():
            if self.loop.time() > deadline:
                if not self.invariants.in_sync():
                    self.say(f"not all replicas are in sync after {_PEACE_S:g} s of peace")
                raise _Stuck(f"no progress within {_PEACE_S:g} s of peace: {left()} wait")
            self.loop.run_for(0.5)

    def _drain(self) -> None:
        """Stop the producers, and let the consumers empty the queue."""
        self.clients.stop("pqt")
        deadline = self.loop.time() + _PEACE_S
        while not self.clients.queue_is_empty():
            if self.loop.time() > deadline:
                self.say("the queue's consumers are not given all that is in it")
                break
            self.loop.run_for(0.2)
        self.clients.stop("gcsurx")
        self.loop.run_for(1.0)

    async def _read_all(self, *, committed_only: bool) -> Mapping[TopicPartition, Log]:
        """Read all records to the end, without faults."""
        history = History()
        client = self.clients.client(f"final{int(committed_only)}")
        reader = Reader(client, history, list(EVERYTHING), 0.1, committed_only=committed_only)
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

    async def _copied_to(self) -> dict[TopicPartition, int]:
        """Return the offsets of the copiers' group after all transactions have ended."""
        member = Membership(self.clients.client("final"), self.history, COPY_GROUP, TRANSACTIONAL[0].topic, 0)
        reached: dict[TopicPartition, int] = {}
        while len(reached) < len(TRANSACTIONAL):
            for tp in TRANSACTIONAL:
                with contextlib.suppress(NotSent, Unanswered):
                    if (found := await member.committed(tp)) is not None:
                        reached[tp] = found
            await asyncio.sleep(0.1)
        return reached

    def _open_transactions(self, tp: TopicPartition, committed_only: bool) -> bool:
        """Return whether a partition has an open transaction: the time-out ends those of stopped clients."""
        if not committed_only:
            return False
        for node in self.nodes:
            broker = node.broker
            if broker is not None and broker.replicas.hosts(tp):
                log = broker.replicas.find(tp).log
                if log is not None and log.last_stable_offset < log.high_watermark:
                    return True
        return False


class _Stuck(Exception):
    """Something did not happen in time."""


class _Listener(logging.Handler):
    """Collects the unexpected errors that nodes log."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._world.logged(record)


def run(plan: Plan) -> Result:
    """Run a plan. Ordinary log lines of brokers are suppressed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # A run leaves little garbage (1 or 2 MB), and collections during it took a tenth of its time.
    gc.disable()
    try:
        with mutated(plan.mutation):
            return _run_and_listen(World(plan))
    finally:
        if next(_runs) % _RUNS_PER_COLLECTION == 0:
            # Objects that end now must not log.
            logging.disable(logging.CRITICAL)
            gc.collect()
        logging.disable(before)
        gc.enable()


def _run_and_listen(world: World) -> Result:
    logger, listener = logging.getLogger("ottla"), _Listener(world)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        return world.run()
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagated
