"""Periodic work on all logs: retention, flushing by time, expiry of producers, checkpoints, delayed removals.

Decisions run on the event loop in slices of a few milliseconds; disk work runs in the executor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

from ottla.clock import Clock, Timer
from ottla.errors import ApiException
from ottla.log.fs import Fs

if TYPE_CHECKING:
    from ottla.log.manager import LogManager
    from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_SLICE_S = 0.003
_FIRST_DELAY_MS = 30_000
"""Retention and checkpoints wait this long after the start, as in Kafka."""
_FLUSH_CHECK_MS = 1_000
_IDLE_FILES_MS = 60_000
"""Files unused for this long are closed: there are more segments than descriptors."""


class Housekeeping:
    """The periodic tasks of a `LogManager`, between its `start` and `shutdown`."""

    def __init__(self, manager: LogManager, fs: Fs, clock: Clock, executor: Executor) -> None:
        self._manager = manager
        self._fs = fs
        self._clock = clock
        self._executor = executor
        self._timers: dict[str, Timer] = {}
        self._flushing: dict[PartitionLog, int] = {}
        """The offset up to which each log is being flushed, or will be next."""
        self._flushing_lock = threading.Lock()
        self._checkpointing: Future[None] | None = None
        self._running = False

    def start(self) -> None:
        self._running = True
        config = self._manager.config
        retention_ms = config.int("log.retention.check.interval.ms")
        self._every("retention", retention_ms, self._retention, first_ms=min(retention_ms, _FIRST_DELAY_MS))
        self._every("producers", config.int("producer.id.expiration.check.interval.ms"), self._expire)
        checkpoint_ms = min(
            config.int("log.flush.offset.checkpoint.interval.ms"),
            config.int("log.flush.start.offset.checkpoint.interval.ms"),
            config.int("replica.high.watermark.checkpoint.interval.ms"),
        )
        self._every("checkpoints", checkpoint_ms, self.checkpoint)
        self._every("idle files", _IDLE_FILES_MS, self._close_idle_files)
        flush_ms = min(config.int("log.flush.scheduler.interval.ms"), _FLUSH_CHECK_MS)
        self._every("flush", flush_ms, self._flush_due)

    def stop(self) -> None:
        """Start no more work. Work in the executor runs to its end."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(
        self, name: str, period_ms: int, task: Callable[[], object], *, first_ms: int | None = None
    ) -> None:
        def run() -> None:
            if self._running:
                self._timers[name] = self._clock.call_later(period_ms / 1000, run)
                task()

        delay_ms = period_ms if first_ms is None else first_ms
        self._timers[name] = self._clock.call_later(delay_ms / 1000, run)

    # -- slices -------------------------------------------------------------------------------------------

    def _sliced(self, name: str, work: Callable[[PartitionLog], object]) -> None:
        """Run `work` for every log, a few milliseconds at a time."""
        self._slice(name, iter(list(self._manager.logs.values())), work)

    def _slice(self, name: str, logs: Iterator[PartitionLog], work: Callable[[PartitionLog], object]) -> None:
        if not self._running:
            return
        deadline = self._clock.monotonic() + _SLICE_S
        for log in logs:
            if log.failed is None:
                try:
                    work(log)
                except ApiException as e:
                    _logger.error("%s of %s: %s", name, log.topic_partition, e)
            if self._clock.monotonic() >= deadline:
                self._timers[name + " slice"] = self._clock.call_later(0, self._slice, name, logs, work)
                return

    def _retention(self) -> None:
        now_ms = self._clock.now_ms()
        self._sliced("retention", lambda log: log.delete_old_segments(now_ms))

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        self._sliced("expiry of producers", lambda log: log.producers.expire(now_ms))

    def _close_idle_files(self) -> None:
        self._sliced("closing files", lambda log: log.close_idle_files())

    def _flush_due(self) -> None:
        now_ms = self._clock.now_ms()
        for log in list(self._manager.logs.values()):
            if log.recovery_point < log.log_end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flush(log, log.log_end_offset)

    # -- in the executor ----------------------------------------------------------------------------------

    def flush(self, log: PartitionLog, up_to: int) -> None:
        """Flush a log soon, off the event loop. Requests that come during a flush are combined into the next one."""
        if log.failed is not None:
            return
        with self._flushing_lock:
            under_way = log in self._flushing
            self._flushing[log] = max(up_to, self._flushing.get(log, 0))
        if not under_way:
            self._executor.submit(self._flush_until_done, log)

    def _flush_until_done(self, log: PartitionLog) -> None:
        while True:
            wanted = self._flushing[log]
            try:
                log.flush(min(wanted, log.log_end_offset))
            except ApiException as e:
                _logger.warning("flush of %s: %s", log.topic_partition, e)
            with self._flushing_lock:
                if self._flushing[log] == wanted or log.failed is not None:
                    del self._flushing[log]
                    return

    def checkpoint(self) -> None:
        """Write the checkpoints of all directories, off the event loop; skipped while one is being written."""
        if self._checkpointing is not None and not self._checkpointing.done():
            return
        offsets = self._manager.checkpoint_offsets()
        self._checkpointing = self._executor.submit(self._manager.write_checkpoints, offsets)

    def wait_for_checkpoint(self) -> None:
        if self._checkpointing is not None:
            self._checkpointing.result()

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files or directories after a delay. After a shutdown the next start finds them by their suffix."""
        if self._running:
            self._clock.call_later(delay_ms / 1000, self._remove, paths)

    def _remove(self, paths: Sequence[str]) -> None:
        if self._running:
            self._executor.submit(self._remove_now, paths)

    def _remove_now(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                if path.endswith("-delete"):
                    self._fs.rmtree(path)
                else:
                    self._fs.remove(path)
            except OSError as e:
                _logger.warning("could not remove %s: %s", path, e)
