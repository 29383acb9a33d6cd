"""The life of one connector on one worker, in a thread of its own.

STARTING ─▶ RUNNING ◀─▶ PAUSED
    │          │
    ├──────────┴─▶ RESTARTING (a failure that passes) ─▶ STARTING, after a pause of 1 to 60 s
    │                    ▲ also when another worker fenced the run: this one stops at the next assignment, or goes on
    └─▶ FAILED (one that does not pass) ─▶ STARTING, when an operator restarts it
"""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.connect.config.secrets import Redactor
from ottla.connect.failures import Occupied, Retriable
from ottla.connect.run.context import StopSignal
from ottla.connect.run.progress import Progress
from ottla.connect.state import PAUSED
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.failures import SinkFenced

_logger = logging.getLogger(__name__)

_PASSING_CODES: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class Run(Protocol):
    """A source's or a sink's run."""

    def start(self) -> None:
        """Connects, and fences older runs."""

    def cycle(self) -> bool:
        """One cycle; False if there was nothing to do."""

    def wait(self) -> None:
        """Waits until there may be something to do."""

    def stop(self) -> None:
        """Closes everything."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can start, and what must not be shown of it."""

    run: Run
    redact: Redactor
    progress: Progress


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between attempts after failures that pass."""

    first_s: float = 1.0
    longest_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """The pause after that many failures in a row."""
        grown = min(self.first_s * 2 ** min(failures - 1, 30), self.longest_s)
        return float(grown * random.uniform(0.8, 1.2))


Report = Callable[[str, str, str | None], None]
"""Reports a state: ("connector" or "tasks", state, trace)."""


def passes(error: BaseException) -> bool:
    """Whether a failure is likely to pass by itself."""
    if isinstance(error, Retriable):
        return True
    if isinstance(error, ApiException):
        return error.code in _PASSING_CODES
    return isinstance(error, ConnectionError | TimeoutError)


class ConnectorRunner:
    """Runs a connector until it is stopped."""

    def __init__(
        self,
        name: str,
        prepare: Callable[[StopSignal], Prepared],
        report: Report,
        target: str,
        backoff: Backoff | None = None,
        *,
        contested: bool = False,
    ) -> None:
        self.name = name
        self.progress = Progress()
        self._prepare = prepare
        self._report = report
        self._backoff = backoff or Backoff()
        self._target = target
        self._contested = contested
        """Whether other workers may take the connector over and give it back: then a fence is not the end."""
        self._ended = False
        self._again = False
        self._failures = 0
        self._changed = threading.Condition()
        self._stopping = StopSignal()
        self._thread = threading.Thread(target=self._main, name=f"connector-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def set_target(self, target: str) -> None:
        """STARTED or PAUSED."""
        with self._changed:
            self._target = target
            self._stopping.set()
            self._changed.notify_all()

    def restart(self) -> None:
        """Ends the current run, failed or not, and begins another."""
        with self._changed:
            self._again = True
            self._stopping.set()
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Ends the run; False if it does not end in time. Its transactions are then fenced by the next run."""
        with self._changed:
            self._ended = True
            self._stopping.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        while not self._ended:
            with self._changed:
                self._again = False
                self._stopping.clear()
                paused = self._target == PAUSED
            if paused:
                self._report("connector", "PAUSED", None)
                self._report("tasks", "PAUSED", None)
                self._wait_for_change(lambda: self._target != PAUSED)
                continue
            self._attempt()

    def _attempt(self) -> None:
        redact = Redactor()
        prepared: Prepared | None = None
        started = False
        try:
            prepared = self._prepare(self._stopping)
            redact, self.progress = prepared.redact, prepared.progress
            self._report("connector", "RUNNING", None)
            started = True
            prepared.run.start()
            self._report("tasks", "RUNNING", None)
            self._loop(prepared.run)
        except Exception as error:  # noqa: BLE001 - a connector may raise anything
            self._failed(error, redact, started=started)
        finally:
            if prepared is not None:
                _stop_quietly(prepared.run, self.name)

    def _loop(self, run: Run) -> None:
        while True:
            while not self._stopping.is_set():
                if run.cycle():
                    self._failures = 0
                else:
                    run.wait()
            with self._changed:
                if self._ended or self._again:
                    return
                self._stopping.clear()
                if self._target != PAUSED:
                    continue
            self._report("connector", "PAUSED", None)
            self._report("tasks", "PAUSED", None)
            self._wait_for_change(lambda: self._target != PAUSED)
            if self._ended or self._again:
                return
            self._stopping.clear()
            self._report("connector", "RUNNING", None)
            self._report("tasks", "RUNNING", None)

    def _wait_for_change(self, done: Callable[[], bool], timeout_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: done() or self._ended or self._again, timeout_s)

    def _failed(self, error: Exception, redact: Redactor, *, started: bool) -> None:
        sentence = redact(str(error)) or type(error).__name__
        trace = redact(f"{sentence}\n\n{''.join(traceback.format_exception(error))}")
        self.progress.last_error = sentence
        what = "tasks" if started else "connector"
        if passes(error) or (self._contested and isinstance(error, SinkFenced)):
            self._failures += 1
            # A run that ended badly elsewhere is in the way for a moment: longer pauses would only lose time.
            moment = isinstance(error, Occupied | SinkFenced)
            pause_s = self._backoff.pause_s(1 if moment else self._failures)
            self.progress.next_retry_at_ms = time.time_ns() // 1_000_000 + int(pause_s * 1000)
            _logger.warning("connector %s tries again in %.1f s: %s", self.name, pause_s, sentence)
            self._report(what, "RESTARTING", trace)
            self._wait_for_change(lambda: False, pause_s)
            return
        _logger.error("connector %s failed: %s", self.name, sentence)
        self._report(what, "FAILED", trace)
        self._wait_for_change(lambda: False)


def _stop_quietly(run: Run, name: str) -> None:
    try:
        run.stop()
    except Exception as error:  # noqa: BLE001 - a connector may raise anything
        _logger.warning("connector %s did not close cleanly: %s", name, error)
