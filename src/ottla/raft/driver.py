"""The node's hands: runs the pure node on a real log, makes it durable off the loop, commits, tells listeners.

A quorum of one writes no NoOpRecords. Apache Kafka's active controller writes one each `metadata.max.idle.interval.ms`
so that other replicas see their lag and the high watermark move; with nobody to see it, it would only cost two
fsyncs and a wake-up a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.log.context import LogContext
from ottla.log.fs import Fs
from ottla.peers import Endpoint, Peers
from ottla.raft.batches import control_batch, data_batch
from ottla.raft.config import RaftConfig
from ottla.raft.control_state import ControlState
from ottla.raft.messages import LogAppended, LogFlushed
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.snapshots import snapshot_buffers
from ottla.raft.types import (
    MAX_BATCH_BYTES,
    CommittedBatch,
    OffsetAndEpoch,
    QuorumInfo,
    RaftListener,
    RecordSerde,
)
from ottla.raft.voters import VoterNode, VoterSet

OnCommit = Callable[[int], None]
Post = Callable[[Callable[[], None]], object]

_SHARED_BYTES: Final = 8 << 20
"""Up to this much of the log is held in memory, decoded, while a start hands it to the listeners."""


@dataclass(slots=True)
class _Pending:
    batch: CommittedBatch
    on_commit: OnCommit | None


class RaftDriver:
    """One replica of the metadata quorum. All methods are called on the event loop, callbacks come on it.

    `local` is this node as a voter, `voters` those of `controller.quorum.voters` (none for a dynamic quorum, whose
    voters stand in the log), `serde` turns records into bytes and back, `executor` runs fsyncs and snapshot writes,
    `post` brings a callback from any thread to the loop (`loop.call_soon_threadsafe`), `on_fault` is told when the
    log cannot be made durable any more: the node must stop then. `peers` are the ways to other nodes, `bootstrap` where
    to ask for the leader (`controller.quorum.bootstrap.servers`), `listener` the name of the controllers' listener;
    `can_become_voter` is true for a node with the controller role.
    """

    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        *,
        local: VoterNode,
        voters: VoterSet,
        config: RaftConfig,
        clock: Clock,
        executor: Executor,
        post: Post,
        serde: RecordSerde,
        on_fault: Callable[[BaseException], None],
        cluster_id: str = "",
        peers: Peers | None = None,
        bootstrap: Sequence[Endpoint] = (),
        listener: str = "CONTROLLER",
        can_become_voter: bool = True,
    ) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._local = local
        self._static_voters = voters
        self._config = config
        self._clock = clock
        self._executor = executor
        self._post = post
        self._serde = serde
        self._on_fault = on_fault
        self._cluster_id = cluster_id
        self._peers = peers
        self._bootstrap = tuple(bootstrap)
        self._listener = listener
        self._can_become_voter = can_become_voter
        self._on_leader_change: list[Callable[[int | None, int], object]] = []
        self._listeners: list[RaftListener] = []
        self._pending: deque[_Pending] = deque()
        self._high_watermark = 0
        self._loaded = False
        self._flushing = False
        self._processing = False
        self._snapshotting = False
        self._closed = False
        self._fault: BaseException | None = None
        self._log: MetadataLog
        self._node: RaftNode
        self._store: QuorumStateStore
        self._control: ControlState

    # Facts

    @property
    def leader_id(self) -> int | None:
        return self._node.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._node.epoch

    @property
    def is_leader(self) -> bool:
        return self._node.is_leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader's controller listens; None while there is no leader, or it is not known where."""
        leader_id = self._node.leader_id
        node = None if leader_id is None else self._node.voters.nodes.get(leader_id)
        if leader_id is None or node is None or not node.listeners:
            return None
        address = node.listeners.get(self._listener) or next(iter(node.listeners.values()))
        return Endpoint(leader_id, address.host, address.port)

    def on_leader_change(self, callback: Callable[[int | None, int], object]) -> None:
        """Call back with (leader id or None, epoch) whenever another leads, after the listeners heard it."""
        self._on_leader_change.append(callback)

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, and handed to the listeners now if not before."""
        return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.end.offset

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

    @property
    def kraft_version(self) -> int:
        """The finalized level of kraft.version: ApiVersions tells it among the features when it is above 0."""
        return self._control.kraft_version

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._log.latest_snapshot_id

    def describe_quorum(self) -> QuorumInfo:
        """What DescribeQuorum answers."""
        self._node.tick(self._clock.now_ms())
        return QuorumInfo(
            leader_id=-1 if self._node.leader_id is None else self._node.leader_id,
            leader_epoch=self._node.epoch,
            high_watermark=-1 if self._node.high_watermark is None else self._node.high_watermark,
            voters=self._node.voter_states(),
            observers=self._node.observer_states(),
            nodes=tuple(
                (node.key.id, tuple((name, e.host, e.port) for name, e in node.listeners.items()))
                for node in self._node.voters.nodes.values()
            ),
        )

    # Life

    def add_listener(self, listener: RaftListener) -> None:
        """To be told of everything committed, from the beginning; before `start`."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Load snapshot and log, and lead: all is committed and handed to the listeners when this returns.

        Blocks on the disk. Raises KafkaError for a directory that cannot be used.
        """
        now_ms = self._clock.now_ms()
        context = LogContext(
            self._fs, self._clock.now_ms, self._clock.random, remove_later=self._remove_later
        )
        self._log = MetadataLog(context, self._data_dir, self._config, self._serde)
        self._store = QuorumStateStore(self._fs, self._log.directory)
        election = self._store.read()
        self._log.cut_damage(None if election is None else election.epoch)
        self._control = self._load_control_state()
        self._check_voters()
        self._node = RaftNode(
            self._local,
            voters=self._control.voters,
            voters_offset=self._control.voters_offset,
            kraft_version=self._control.kraft_version,
            election=election,
            log_end=self._log.end,
            rng=self._clock.random,
            config=self._config.node,
        )
        self._node.start(now_ms)
        self._process()
        self._log.flush(self._log.end.offset)
        self._node.step(LogFlushed(self._log.end.offset))
        self._process()
        self._log.clean(now_ms)
        if self._pending:
            self._request_flush()

    def shutdown(self) -> None:
        """Make durable and commit what was appended, then close. Appends after this are refused."""
        if self._closed:
            return
        if self._fault is None:
            end = self._log.end.offset
            self._log.flush(end)
            self._node.step(LogFlushed(end))
            self._process()
        self._closed = True
        self._log.close()

    def _remove_later(self, paths: Sequence[str], _delay_ms: int) -> None:
        # No replica reads these files but this one: no need to wait, only to stay off the loop.
        for path in paths:
            self._executor.submit(self._fs.remove, path)

    def _load_control_state(self) -> ControlState:
        state = ControlState(self._static_voters)
        start = self._log.start_offset
        snapshot_id = self._log.latest_snapshot_id
        if snapshot_id is not None:
            snapshot = self._log.read_snapshot(snapshot_id)
            state.load_snapshot(snapshot_id.offset, snapshot.kraft_version, snapshot.voters)
            start = snapshot_id.offset
        for offset, message in self._log.control_messages(start):
            state.replay(offset, message)
        return state

    def _check_voters(self) -> None:
        voters = self._control.voters
        if voters.is_only_voter(self._local.key):
            return
        if not voters.nodes:
            reason = (
                "has no voters: set controller.quorum.voters, or format the directory with its first voters"
            )
        elif self._local.key.id not in voters.nodes:
            reason = (
                f"has the voters {sorted(voters.ids)}, and this node, {self._local.key.id}, is none of them"
            )
        elif len(voters.nodes) > 1:
            reason = f"has the voters {sorted(voters.ids)}; this release runs a quorum of one"
        else:
            reason = (
                f"knows voter {self._local.key.id} with another directory id: {self._data_dir} is not its own"
            )
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"the metadata quorum {reason}")

    # Appending

    def append(self, records: Sequence[Any], on_commit: OnCommit | None = None) -> int:
        """Append as one atomic batch; gives the last offset at once, and calls back with it once committed.

        Listeners have been told of the records when the callback comes. Raises KafkaError: NOT_LEADER_OR_FOLLOWER when
        this node does not lead (any more), RECORD_LIST_TOO_LARGE for more than fits into one batch.
        """
        if self._closed or self._fault is not None or not self._node.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the metadata quorum")
        if not records:
            raise ValueError("there is nothing to append")
        values = [self._serde.encode(record) for record in records]
        buf = data_batch(values, self._log.end.offset, self._node.epoch, self._clock.now_ms())
        if len(buf) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} metadata records take {len(buf)} bytes, more than the {MAX_BATCH_BYTES} of a batch",
            )
        last_offset = self._write(buf, records, on_commit)
        self._request_flush()
        return last_offset

    def _write(self, buf: bytes, records: Sequence[Any], on_commit: OnCommit | None, count: int = 0) -> int:
        base_offset = self._log.end.offset
        last_offset = base_offset + (count or len(records)) - 1
        epoch, now_ms = self._node.epoch, self._clock.now_ms()
        try:
            self._log.append(buf, epoch)
        except KafkaError as e:
            self._fail(e)
            raise
        batch = CommittedBatch(base_offset, last_offset, epoch, now_ms, len(buf), records)
        self._pending.append(_Pending(batch, on_commit))
        self._node.step(LogAppended(OffsetAndEpoch(last_offset + 1, epoch)))
        return last_offset

    def _request_flush(self) -> None:
        """One fsync at a time: what is appended while it runs shares the next one."""
        if self._flushing:
            return
        self._flushing = True
        end = self._log.end.offset
        future = self._executor.submit(self._log.flush, end)
        future.add_done_callback(lambda done: self._post(partial(self._flushed, end, done)))

    def _flushed(self, end: int, future: Future[None]) -> None:
        self._flushing = False
        if self._closed or self._fault is not None:
            return
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        self._node.tick(self._clock.now_ms())
        self._node.step(LogFlushed(end))
        try:
            self._process()
        except Exception as e:  # noqa: BLE001 - a listener that cannot follow the log: the node must stop
            self._fail(e)
            return
        if self._log.end.offset > end:
            self._request_flush()

    def _fail(self, error: BaseException) -> None:
        # After a failed fsync nobody knows what is on the disk: nothing may be acknowledged any more.
        self._fault = error
        self._pending.clear()
        self._on_fault(error)

    # What the node wants done

    def _process(self) -> None:
        if self._processing:
            return
        self._processing = True
        try:
            while ready := self._node.ready():
                if ready.election is not None:
                    self._store.write(ready.election, self._control.voters.ids, self._control.kraft_version)
                if ready.control:
                    self._append_control(ready.control)
                if ready.high_watermark is not None:
                    self._commit(ready.high_watermark)
                if ready.leader_change is not None:
                    for listener in self._listeners:
                        listener.handle_leader_change(*ready.leader_change)
                    for callback in self._on_leader_change:
                        callback(*ready.leader_change)
        finally:
            self._processing = False

    def _append_control(self, control: Sequence[Any]) -> None:
        base_offset = self._log.end.offset
        buf = control_batch(control, base_offset, self._node.epoch, self._clock.now_ms())
        self._write(buf, (), None, count=len(control))
        for index, message in enumerate(control):
            self._control.replay(base_offset + index, message)
        self._node.voters = self._control.voters
        self._node.voters_offset = self._control.voters_offset

    def _commit(self, high_watermark: int) -> None:
        committed: list[_Pending] = []
        while self._pending and self._pending[0].batch.next_offset <= high_watermark:
            committed.append(self._pending.popleft())
        self._high_watermark = high_watermark
        self._log.set_high_watermark(high_watermark)
        if self._loaded:
            batches = [p.batch for p in committed]
            for listener in self._listeners:
                listener.handle_commit(batches)
        else:
            self._loaded = True
            self._load(high_watermark)
        for pending in committed:
            if pending.on_commit is not None:
                # Each in a turn of its own: one that fails must not keep the others from being told.
                self._post(partial(pending.on_commit, pending.batch.last_offset))

    def _load(self, high_watermark: int) -> None:
        """Bring the listeners from nothing to the high watermark."""
        start = self._log.start_offset
        snapshot_id = self._log.latest_snapshot_id
        if snapshot_id is not None:
            start = snapshot_id.offset
            snapshot = self._log.read_snapshot(snapshot_id)
            for listener, batches in self._for_each(snapshot.batches, snapshot.size):
                listener.handle_load_snapshot(snapshot_id, batches)
        for listener, batches in self._for_each(
            lambda: self._committed(start, high_watermark), self._log.size
        ):
            listener.handle_commit(batches)

    def _for_each(
        self, read: Callable[[], Iterator[CommittedBatch]], size: int
    ) -> Iterator[tuple[RaftListener, Iterable[CommittedBatch]]]:
        """The batches for every listener: decoded once for all if they are few, else as each one reads them."""
        shared = list(read()) if size <= _SHARED_BYTES else None
        for listener in self._listeners:
            yield listener, read() if shared is None else shared

    def _committed(self, start: int, end: int) -> Iterator[CommittedBatch]:
        for batch, _ in self._log.read(start, end):
            yield batch

    # Snapshots

    @property
    def can_snapshot(self) -> bool:
        """No snapshot is being written."""
        return not (self._snapshotting or self._closed) and self._fault is None

    def snapshot(self, snapshot_id: OffsetAndEpoch, values: Iterable[bytes], last_timestamp: int) -> None:
        """Write a snapshot of everything below `snapshot_id.offset`, which is committed; one at a time.

        `values` are the encoded records. They are iterated in the executor's thread: let them be a generator over an
        immutable image. Old snapshots and the log before them are deleted by the retention afterwards.
        """
        latest = self._log.latest_snapshot_id
        if not self.can_snapshot or (latest is not None and latest.offset >= snapshot_id.offset):
            return
        if snapshot_id.offset > self._high_watermark:
            raise ValueError(
                f"a snapshot at {snapshot_id.offset} is past the high watermark {self._high_watermark}"
            )
        kraft_version, voters = self._control.at(snapshot_id.offset)
        buffers = snapshot_buffers(
            snapshot_id.epoch,
            values,
            kraft_version=kraft_version,
            voters=voters,
            last_timestamp=last_timestamp,
            now_ms=self._clock.now_ms(),
        )
        self._snapshotting = True
        future = self._executor.submit(self._log.write_snapshot, snapshot_id, buffers)
        future.add_done_callback(
            lambda done: self._post(partial(self._snapshot_written, snapshot_id, last_timestamp, done))
        )

    def _snapshot_written(
        self, snapshot_id: OffsetAndEpoch, last_timestamp: int, future: Future[int]
    ) -> None:
        self._snapshotting = False
        if self._closed or self._fault is not None:
            return
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        self._log.add_snapshot(snapshot_id, future.result(), last_timestamp)
        self._log.clean(self._clock.now_ms())
