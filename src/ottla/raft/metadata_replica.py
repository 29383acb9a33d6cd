"""A replica of the metadata log: connects the pure node with a real log, syncs it off the loop, notifies listeners.

It has no connections. Messages of other nodes come in through `step`, messages to them go out through `send`.
`changed` is called after each step so that waiting requests can be re-evaluated (`driver.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.clock import Clock
from ottla.counters import QuorumCounters
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.log.context import LogContext
from ottla.log.fs import Fs
from ottla.raft.batches import ControlMessages, control_batch, data_batch
from ottla.raft.config import RaftConfig
from ottla.raft.control_state import ControlState
from ottla.raft.messages import Input, LogAppended, LogFlushed, Outgoing, Ready, VotersChanged
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.snapshots import snapshot_buffers
from ottla.raft.types import (
    MAX_BATCH_BYTES,
    CommittedBatch,
    OffsetAndEpoch,
    RaftListener,
    RecordSerde,
)
from ottla.raft.voters import VoterNode, VoterSet
from ottla.records.batch import Buffer
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

OnCommit = Callable[[int], None]
Post = Callable[[Callable[[], None]], object]

_SHARED_BYTES: Final = 8 << 20
"""At start, a log up to this size is decoded once and kept in memory while the listeners read it."""


class _Pending(msgspec.Struct):
    batch: CommittedBatch
    on_commit: OnCommit | None
    appended_at: float


class MetadataReplica:
    """Log, node, control state and listeners of one replica. All methods are called on the event loop."""

    log: MetadataLog
    node: RaftNode
    control: ControlState

    def __init__(
        self,
        fs: Fs,
        data_dir: str,
        *,
        local: VoterNode,
        static_voters: VoterSet,
        always_durable: bool,
        config: RaftConfig,
        clock: Clock,
        executor: Executor,
        post: Post,
        serde: RecordSerde,
        on_fault: Callable[[BaseException], None],
        send: Callable[[Outgoing], None],
        changed: Callable[[], None],
    ) -> None:
        self.local = local
        self.clock = clock
        self.config = config
        self.listeners: list[RaftListener] = []
        self.on_leader_change: list[Callable[[BrokerId | None, int], object]] = []
        self.delivered_offset = 0
        """Everything below was delivered to the listeners."""
        self.counters = QuorumCounters()
        self._leaderless_since: float | None = clock.monotonic()
        self.closed = False
        self.fault: BaseException | None = None
        self._fs = fs
        self._data_dir = data_dir
        self._static_voters = static_voters
        self._always_durable = always_durable
        self._executor = executor
        self._post = post
        self._serde = serde
        self._on_fault = on_fault
        self._send = send
        self._changed = changed
        self._pending: deque[_Pending] = deque()
        self._durable_end = 0
        self._loaded = False
        self._starting = False
        self._flushing = False
        self._processing = False
        self._snapshotting = False
        self._store: QuorumStateStore

    # Lifecycle

    def now_ms(self) -> int:
        """The node's time, which never goes back."""
        return round(self.clock.monotonic() * 1000)

    def open(self, check: Callable[[VoterSet], None]) -> None:
        """Load the log, the snapshot and the election state. `check` may refuse the voters in force."""
        context = LogContext(self._fs, self.clock.now_ms, self.clock.random, remove_later=self._remove_later)
        self.log = MetadataLog(
            context, self._data_dir, self.config, self._serde, may_refill=not self._always_durable
        )
        self._store = QuorumStateStore(self._fs, self.log.directory)
        election = self._store.read()
        self.log.truncate_damage(None if election is None else election.epoch)
        self.control = self._load_control_state()
        check(self.control.voters)
        self.node = RaftNode(
            self.local,
            voters=self.control.voters,
            voters_offset=self.control.voters_offset,
            previous_voters=self.control.previous_voters,
            kraft_version=self.control.kraft_version,
            election=election,
            log_end=self.log.end,
            rng=self.clock.random,
            config=self.config.node,
        )

    def start(self) -> None:
        """Start. When this returns, a quorum of one has committed everything and notified its listeners."""
        self._starting = True
        self.node.start(self.now_ms())
        self._process()
        self._flush_now()
        self._process()
        self._starting = False
        self.log.clean(self.clock.now_ms())
        if self._pending:
            self._request_flush()

    def _flush_now(self) -> None:
        end = self.log.end.offset
        self.log.flush(end)
        self._durable_end = end
        self.node.step(LogFlushed(end))

    def close(self) -> None:
        """Sync what was appended (a quorum of one also commits it), then close."""
        if self.closed:
            return
        if self.fault is None:
            self._flush_now()
            self._process()
        self.closed = True
        self.log.close()

    def _remove_later(self, paths: Sequence[str], _delay_ms: int) -> None:
        # Only this replica reads these files, so they can go at once, but off the loop.
        for path in paths:
            self._executor.submit(self._fs.remove, path)

    def _load_control_state(self) -> ControlState:
        state = ControlState(self._static_voters)
        start = self.log.start_offset
        snapshot_id = self.log.latest_snapshot_id
        if snapshot_id is not None:
            snapshot = self.log.read_snapshot(snapshot_id)
            state.load_snapshot(snapshot_id.offset, snapshot.kraft_version, snapshot.voters)
            start = snapshot_id.offset
        for offset, message in self.log.control_messages(start):
            state.replay(offset, message)
        return state

    # Events

    @property
    def is_static(self) -> bool:
        """The voters are those of `controller.quorum.voters`."""
        return bool(self._static_voters.nodes) and self.control.voters_offset is None

    @property
    def running(self) -> bool:
        return not self.closed and self.fault is None

    def step(self, message: Input) -> None:
        """Pass a message to the node and carry out its output. A listener that fails stops the replica."""
        if not self.running:
            return
        self.node.tick(self.now_ms())
        self.node.step(message)
        self.process()

    def tick(self) -> None:
        if self.running:
            self.node.tick(self.now_ms())
            self.process()

    def process(self) -> None:
        try:
            self._process()
        except Exception as e:  # noqa: BLE001 - a listener cannot apply the log: the node must stop
            self.fail(e)

    def fail(self, error: BaseException) -> None:
        # After a failed fsync the content of the disk is unknown: nothing may be acknowledged any more.
        if self.fault is None:
            self.fault = error
            self._pending.clear()
            self._on_fault(error)

    # Appending

    def append(self, records: Sequence[WireMessage], on_commit: OnCommit | None = None) -> int:
        """See `RaftDriver.append`."""
        if not self.running or not self.node.is_leader:
            raise ApiException(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the metadata quorum"
            )
        if not records:
            raise ValueError("there is nothing to append")
        values = [self._serde.encode(record) for record in records]
        buf = data_batch(values, self.log.end.offset, self.node.epoch, self.clock.now_ms())
        if len(buf) > MAX_BATCH_BYTES:
            raise ApiException(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} metadata records take {len(buf)} bytes, more than the {MAX_BATCH_BYTES} of a batch",
            )
        last_offset = self._write(buf, records, on_commit)
        self._request_flush()
        if not self._processing:
            try:
                self._changed()
            except Exception as e:  # noqa: BLE001 - the records are in the log, and the caller must get their offset
                self.fail(e)
        return last_offset

    def append_voters(self, voters: VoterSet) -> int:
        """Write new voters into the log. They are in force at once. Returns the record's offset."""
        offset = self._append_control([voters.to_record()])
        self._request_flush()
        self.process()
        return offset

    def append_kraft_version(self, level: int, voters: VoterSet) -> int:
        """Write a new kraft.version and its voters into the log, as one batch. Returns the last record's offset."""
        version = messages.KRaftVersionRecord(version=0, kraft_version=level)
        offset = self._append_control([version, voters.to_record()])
        self._request_flush()
        self.process()
        return offset

    def _append_control(self, control: Sequence[WireMessage]) -> int:
        base_offset = self.log.end.offset
        buf = control_batch(control, base_offset, self.node.epoch, self.clock.now_ms())
        last_offset = self._write(buf, (), None, count=len(control))
        self._replay_control([(base_offset + i, message) for i, message in enumerate(control)])
        return last_offset

    def _write(
        self, buf: bytes, records: Sequence[WireMessage], on_commit: OnCommit | None, count: int = 0
    ) -> int:
        base_offset = self.log.end.offset
        last_offset = base_offset + (count or len(records)) - 1
        epoch, now_ms = self.node.epoch, self.clock.now_ms()
        try:
            self.log.append(buf, epoch)
        except ApiException as e:
            self.fail(e)
            raise
        batch = CommittedBatch(base_offset, last_offset, epoch, now_ms, len(buf), records)
        self._pending.append(_Pending(batch, on_commit, self.clock.monotonic()))
        self.counters.appended += count or len(records)
        self.node.step(LogAppended(OffsetAndEpoch(last_offset + 1, epoch)))
        return last_offset

    def _replay_control(self, control: ControlMessages) -> None:
        changed = False
        for offset, message in control:
            self.control.replay(offset, message)
            if isinstance(message, messages.VotersRecord | messages.KRaftVersionRecord):
                changed = True
        if changed:
            self._pass_on_voters()

    def _pass_on_voters(self) -> None:
        control = self.control
        self.node.step(
            VotersChanged(
                control.voters, control.voters_offset, control.kraft_version, control.previous_voters
            )
        )

    # Following

    @property
    def is_durable(self) -> bool:
        """The log is on disk as far as it must be. A fetch from its end claims this to the leader."""
        durable = self._durable_end >= self.log.end.offset or not self._must_be_durable
        return durable and not self._flushing

    def make_durable(self) -> None:
        """Sync what is not on disk yet. An observer need not do this until it becomes a voter."""
        if not self.is_durable:
            self._request_flush()

    @property
    def _must_be_durable(self) -> bool:
        return self._always_durable or self.node.is_voter

    def append_fetched(self, records: Buffer) -> None:
        """Append batches fetched from the leader. Raises ApiException when the bytes are not valid batches."""
        before = self.log.end.offset
        try:
            control = self.log.append_fetched(records, self.node.epoch)
        except ApiException as e:
            if e.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.fail(e)
            raise
        self.counters.fetched += self.log.end.offset - before
        self.node.step(LogAppended(self.log.end))
        self._replay_control(control)
        if self._must_be_durable:
            self._request_flush()

    def truncate(self, end: OffsetAndEpoch) -> None:
        """Truncate: the leader has reported that this log diverges from its own after `end`."""
        committed = self.node.high_watermark
        offset = self.log.truncate_to_end_of(end)
        if committed is not None and offset < committed:
            self.fail(
                ApiException(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the leader's log diverges at {offset}, but everything below {committed} was committed",
                )
            )
            return
        self._durable_end = min(self._durable_end, offset)
        self.control.truncate(offset)
        self.node.step(LogAppended(self.log.end))
        self._pass_on_voters()

    def take_snapshot(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """Start over from a snapshot that was downloaded from the leader."""
        snapshot = self.log.read_snapshot(snapshot_id)
        self.log.start_at(snapshot_id, size, snapshot.last_contained_log_timestamp)
        self._durable_end = snapshot_id.offset
        self.control.load_snapshot(snapshot_id.offset, snapshot.kraft_version, snapshot.voters)
        self.node.step(LogAppended(self.log.end))
        self._pass_on_voters()
        if self._loaded:
            self.node.high_watermark = self.delivered_offset = snapshot_id.offset
            self.log.set_high_watermark(snapshot_id.offset)
            self._deliver_snapshot(snapshot_id)

    # Durability

    def _request_flush(self) -> None:
        """Run one fsync at a time. Appends during an fsync share the next one."""
        if self._flushing:
            return
        self._flushing = True
        end = self.log.end.offset
        future = self._executor.submit(self.log.flush, end)
        future.add_done_callback(lambda done: self._post(partial(self._flushed, end, done)))

    def _flushed(self, end: int, future: Future[None]) -> None:
        self._flushing = False
        if not self.running:
            return
        error = future.exception()
        if error is not None:
            self.fail(error)
            return
        self._durable_end = end
        self.step(LogFlushed(end))
        if self.running and self.log.end.offset > end and self._must_be_durable:
            self._request_flush()

    # The node's output

    def _process(self) -> None:
        if self._processing:
            return
        self._processing = True
        try:
            while ready := self.node.ready():
                self._do(ready)
        finally:
            self._processing = False
        self._changed()

    def _do(self, ready: Ready) -> None:
        if ready.election is not None:
            self._store.write(ready.election, self.control.voters.ids, self.control.kraft_version)
        if ready.control:
            self._append_control(ready.control)
            if not self._starting:
                self._request_flush()
        if not self.node.is_leader:
            # These appends belong to a past leadership. If they are committed later, they are read from the log.
            self._pending.clear()
        for message in ready.outgoing:
            self._send(message)
        if ready.high_watermark is not None:
            self._commit(ready.high_watermark)
        if ready.leader_change is not None:
            self._note_leader(ready.leader_change[0])
            for listener in self.listeners:
                listener.handle_leader_change(*ready.leader_change)
            for callback in self.on_leader_change:
                callback(*ready.leader_change)

    def _note_leader(self, leader_id: BrokerId | None) -> None:
        now = self.clock.monotonic()
        if leader_id is None:
            self._leaderless_since = now
        elif self._leaderless_since is not None:
            self.counters.elections.add(now - self._leaderless_since)
            self._leaderless_since = None

    def _commit(self, high_watermark: int) -> None:
        committed: list[_Pending] = []
        now = self.clock.monotonic()
        while self._pending and self._pending[0].batch.next_offset <= high_watermark:
            committed.append(self._pending.popleft())
            self.counters.commits.add(now - committed[-1].appended_at)
        start, self.delivered_offset = self.delivered_offset, high_watermark
        self.log.set_high_watermark(high_watermark)
        if not self._loaded:
            self._loaded = True
            self._load(high_watermark)
        elif committed and committed[0].batch.base_offset == start:
            batches = [p.batch for p in committed]
            for listener in self.listeners:
                listener.handle_commit(batches)
        else:
            for listener, read in self._for_each(partial(self._committed, start, high_watermark), 0):
                listener.handle_commit(read)
        for pending in committed:
            if pending.on_commit is not None:
                # Each callback has its own turn of the loop, so that one failure does not block the others.
                self._post(partial(pending.on_commit, pending.batch.last_offset))

    def _load(self, high_watermark: int) -> None:
        """Deliver everything up to the high watermark to the listeners for the first time."""
        start = self.log.start_offset
        snapshot_id = self.log.latest_snapshot_id
        if snapshot_id is not None:
            start = snapshot_id.offset
            self._deliver_snapshot(snapshot_id)
        for listener, batches in self._for_each(
            partial(self._committed, start, high_watermark), self.log.size
        ):
            listener.handle_commit(batches)

    def _deliver_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        snapshot = self.log.read_snapshot(snapshot_id)
        for listener, batches in self._for_each(snapshot.batches, snapshot.size):
            listener.handle_load_snapshot(snapshot_id, batches)

    def _for_each(
        self, read: Callable[[], Iterator[CommittedBatch]], size: int
    ) -> Iterator[tuple[RaftListener, Iterable[CommittedBatch]]]:
        """The batches for each listener: decoded once for all when small, else decoded as each listener reads."""
        shared = list(read()) if size <= _SHARED_BYTES else None
        for listener in self.listeners:
            yield listener, read() if shared is None else shared

    def _committed(self, start: int, end: int) -> Iterator[CommittedBatch]:
        for batch, _ in self.log.read(start, end):
            yield batch

    # Snapshots

    @property
    def can_snapshot(self) -> bool:
        """No snapshot is being written."""
        return self.running and not self._snapshotting

    def snapshot(self, snapshot_id: OffsetAndEpoch, values: Iterable[bytes], last_timestamp: int) -> None:
        """See `RaftDriver.snapshot`."""
        latest = self.log.latest_snapshot_id
        if not self.can_snapshot or (latest is not None and latest.offset >= snapshot_id.offset):
            return
        if snapshot_id.offset > self.delivered_offset:
            raise ValueError(
                f"a snapshot at {snapshot_id.offset} is past the high watermark {self.delivered_offset}"
            )
        kraft_version, voters = self.control.at(snapshot_id.offset)
        buffers = snapshot_buffers(
            snapshot_id.epoch,
            values,
            kraft_version=kraft_version,
            voters=voters,
            last_timestamp=last_timestamp,
            now_ms=self.clock.now_ms(),
        )
        self._snapshotting = True
        future = self._executor.submit(self.log.write_snapshot, snapshot_id, buffers)
        future.add_done_callback(
            lambda done: self._post(partial(self._snapshot_written, snapshot_id, last_timestamp, done))
        )

    def _snapshot_written(
        self, snapshot_id: OffsetAndEpoch, last_timestamp: int, future: Future[int]
    ) -> None:
        self._snapshotting = False
        if not self.running:
            return
        error = future.exception()
        if error is not None:
            self.fail(error)
            return
        latest = self.log.latest_snapshot_id
        if latest is not None and latest.offset >= snapshot_id.offset:
            return  # a newer snapshot of the leader was loaded meanwhile
        self.log.add_snapshot(snapshot_id, future.result(), last_timestamp)
        self.log.clean(self.clock.now_ms())
