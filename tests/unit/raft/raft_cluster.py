"""Several replicas of the metadata quorum in one process: a virtual clock and network, a disk for each in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

from ottla.broker.storage_format import format_metadata_dir
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiException
from ottla.metadata.publisher import MetadataLoader, SnapshotGenerator
from ottla.metadata.records import MetadataSerde
from ottla.peers import Endpoint
from ottla.raft.config import RaftConfig
from ottla.raft.driver import RaftDriver
from ottla.raft.types import ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.testing.memfs import MemFs
from ottla.testing.memory_peers import MemoryNetwork, Respond
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from unit.raft.raft_harness import DATA_DIR, Recorder, feature

CLUSTER_ID = "a-cluster-of-the-tests"
FSYNC_S = 0.002


class ClockExecutor(Executor):
    """Runs each job a moment later on the virtual clock; a process that died runs nothing any more."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.dead = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if self.dead:
                return
            try:
                result = fn(*args, **kwargs)
            except Exception as e:  # noqa: BLE001 - the future carries it, as a thread pool's does
                future.set_exception(e)
            else:
                future.set_result(result)

        self._clock.call_later(FSYNC_S, run)
        return future


def directory_id(node_id: int, life: int = 0) -> bytes:
    return f"directory {node_id:02d}/{life:03d}".encode().ljust(16, b"-")[:16]


def voter(node_id: int, *, life: int = 0, port: int | None = None) -> VoterNode:
    place = VoterEndpoint("host", 9000 + node_id if port is None else port)
    return VoterNode(ReplicaKey(node_id, directory_id(node_id, life)), {"CONTROLLER": place})


class Process:
    """One node's process: from `start` to `kill`."""

    def __init__(
        self, cluster: Cluster, node_id: int, fs: MemFs, local: VoterNode, is_controller: bool
    ) -> None:
        self.node_id = node_id
        self.fs = fs
        self.alive = True
        self.paused = False
        self._held: list[Callable[[], None]] = []
        self.executor = ClockExecutor(cluster.clock)
        self.faults: list[BaseException] = []
        self.listener = Recorder()
        self._cluster = cluster
        clock = _Own(self, cluster.clock)
        self.raft = RaftDriver(
            fs,
            DATA_DIR,
            local=local,
            voters=cluster.static_voters,
            config=RaftConfig.of(BrokerConfig.single_node(cluster.settings)),
            clock=clock,
            executor=self.executor,
            post=lambda callback: clock.call_later(0, callback),
            serde=MetadataSerde(),
            on_fault=self.faults.append,
            cluster_id=CLUSTER_ID,
            peers=cluster.network.peers(node_id),
            bootstrap=cluster.bootstrap,
            can_become_voter=is_controller,
        )
        self.loader = MetadataLoader(
            SnapshotGenerator(self.raft, clock, max_bytes=cluster.snapshot_bytes, max_interval_ms=0)
        )
        self.raft.add_listener(self.listener)
        self.raft.add_listener(self.loader)
        self.raft.add_listener(cluster.judge(node_id))

    def serve(self, _sender: int, request: Any, version: int, respond: Respond) -> None:
        """What api/raft does."""
        if self.paused:
            self._held.append(lambda: self.serve(_sender, request, version, respond))
            return
        raft = self.raft
        match request.API_KEY:
            case ApiKey.VOTE:
                respond(raft.requests.handle_vote(request))
            case ApiKey.BEGIN_QUORUM_EPOCH:
                respond(raft.requests.handle_begin_quorum_epoch(request))
            case ApiKey.END_QUORUM_EPOCH:
                respond(raft.requests.handle_end_quorum_epoch(request))
            case ApiKey.FETCH:
                raft.requests.handle_fetch(request, respond)
            case ApiKey.FETCH_SNAPSHOT:
                respond(raft.requests.handle_fetch_snapshot(request))
            case ApiKey.ADD_RAFT_VOTER:
                raft.voter_changes.add(request, respond)
            case ApiKey.REMOVE_RAFT_VOTER:
                raft.voter_changes.remove(request, respond)
            case ApiKey.UPDATE_RAFT_VOTER:
                raft.voter_changes.update(request, respond)
            case ApiKey.API_VERSIONS:
                cls = m.ApiVersionsResponse
                kraft = cls.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                respond(cls(supported_features=[kraft]))

    def hold(self, callback: Callable[[], None]) -> None:
        self._held.append(callback)

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for callback in held:
            callback()


class _Own:
    """The cluster's clock as one process has it: its timers die with it, and stand still while it does."""

    def __init__(self, process: Process, clock: VirtualClock) -> None:
        self._process = process
        self._clock = clock
        self.random = clock.random
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic
        self.random_uuid = clock.random_uuid

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Any:
        process = self._process

        def run() -> None:
            if process.paused:
                process.hold(run)
            elif process.alive:
                callback(*args)

        return self._clock.call_later(delay_s, run)


class Judge:
    """Records the commits of one process, and checks that no two processes disagree."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._next = 0

    def handle_commit(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            assert batch.base_offset == self._next, "committed batches come without gaps, in order"
            self._next = batch.next_offset
            self._cluster.note_committed(batch)

    def handle_load_snapshot(self, snapshot_id: Any, batches: Iterable[Any]) -> None:
        for _ in batches:
            pass
        assert snapshot_id.offset >= self._next, "a snapshot does not go back"
        self._next = snapshot_id.offset

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        if leader_id is not None:
            known = self._cluster.leaders.setdefault(epoch, leader_id)
            assert known == leader_id, f"epoch {epoch} has the leaders {known} and {leader_id}"
        if leader_id == self._node_id:
            self._cluster.claimed.add((leader_id, epoch))


class Cluster:
    """Controllers 1 to `size` (voters), and observers 101 and on. `run` lets time pass."""

    def __init__(
        self,
        size: int = 3,
        *,
        dynamic: bool = False,
        seed: int = 0,
        settings: dict[str, str] | None = None,
        snapshot_bytes: int = 1 << 40,
    ) -> None:
        self.clock = VirtualClock(seed=seed)
        self.network = MemoryNetwork(self.clock)
        self.settings = settings or {}
        self.snapshot_bytes = snapshot_bytes
        self.dynamic = dynamic
        self.ids = list(range(1, size + 1))
        self.static_voters = VoterSet() if dynamic else VoterSet.of(_without_directory(i) for i in self.ids)
        self.bootstrap = [Endpoint(-1, "host", 9000 + i) for i in self.ids] if dynamic else []
        self.locals: dict[int, VoterNode] = {i: voter(i) for i in self.ids}
        self.disks: dict[int, MemFs] = {}
        self.processes: dict[int, Process] = {}
        self.leaders: dict[int, int] = {}
        self.claimed: set[tuple[int, int]] = set()
        self.committed: dict[int, tuple[int, int, list[Any]]] = {}
        self.acknowledged: list[str] = []
        self._numbers = 0
        for i in self.ids:
            self.new_disk(i, first_voters=VoterSet.of(self.locals.values()) if dynamic else None)

    def new_disk(self, node_id: int, first_voters: VoterSet | None = None) -> None:
        fs = MemFs()
        fs.mkdir(DATA_DIR)
        fs.fsync_dir("/")
        if first_voters is not None:
            format_metadata_dir(fs, DATA_DIR, now_ms=1, voters=first_voters)
        self.disks[node_id] = fs

    def judge(self, node_id: int) -> Judge:
        return Judge(self, node_id)

    def note_committed(self, batch: Any) -> None:
        seen = (batch.last_offset, batch.epoch, [repr(r) for r in batch.records])
        known = self.committed.setdefault(batch.base_offset, seen)
        assert known == seen, f"two commits at {batch.base_offset}: {known} and {seen}"

    # Life of the nodes

    def start(self, *node_ids: int, is_controller: bool = True) -> Cluster:
        for i in node_ids or tuple(self.ids):
            local = self.locals.setdefault(i, voter(i))
            process = self.processes[i] = Process(self, i, self.disks[i], local, is_controller)
            place = local.listeners["CONTROLLER"]
            process.raft.start()
            self.network.serve(Endpoint(i, place.host, place.port), process.serve)
        return self

    def observe(self, node_id: int) -> Process:
        """A broker joins."""
        if node_id not in self.disks:
            self.new_disk(node_id)
        self.start(node_id, is_controller=False)
        return self.processes[node_id]

    def kill(self, node_id: int, rng: random.Random | None = None) -> None:
        """kill -9 (all that was written stays), or with `rng` a loss of power (what was not synced may go)."""
        process = self.processes.pop(node_id)
        process.alive, process.executor.dead = False, True
        self.network.stop(node_id)
        self.disks[node_id] = process.fs.kill() if rng is None else process.fs.crash(rng)

    def stop(self, node_id: int) -> None:
        """An orderly stop."""
        process = self.processes[node_id]
        process.raft.shutdown()
        self.run(0.005)
        self.kill(node_id)

    def run(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for process in self.processes.values():
            assert not process.faults, process.faults

    def run_until(self, condition: Callable[[], object], limit_s: float = 30.0) -> float:
        """Let time pass until something is so; gives how long it took."""
        begun = self.clock.monotonic()
        while not condition():
            assert self.clock.monotonic() - begun < limit_s, "it did not come to pass"
            self.run(0.001)
        return self.clock.monotonic() - begun

    # What the tests ask

    @property
    def leader(self) -> Process | None:
        """The process that leads the newest epoch, and has notified its listeners."""
        leading = [p for p in self.processes.values() if p.raft.is_leader and not p.paused]
        leading = [p for p in leading if (p.node_id, p.raft.leader_epoch) in self.claimed]
        return max(leading, key=lambda p: p.raft.leader_epoch, default=None)

    def elect(self) -> Process:
        self.run_until(lambda: self.leader)
        assert self.leader is not None
        return self.leader

    def append(self, *names: str) -> None:
        """Append at the leader and see it committed there."""
        leader = self.elect()
        done: list[int] = []
        leader.raft.append([feature(name) for name in names], done.append)
        self.run_until(lambda: done)

    def try_append(self) -> None:
        """Append another number at the leader, and remember it if it is acknowledged."""
        leader = self.leader
        if leader is None or leader.paused:
            return
        self._numbers += 1
        name = f"n{self._numbers:06d}"
        try:
            leader.raft.append([feature(name)], lambda _: self.acknowledged.append(name))
        except ApiException:
            return

    def features(self, node_id: int) -> set[str]:
        return set(self.processes[node_id].loader.image.features)

    def settled(self) -> bool:
        """Everyone has committed all of the leader's log."""
        leader = self.leader
        return leader is not None and all(
            p.raft.high_watermark == leader.raft.log_end_offset for p in self.processes.values()
        )


def _without_directory(node_id: int) -> VoterNode:
    full = voter(node_id)
    return VoterNode(ReplicaKey(node_id), full.listeners, full.kraft_versions)
