"""A resident task: a Spark task that lives long and hosts the small cycles of many connectors.

It connects back to its worker, which starts runs in it, asks each for its next cycle, and hears what happened. Runs
are the same code that a worker without Spark uses in its own process. When the connection ends, the task ends.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Client
from typing import Final, TypeAlias, Union

from ottla.admin.settings import ClusterSettings
from ottla.connect.config.definitions import ConfigValues
from ottla.connect.config.overrides import ClientTuning
from ottla.connect.failures import Occupied
from ottla.connect.plugins import Plugins
from ottla.connect.run.chain import ChainSpec
from ottla.connect.run.context import LargeCycle, RunContext, StopSignal
from ottla.connect.run.runner import Run, passes
from ottla.connect.run.sealed import SealedConnection
from ottla.connect.run.sink import SinkRun
from ottla.connect.run.source import SourceRun
from ottla.connect.spi import ReadLimit, SourceConnector
from ottla.connect.stores import TopicOffsetStore
from ottla.pipeline.failures import SinkFenced

_logger = logging.getLogger(__name__)

Payload: TypeAlias = Union["Order", "Step", "Failed", int, str, None]
Message: TypeAlias = tuple[int, str, Payload]
"""The number of a run, a verb or the kind of an answer, and what belongs to it. Both ends are ours and know a key."""

PING: Final = "ping"
TASK: Final = "task"
_ENDED: Final = "end"


@dataclass(frozen=True, slots=True)
class Order:
    """A run that a worker wants: everything of it that can be pickled. Secrets go through a sealed connection."""

    connector_class: str
    name: str
    group_id: str
    config: dict[str, str] = field(repr=False)
    values: ConfigValues = field(repr=False)
    settings: ClusterSettings = field(repr=False)
    chain: ChainSpec = field(repr=False)
    limit: ReadLimit
    offsets: tuple[ClusterSettings, str, int] | None = field(repr=False)
    """Where a source's offsets are: the cluster, the topic and its partitions, which exist."""
    exactly_once: bool
    fence: int
    tuning: ClientTuning
    lineage: int
    poll_s: float
    topic_creation: bool
    inline_max_bytes: int

    @classmethod
    def of(cls, connector_class: str, context: RunContext) -> Order:
        """The order for a run that would have this context in the worker itself."""
        store = context.offsets
        assert store is None or isinstance(store, TopicOffsetStore)
        return cls(
            connector_class=connector_class,
            name=context.name,
            group_id=context.group_id,
            config=dict(context.config),
            values=context.values,
            settings=context.settings,
            chain=context.chain,
            limit=context.limit,
            offsets=None if store is None else (store.settings, str(store.topic), store.partitions),
            exactly_once=context.exactly_once,
            fence=context.fence,
            tuning=context.tuning,
            lineage=context.lineage,
            poll_s=context.poll_s,
            topic_creation=context.topic_creation,
            inline_max_bytes=context.inline_max_bytes,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did. `state` is "cycle", "idle" (the run was woken) or "large" (the worker makes a job of it)."""

    state: str
    records: int = 0
    bytes: int = 0
    took_s: float = 0.0
    skipped: int = 0
    lag: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of a run, in a form that any process can read."""

    kind: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """The error of a run."""
        kind = "fatal"
        if isinstance(error, SinkFenced):
            kind = "fenced"
        elif isinstance(error, Occupied):
            kind = "occupied"
        elif passes(error):
            kind = "passing"
        return cls(kind, str(error) or type(error).__name__, "".join(traceback.format_exception(error)))


class _Hosted:
    """One run with its thread. It does one thing at a time; only a wake-up comes in between."""

    def __init__(self, number: int, send: Callable[[Message], None]) -> None:
        self._number = number
        self._send = send
        self._orders: queue.SimpleQueue[tuple[str, Payload]] = queue.SimpleQueue()
        self._stopping = StopSignal()
        self._run: Run | None = None
        self._context: RunContext | None = None
        self._store: TopicOffsetStore | None = None
        threading.Thread(target=self._main, name=f"resident-{number}", daemon=True).start()

    def take(self, verb: str, given: Payload) -> None:
        """An order of the worker."""
        if verb in ("wake", "stop", _ENDED):
            self._stopping.set()
        if verb != "wake":
            self._orders.put((verb, given))

    def _main(self) -> None:
        while True:
            verb, given = self._orders.get()
            try:
                answer = self._do(verb, given)
            except LargeCycle:
                self._answer("reply", Step("large"))
            except Exception as error:  # noqa: BLE001 - a connector may raise anything
                self._answer("failed", Failed.of(error))
            else:
                self._answer("reply", answer)
            if verb in ("stop", _ENDED):
                return

    def _answer(self, kind: str, given: Payload) -> None:
        # A worker that is gone needs no answer: the main thread sees the end of the connection.
        with contextlib.suppress(OSError):
            self._send((self._number, kind, given))

    def _do(self, verb: str, given: Payload) -> Step | None:
        if verb == "start":
            self._stopping.clear()
            assert isinstance(given, Order)
            self._run = self._made(given)
            self._run.start()
            return None
        if verb == "step":
            return self._step()
        if self._run is not None:
            self._run.stop()
        if self._store is not None:
            self._store.close()
        return None

    def _step(self) -> Step:
        run, context = self._run, self._context
        assert run is not None and context is not None
        progress = context.progress
        records, size = progress.records, progress.bytes
        while not self._stopping.is_set():
            if run.cycle():
                return Step(
                    "cycle",
                    progress.records - records,
                    progress.bytes - size,
                    progress.last_cycle_ms / 1000,
                    progress.skipped,
                    progress.lag,
                )
            run.wait()
        self._stopping.clear()
        return Step("idle", lag=progress.lag)

    def _made(self, order: Order) -> Run:
        connector = Plugins(order.chain.plugin_path).connector(order.connector_class)(order.config)
        context = self._context = RunContext(
            name=order.name,
            group_id=order.group_id,
            config=order.config,
            values=order.values,
            settings=order.settings,
            chain=order.chain,
            limit=order.limit,
            exactly_once=order.exactly_once,
            fence=order.fence,
            tuning=order.tuning,
            lineage=order.lineage,
            poll_s=order.poll_s,
            topic_creation=order.topic_creation,
            fenced=lambda count: self._answer("fenced", count),
            uses_topic=lambda topic: self._answer("topic", topic),
            stopping=self._stopping,
            inline_max_bytes=order.inline_max_bytes,
            jobs_elsewhere=True,
        )
        if isinstance(connector, SourceConnector):
            assert order.offsets is not None
            settings, topic, partitions = order.offsets
            context.offsets = self._store = TopicOffsetStore(settings, topic, partitions=partitions)
            return SourceRun(context, connector)
        return SinkRun(context, connector)


class _Host:
    """All runs of one task."""

    def __init__(self, connection: SealedConnection[Message]) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._runs: dict[int, _Hosted] = {}

    def serve(self, attempt: int) -> None:
        """Until the worker ends it. If the connection breaks instead, the task fails, and Spark starts it again."""
        try:
            self._send((0, TASK, attempt))
            while True:
                number, verb, given = self._connection.recv()
                if verb == _ENDED:
                    break
                if verb == PING:
                    self._send((0, PING, None))
                    continue
                if verb == "start":
                    self._runs[number] = _Hosted(number, self._send)
                hosted = self._runs.get(number)
                if hosted is not None:
                    hosted.take(verb, given)
                if verb == "stop":
                    self._runs.pop(number, None)
        finally:
            for hosted in self._runs.values():
                hosted.take(_ENDED, None)

    def _send(self, message: Message) -> None:
        with self._sending:
            self._connection.send(message)


def task_function(address: tuple[str, int], key: bytes) -> Callable[[Iterable[int]], Iterator[int]]:
    """What Spark runs: a task that serves the worker at an address. The key proves each end to the other."""

    def serve(rows: Iterable[int]) -> Iterator[int]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        for _ in rows:
            with Client(address, authkey=key) as connection:
                _Host(SealedConnection(connection, key, worker=False)).serve(task.taskAttemptId())
        return iter(())

    return serve
