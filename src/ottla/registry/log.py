"""Keeps the state up to date with `_schemas`, and writes to it, one batch at a time.

Registrations that wait while a batch is on its way share the next one. A write is folded into the state at its offset,
like every other record, before it is answered. While the fate of a batch is unknown no other begins. A leader that was
paused while another took over is refused by the brokers, reads what the other wrote, and decides again: no id is given
twice.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from ottla.admin.cluster import Cluster
from ottla.admin.retries import Backoff
from ottla.errors import ApiException, ErrorCode
from ottla.records.record import Record
from ottla.registry.errors import store_failed, timed_out
from ottla.registry.fold import Fold
from ottla.registry.groups import Change, ChangeQueue, Decide, decide
from ottla.registry.records import NOOP_KEY, Pair
from ottla.registry.topic import Fenced, SchemasPartition, WriteAborted, ensure_topic

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_FETCH_WAIT_MS: Final = 1_000
_WRITE_WAIT_S: Final = 15.0
"""How long a client waits for its write; the write itself goes on until its fate is known."""
_REACH_S: Final = 5.0
_DECISIONS: Final = 5
"""How often a write is decided again because another registry has taken the topic over."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class SchemasLog:
    """The state, the thread that reads into it, and the writer."""

    def __init__(
        self,
        new_cluster: Callable[[], Cluster],
        topic: str,
        replication_factor: int,
        state: Fold,
        fence_id: str,
    ) -> None:
        self.state = state
        self._new_cluster = new_cluster
        self._topic = topic
        self._fence_id = fence_id
        self._holds_fence = False
        """Whether nobody else has written since the state was decided on, as far as this registry knows."""
        self._factor = replication_factor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._reader: threading.Thread | None = None
        self._writer = ThreadPoolExecutor(1, "registry-writer")
        self._partition: SchemasPartition | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._changes = ChangeQueue()
        self._writing: asyncio.Future[None] | None = None
        self.ready = asyncio.Event()
        self.failure: str | None = None

    async def start(self) -> None:
        """Create or check the topic, then begin to read. Raises ApiException where the topic cannot be used."""
        self._loop = asyncio.get_running_loop()
        cluster = self._new_cluster()
        await self._loop.run_in_executor(self._writer, ensure_topic, cluster, self._topic, self._factor)
        self._partition = SchemasPartition(cluster, self._topic, self._fence_id)
        self._reader = threading.Thread(target=self._read, name="registry-reader", daemon=True)
        self._reader.start()

    async def stop(self) -> None:
        self._stopped.set()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join, _FETCH_WAIT_MS / 1000 + 5)
        self._writer.shutdown(wait=False, cancel_futures=True)

    # -- reading

    def _read(self) -> None:
        partition = SchemasPartition(self._new_cluster(), self._topic)
        offset, backoff = -1, Backoff(0.1, 2.0)
        loop = self._loop
        assert loop is not None
        while not self._stopped.is_set():
            try:
                if offset < 0:
                    offset = partition.first_offset()
                records, offset, end = partition.fetch(offset, _FETCH_WAIT_MS)
                backoff = Backoff(0.1, 2.0)
                loop.call_soon_threadsafe(self._take, records, offset, end)
            except ApiException as error:
                partition.cluster.forget_locations()
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    offset = -1
                loop.call_soon_threadsafe(self._failed, str(error))
                self._stopped.wait(backoff.next_s())
            except RuntimeError:
                return
        partition.cluster.close()

    def _failed(self, reason: str) -> None:
        if self.failure != reason:
            _logger.warning("Reading %s fails, and is tried again: %s", self._topic, reason)
        self.failure = reason

    def _take(self, records: list[Record], following: int, end: int) -> None:
        self.failure = None
        for one in records:
            self.state.apply(one.offset, one.key, one.value)
        self.state.next_offset = max(self.state.next_offset, following)
        if self.state.next_offset >= end:
            self.ready.set()
        self._wake()

    def _wake(self) -> None:
        reached = self.state.next_offset
        due = [one for one in self._waiting if one[0] < reached]
        self._waiting = [one for one in self._waiting if one[0] >= reached]
        for _, future in due:
            if not future.done():
                future.set_result(None)

    async def _until(self, offset: int) -> None:
        if self.state.next_offset <= offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, future))
            await future

    async def reach(self, next_offset: int) -> None:
        """Wait until the state is that far, but no longer than a reader needs that is only behind."""
        try:
            await asyncio.wait_for(self._until(next_offset - 1), _REACH_S)
        except TimeoutError:
            self._waiting = [one for one in self._waiting if not one[1].done()]

    # -- writing

    async def change(self, decide: Decide, may_write: Callable[[], bool], subject: str | None = None) -> None:
        """Decide on records by the state as it is, and write them. No other record comes in between.

        A registration names its subject: it may share a batch with those of other subjects. Returns when the state has
        the records. A client that has waited too long gets an error while the write goes on.
        """
        change = Change(decide, may_write, subject)
        self._changes.append(change)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_changes())
        done, _ = await asyncio.wait({change.done}, timeout=_WRITE_WAIT_S)
        if not done:
            change.done.add_done_callback(_forget)
            raise timed_out(f"the brokers have not acknowledged the record within {_WRITE_WAIT_S:g} s")
        change.done.result()

    async def take_over(self, may_write: Callable[[], bool]) -> None:
        """Fence all leaders before this one, and read what they wrote."""
        self._holds_fence = False
        await self.change(lambda _: (), may_write)

    async def _write_changes(self) -> None:
        """Write group after group until no change waits."""
        group: list[Change] = []
        try:
            while self._changes:
                group = self._changes.next_group()
                await self._write_group(group)
        finally:
            self._writing = None
            # There are some only where the registry stops.
            self._changes.cancel()
            for one in group:
                one.done.cancel()

    async def _write_group(self, group: list[Change]) -> None:
        try:
            self._changes.put_back(await self._commit(group))
        except (ApiException, WriteAborted) as error:
            if isinstance(error, ApiException) and error.code in _TOO_LARGE and len(group) > 1:
                # Each alone may be small enough.
                for one in group:
                    await self._write_group([one])
                return
            for one in group:
                one.fail(store_failed(error))
        except Exception as error:  # noqa: BLE001 - the clients that wait raise it
            for one in group:
                one.fail(error)

    async def _commit(self, group: list[Change]) -> list[Change]:
        """Decide on a group and write it; the changes that did not fit into the batch."""
        may_write = group[0].may_write
        for _ in range(_DECISIONS):
            try:
                if not self._holds_fence:
                    await self._fence(may_write)
                batch = decide(group)
                if batch.pairs:
                    await self._write(self._in_every_spelling(batch.pairs), may_write)
                for one in batch.members:
                    one.finish()
                return batch.left
            except Fenced as error:
                _logger.warning("Another registry has written to %s: %s", self._topic, error)
                group = [one for one in group if not one.done.done()]
        raise store_failed(f"other registries take {self._topic} over again and again; try again")

    def _in_every_spelling(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The records, with a tombstone for each spelling of a key that ends."""
        ending = [key for key, value in pairs if value is None]
        return [*((other, None) for key in ending for other in self.state.other_spellings(key)), *pairs]

    async def _fence(self, may_write: Callable[[], bool]) -> None:
        assert self._partition is not None
        await self._blocking(self._partition.fence, may_write)
        await self._write([(NOOP_KEY, None)], may_write)
        self._holds_fence = True

    async def _write(self, pairs: Sequence[Pair], may_write: Callable[[], bool]) -> None:
        assert self._partition is not None
        base = await self._blocking(partial(self._partition.produce, pairs), may_write)
        # Without a record of another writer in between, the state takes its own records at once.
        if self.state.next_offset == base:
            for number, (key, value) in enumerate(pairs):
                self.state.apply(base + number, key, value)
            self._wake()
        await self._until(base + len(pairs) - 1)

    async def _blocking(
        self, function: Callable[[Callable[[], bool]], T], may_write: Callable[[], bool]
    ) -> T:
        """The result of a function on the writer's thread. After a failure the topic has to be fenced again."""

        def may_continue() -> bool:
            return may_write() and not self._stopped.is_set()

        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, function, may_continue)
        except (Fenced, ApiException, WriteAborted):
            self._holds_fence = False
            raise


def _forget(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        _logger.warning("A write that its client no longer waits for failed: %s", done.exception())
