"""The resident tasks of a worker, and runs that take place in them.

The pool keeps one Spark job whose tasks never end by themselves. Spark starts a lost task again elsewhere; if the whole
job is lost, it is started again. A run in a lost task fails as one that passes: its runner starts it again in another
task, and the transactional ids fence what the lost one left.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Final

from ottla.connect.failures import ConnectError, Occupied, Retriable, TaskFailed
from ottla.connect.run.context import RunContext
from ottla.connect.run.resident_task import PING, TASK, Failed, Message, Order, Payload, Step, task_function
from ottla.connect.run.runner import Run
from ottla.connect.run.sealed import SealedConnection
from ottla.pipeline.failures import PipelineError, SinkFenced
from ottla.pipeline.jvm import java_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_TASK_WITHIN_S: Final = 120.0
_EXECUTORS_WITHIN_S: Final = 30.0
_EXECUTORS_SETTLE_S: Final = 2.0
_STOP_WITHIN_S: Final = 60.0
_PAUSE_S: Final = 1.0
_ASK_EVERY_S: Final = 3.0
_SILENT_S: Final = 20.0
"""A task that does not answer for so long is given up: its process is stopped, or its machine is gone."""
_LOST: Final = (
    "the resident Spark task was lost: the connector goes on in another, from what is in the topics"
)


@dataclass(slots=True, eq=False)
class Resident:
    """A task that is connected."""

    connection: SealedConnection[Message]
    runs: dict[int, queue.SimpleQueue[tuple[str, Payload]]] = field(default_factory=dict)
    sending: threading.Lock = field(default_factory=threading.Lock)
    heard_at: float = field(default_factory=time.monotonic)
    attempt: int | None = None
    """Spark's number of the task, which says it when it is connected."""
    lost: bool = False

    def send(self, message: Message) -> None:
        """Retriable if the task is gone."""
        try:
            with self.sending:
                self.connection.send(message)
        except OSError as error:
            raise Retriable(f"{_LOST} ({error})") from None


class ResidentPool:
    """Keeps the tasks running. `tasks` is how many; 0 stands for one per executor."""

    def __init__(self, session: Callable[[], SparkSession], tasks: int = 0) -> None:
        self._session = session
        self._tasks = tasks
        self._numbers = itertools.count(1)
        self._residents: list[Resident] = []
        self._changed = threading.Condition()
        self._started = False
        self._closed = False
        self._listener: Listener | None = None
        self._key = secrets.token_bytes(32)
        self._failure: str | None = None

    def __len__(self) -> int:
        with self._changed:
            return len(self._residents)

    def start(self) -> None:
        """Starts the job, if it is not there yet."""
        with self._changed:
            if self._started or self._closed:
                return
            self._started = True
        threading.Thread(target=self._keep, name="resident-job", daemon=True).start()

    def close(self) -> None:
        """Ends all tasks."""
        with self._changed:
            self._closed = True
            residents, self._residents = self._residents, []
            self._changed.notify_all()
        for one in residents:
            with contextlib.suppress(Retriable):
                one.send((0, "end", None))
            # The thread that receives closes it.
            one.connection.shut()
        if self._listener is not None:
            self._listener.close()

    def run(self, order: Order, stopping: threading.Event) -> RemoteRun:
        """A run in the task that has the fewest."""
        self.start()
        deadline = time.monotonic() + _TASK_WITHIN_S
        with self._changed:
            while not self._residents:
                why = f": {self._failure}" if self._failure else ""
                if self._closed or stopping.is_set():
                    raise Retriable(f"the connector was stopped before a resident Spark task was there{why}")
                if time.monotonic() > deadline:
                    raise Retriable(f"no resident Spark task within {_TASK_WITHIN_S:.0f} s{why}")
                self._changed.wait(0.2)
            chosen = min(self._residents, key=lambda one: len(one.runs))
            number = next(self._numbers)
            answers: queue.SimpleQueue[tuple[str, Payload]] = queue.SimpleQueue()
            chosen.runs[number] = answers
        return RemoteRun(chosen, number, order, answers)

    # -- the job

    def _keep(self) -> None:
        while not self._closed:
            try:
                self._run_job()
            except (ConnectError, PipelineError) as error:
                self._failure = str(error)
            except Exception as error:  # noqa: BLE001 - Py4J's errors hold the whole trace of the JVM
                self._failure = " ".join(str(error).split("\n\tat ")[0].split())[:300]
            if self._closed:
                return
            _logger.warning("the resident Spark tasks ended (%s) and are started again", self._failure)
            threading.Event().wait(_PAUSE_S)

    def _run_job(self) -> None:
        context = self._session().sparkContext
        if self._listener is None:
            host = (
                "127.0.0.1"
                if str(context.master).startswith("local")
                else context.getConf().get("spark.driver.host")
            )
            self._listen(host or "127.0.0.1")
            _warn_of_open_rpc(context)
        count = self._tasks or executors(context)
        if context.defaultParallelism <= count:
            raise ConnectError(
                f"{count} resident tasks leave no core of {context.master} for large cycles: give it more cores, "
                "like local[8], or set ottla.resident.tasks"
            )
        context.setJobGroup("ottla-resident", "Resident tasks of Connect", interruptOnCancel=True)
        assert self._listener is not None
        serve = task_function(self._listener.address, self._key)
        context.parallelize(range(count), count).mapPartitions(serve).count()

    def _listen(self, host: str) -> Listener:
        listener = self._listener = Listener((host, 0), authkey=self._key, backlog=64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        threading.Thread(target=self._watch, name="resident-watch", daemon=True).start()
        return listener

    def _accept(self, listener: Listener) -> None:
        while not self._closed:
            try:
                connection = listener.accept()
            except AuthenticationError:
                _logger.warning("a connection to the resident tasks' address did not know the key")
                continue
            except (OSError, EOFError):
                continue
            threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _watch(self) -> None:
        """Asks each task whether it is there. One that is silent is killed, so that Spark starts it again."""
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, _ASK_EVERY_S)
                residents = list(self._residents)
            for one in residents:
                if time.monotonic() - one.heard_at > _SILENT_S:
                    _logger.warning(
                        "a resident Spark task has been silent for %.0f s and is given up", _SILENT_S
                    )
                    one.connection.shut()
                    self._kill(one)
                elif one.sending.acquire(blocking=False):
                    one.sending.release()
                    with contextlib.suppress(Retriable):
                        one.send((0, PING, None))

    def _kill(self, resident: Resident) -> None:
        if resident.attempt is None:
            return
        try:
            jvm = java_context(self._session().sparkContext)
            jvm.killTaskAttempt(resident.attempt, True, "it does not answer its Connect worker")
        except Exception as error:  # noqa: BLE001 - a session that is lost takes its tasks with it
            _logger.warning("Spark did not kill the silent task: %s", str(error).splitlines()[0])

    def _receive(self, connection: Connection[bytes, bytes]) -> None:
        try:
            resident = Resident(SealedConnection(connection, self._key, worker=True))
        except (OSError, EOFError) as error:
            _logger.warning("a connection of a resident task was refused: %s", error)
            connection.close()
            return
        with self._changed:
            self._residents.append(resident)
            self._changed.notify_all()
        with contextlib.suppress(EOFError, OSError):
            while True:
                number, kind, given = resident.connection.recv()
                resident.heard_at = time.monotonic()
                if kind == TASK and isinstance(given, int):
                    resident.attempt = given
                answers = resident.runs.get(number)
                if answers is not None:
                    answers.put((kind, given))
        with self._changed:
            if resident in self._residents:
                self._residents.remove(resident)
        resident.lost = True
        resident.connection.close()
        for answers in list(resident.runs.values()):
            answers.put(("lost", None))


def _warn_of_open_rpc(context: SparkContext) -> None:
    """The key goes to the tasks through Spark's own connections, which are open unless its settings close them."""
    conf = context.getConf()
    closed = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    if str(context.master).startswith("local") or any(conf.get(key, "false") == "true" for key in closed):
        return
    _logger.warning(
        "Spark's own connections are not encrypted, and carry the key of the resident tasks: set "
        "ottla.spark.conf.spark.authenticate=true and ottla.spark.conf.spark.network.crypto.enabled=true"
    )


def executors(context: SparkContext) -> int:
    """How many executors there are, at least one. They may come a moment after the session."""
    if str(context.master).startswith("local"):
        return 1
    deadline = time.monotonic() + _EXECUTORS_WITHIN_S
    found, since = 0, time.monotonic()
    while True:
        # The driver is counted too.
        now = int(str(java_context(context).getExecutorMemoryStatus().size())) - 1
        if now != found:
            found, since = now, time.monotonic()
        # They register one after the other.
        settled = found > 0 and time.monotonic() - since > _EXECUTORS_SETTLE_S
        if settled or time.monotonic() > deadline:
            return max(1, found)
        threading.Event().wait(0.2)


class RemoteRun:
    """A run in a resident task. Used by one thread; `wake` may come from any."""

    def __init__(
        self, resident: Resident, number: int, order: Order, answers: queue.SimpleQueue[tuple[str, Payload]]
    ) -> None:
        self._resident = resident
        self._number = number
        self._order = order
        self._answers = answers
        self.on_note: Callable[[str, Payload], None] = lambda kind, given: None

    def start(self) -> None:
        """Starts the run over there."""
        self._call("start", self._order)

    def step(self) -> Step:
        """The next cycle, or what came instead."""
        found = self._call("step")
        assert isinstance(found, Step)
        return found

    def wake(self) -> None:
        """Ends a step that waits for something to do."""
        with contextlib.suppress(Retriable):
            self._resident.send((self._number, "wake", None))

    def stop(self) -> None:
        """Ends the run over there, and waits for it."""
        try:
            self._call("stop", timeout_s=_STOP_WITHIN_S)
        finally:
            self._resident.runs.pop(self._number, None)

    def _call(self, verb: str, given: Payload = None, timeout_s: float | None = None) -> Payload:
        if self._resident.lost:
            raise Retriable(_LOST)
        self._resident.send((self._number, verb, given))
        while True:
            try:
                kind, answer = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                raise TaskFailed(f"a resident Spark task did not answer within {timeout_s:.0f} s") from None
            if kind == "reply":
                return answer
            if kind == "lost":
                raise Retriable(_LOST)
            if isinstance(answer, Failed):
                _raise(answer)
            self.on_note(kind, answer)


class _RemoteTrace(Exception):
    """Carries the trace of the other process."""


def _raise(failed: Failed) -> None:
    cause = _RemoteTrace(f"in a resident Spark task:\n{failed.trace}")
    kinds: dict[str, type[Exception]] = {"fenced": SinkFenced, "occupied": Occupied, "passing": Retriable}
    raise kinds.get(failed.kind, TaskFailed)(failed.text) from cause


class ResidentRun:
    """A connector whose small cycles run in a resident task and whose large ones are Spark jobs of this worker."""

    def __init__(
        self, pool: ResidentPool, order: Order, context: RunContext, local: Callable[[], Run]
    ) -> None:
        self._pool = pool
        self._order = order
        self._context = context
        self._make_local = local
        self._remote: RemoteRun | None = None
        self._local: Run | None = None

    def start(self) -> None:
        """Starts in a resident task."""
        remote = self._remote = self._pool.run(self._order, self._context.stopping)
        remote.on_note = self._note
        self._context.stopping.on_set(remote.wake)
        remote.start()

    def _note(self, kind: str, given: Payload) -> None:
        if kind == "fenced" and isinstance(given, int):
            self._context.fenced(given)
        elif kind == "topic" and isinstance(given, str):
            self._context.uses_topic(given)

    def cycle(self) -> bool:
        """One cycle. A large one moves the run into this process until all large ones are done."""
        if self._local is not None:
            if self._local.cycle():
                return True
            local, self._local = self._local, None
            local.stop()
            self.start()
            return True
        assert self._remote is not None
        if self._context.stopping.is_set():
            return False
        found = self._remote.step()
        progress = self._context.progress
        if found.state == "cycle":
            progress.bytes += found.bytes
            progress.cycle(found.records, found.took_s)
            progress.resident += 1
            progress.skipped = found.skipped
            progress.lag = found.lag
        elif found.state == "large":
            remote, self._remote = self._remote, None
            remote.stop()
            local = self._make_local()
            local.start()
            self._local = local
        else:
            progress.lag = found.lag
        return found.state != "idle"

    def wait(self) -> None:
        """A resident step waits by itself."""

    def stop(self) -> None:
        """Ends the run, wherever it is."""
        self._context.stopping.on_set(None)
        if self._local is not None:
            self._local.stop()
        if self._remote is not None:
            self._remote.stop()
