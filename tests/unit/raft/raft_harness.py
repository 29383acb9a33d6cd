"""A metadata quorum of one on an in-memory disk and a virtual clock: what happens is what the test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.log.fs import Fs
from ottla.metadata.publisher import MetadataLoader, SnapshotGenerator
from ottla.metadata.records import MetadataSerde
from ottla.raft.config import RaftConfig
from ottla.raft.driver import RaftDriver
from ottla.raft.types import CommittedBatch, OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.testing.memfs import MemFs
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages as m

DATA_DIR = "/data"
LOG_DIR = DATA_DIR + "/__cluster_metadata-0"
DIRECTORY_ID = b"directory-id-16b"
LOCAL = VoterNode(ReplicaKey(1, DIRECTORY_ID), {"CONTROLLER": VoterEndpoint("localhost", 9093)})
STATIC = VoterSet.of([VoterNode(ReplicaKey(1), LOCAL.listeners)])
DYNAMIC = VoterSet()
"""No voters in the configuration: they stand in the log."""


class HeldExecutor(Executor):
    """Runs nothing until `run`, which runs all waiting work as a thread would."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for future, job in jobs:
            try:
                result = job()
            except Exception as e:  # noqa: BLE001 - the future carries it, as a thread pool's does
                future.set_exception(e)
            else:
                future.set_result(result)


class Recorder:
    """A listener that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.records: list[Any] = []

    def handle_commit(self, batches: Iterable[CommittedBatch]) -> None:
        for batch in batches:
            self.events.append(("commit", batch.base_offset, batch.last_offset, batch.epoch))
            self.records += batch.records

    def handle_load_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        self.records = [r for batch in batches for r in batch.records]
        self.events.append(("snapshot", *snapshot_id))

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self.events.append(("leader", leader_id, epoch))


class Quorum:
    """A driver with its surroundings. `settle` lets everything that was begun come to its end."""

    def __init__(
        self,
        fs: Fs | None = None,
        voters: VoterSet = STATIC,
        *,
        data_dir: str = DATA_DIR,
        local: VoterNode = LOCAL,
        settings: dict[str, str] | None = None,
        snapshot_bytes: int = 1 << 40,
        snapshot_interval_ms: int = 0,
        clock: VirtualClock | None = None,
    ) -> None:
        if fs is None:
            fs = MemFs()
            fs.mkdir(DATA_DIR)
            fs.fsync_dir("/")
        self.fs = fs
        self.clock = clock or VirtualClock()
        self.executor = HeldExecutor()
        self.faults: list[BaseException] = []
        self.listener = Recorder()
        self.raft = RaftDriver(
            fs,
            data_dir,
            local=local,
            voters=voters,
            config=RaftConfig.of(BrokerConfig.single_node(settings or {})),
            clock=self.clock,
            executor=self.executor,
            post=lambda callback: self.clock.call_later(0, callback),
            serde=MetadataSerde(),
            on_fault=self.faults.append,
        )
        self.loader = MetadataLoader(
            SnapshotGenerator(
                self.raft, self.clock, max_bytes=snapshot_bytes, max_interval_ms=snapshot_interval_ms
            )
        )
        self.raft.add_listener(self.listener)
        self.raft.add_listener(self.loader)

    def start(self) -> Quorum:
        self.raft.start()
        return self

    def settle(self) -> None:
        while self.executor.jobs:
            self.executor.run()
            self.clock.advance(0)

    def append(self, *records: Any) -> int:
        """Append and see it committed."""
        acknowledged: list[int] = []
        offset = self.raft.append(list(records), acknowledged.append)
        self.settle()
        assert acknowledged == [offset]
        return offset


def feature(name: str, level: int = 1) -> Any:
    return m.FeatureLevelRecord(name=name, feature_level=level)


def crashed(fs: MemFs, seed: int) -> MemFs:
    return fs.crash(random.Random(seed))
