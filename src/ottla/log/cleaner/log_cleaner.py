"""The log cleaner: finds dirty compacted logs, cleans them in its own threads, and swaps the result in.

The event loop only decides and swaps; threads read, filter and write. A log that changed meanwhile (truncation,
deletion, retention) keeps its segments and is tried again later. A log that cannot be cleaned is skipped until the
broker restarts; the broker logs the reason. What cleans is loaded, in a thread, for the first compacted log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ottla.clock import Clock, Timer
from ottla.errors import ApiException
from ottla.log.checkpoints import read_offsets, write_offsets
from ottla.log.cleaner.throttler import CleaningAbortedError, Throttler
from ottla.log.files import CLEANER_OFFSET_FILE
from ottla.log.fs import Fs
from ottla.log.types import TopicPartition

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.log.cleaner.batch_filter import LastRecord
    from ottla.log.cleaner.compaction import CleanedGroup, Plan
    from ottla.log.cleaner.selection import LogToClean, Selection
    from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Offload(Protocol):
    """Runs work in a thread, then calls `done` with its future on the event loop."""

    def __call__(self, work: Callable[[], _T], done: Callable[[Future[_T]], None]) -> None: ...


class CleanerConfig(msgspec.Struct, frozen=True):
    """The broker's `log.cleaner.*` keys."""

    enable: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    max_bytes_per_second: float = float("inf")

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerConfig:
        return cls(
            enable=config.bool("log.cleaner.enable"),
            threads=config.int("log.cleaner.threads"),
            backoff_ms=config.int("log.cleaner.backoff.ms"),
            dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
            load_factor=config.float("log.cleaner.io.buffer.load.factor"),
            max_bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
        )


MakeThreads = Callable[[int], Executor]


def make_threads(count: int) -> Executor:
    """Create the cleaner's own threads: requests must not wait for a long cleaning."""
    return ThreadPoolExecutor(count, thread_name_prefix="log-cleaner")


class _Run(msgspec.Struct):
    """A running cleaning."""

    target: LogToClean
    throttler: Throttler
    plan: Plan | None = None
    next_group: int = 0


class LogCleaner:
    """Cleans the compacted logs in `logs`, a mapping that the manager updates."""

    def __init__(
        self,
        fs: Fs,
        logs: Mapping[TopicPartition, PartitionLog],
        log_dirs: Iterable[str],
        config: CleanerConfig,
        clock: Clock,
        *,
        offload: Offload | None = None,
        make_threads: MakeThreads = make_threads,
    ) -> None:
        self._fs = fs
        self._make_threads = make_threads
        self._logs = logs
        self._config = config
        self._clock = clock
        self._offload = offload
        self._executor: Executor | None = None
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {
            path: read_offsets(fs, _checkpoint_path(path)) for path in log_dirs
        }
        self._runs: dict[TopicPartition, _Run] = {}
        self._selecting = False
        self._writing: set[str] = set()
        self._unwritten: set[str] = set()
        self._timer: Timer | None = None
        self._stopped = False
        self.uncleanable: set[TopicPartition] = set()

    # -- lifecycle -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for dirty logs now and then every `log.cleaner.backoff.ms`. Runs on the event loop."""
        if not self._config.enable or not self._config.threads:
            return
        if self._offload is None:
            self._executor = self._make_threads(self._config.threads)
            self._offload = _to_threads(asyncio.get_running_loop(), self._executor)
        self.look_for_work()

    def stop(self) -> None:
        """Abort all cleanings and wait for the threads, which stop within milliseconds."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for run in self._runs.values():
            run.throttler.abort()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def update_config(self, config: CleanerConfig) -> None:
        """Apply new settings from the next cleaning on; `enable` and `threads` from the next start."""
        self._config = config

    def abort(self, tp: TopicPartition) -> None:
        """Abort the cleaning of a log that is being deleted, moved or truncated."""
        run = self._runs.get(tp)
        if run is not None:
            run.throttler.abort()

    def truncated(self, tp: TopicPartition, offset: int) -> None:
        """The log was truncated to an offset: everything after it is dirty."""
        self.abort(tp)
        for directory, offsets in self._checkpoints.items():
            if offsets.get(tp, -1) > offset:
                offsets[tp] = offset
                self._save(directory)

    def checkpoint(self, tp: TopicPartition) -> int | None:
        """Return the offset up to which a log is clean."""
        return next((offsets[tp] for offsets in self._checkpoints.values() if tp in offsets), None)

    # -- one cleaning, step by step -----------------------------------------------------------------------

    def look_for_work(self) -> None:
        """Select the dirtiest log in a thread, unless a selection runs or every thread is busy."""
        if self._stopped or self._selecting or len(self._runs) >= self._config.threads:
            return
        logs = [log for tp, log in self._logs.items() if self._is_candidate(tp, log)]
        if not logs:
            self._wait()
            return
        self._selecting = True
        known = {tp: offset for offsets in self._checkpoints.values() for tp, offset in offsets.items()}
        self._submit(partial(_select, logs, known, self._clock.now_ms()), self._on_selected)

    def _is_candidate(self, tp: TopicPartition, log: PartitionLog) -> bool:
        return (
            log.config.compact
            and log.failed is None
            and tp not in self._runs
            and tp not in self.uncleanable
            and _dir_of(log) in self._checkpoints
        )

    def _on_selected(self, future: Future[Selection]) -> None:
        self._selecting = False
        try:
            selection = future.result()
        except (ApiException, OSError) as error:
            _logger.warning("Cannot look for logs to clean: %s", error)
            self._wait()
            return
        for tp, offset in selection.corrected.items():
            self._set_checkpoint(tp, offset)
        target = selection.target
        if target is None:
            self._wait()
            return
        from ottla.log.cleaner.compaction import make_plan
        from ottla.log.cleaner.offset_map import OffsetMap

        share = self._config.threads
        run = _Run(target, Throttler(self._clock, self._config.max_bytes_per_second / share))
        self._runs[target.log.topic_partition] = run
        memory = self._config.dedupe_buffer_bytes // share
        offset_map = OffsetMap(memory, self._config.load_factor)
        self._submit(partial(make_plan, target, offset_map, run.throttler), partial(self._on_planned, run))
        self.look_for_work()

    def _on_planned(self, run: _Run, future: Future[Plan]) -> None:
        try:
            run.plan = future.result()
        except CleaningAbortedError:
            self._end(run)
        except Exception as error:  # noqa: BLE001 - an error in one log must not stop the others
            self._give_up(run, error)
        else:
            self._next_group(run, run.plan)

    def _next_group(self, run: _Run, plan: Plan) -> None:
        if run.next_group == len(plan.groups):
            self._set_checkpoint(run.target.log.topic_partition, plan.end_offset)
            self._end(run, cleaned=True)
            return
        from ottla.log.cleaner.compaction import clean_group

        group = plan.groups[run.next_group]
        run.next_group += 1
        producers = last_records(run.target.log)
        work = partial(clean_group, self._fs, plan, group, producers, self._clock.now_ms(), run.throttler)
        self._submit(work, partial(self._on_cleaned, run, plan))

    def _on_cleaned(self, run: _Run, plan: Plan, future: Future[CleanedGroup]) -> None:
        try:
            cleaned = future.result()
        except CleaningAbortedError:
            self._end(run)
            return
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(run, error)
            return
        if self._stopped or not self._still_valid(plan, cleaned):
            from ottla.log.cleaner.compaction import discard

            self._submit(partial(discard, self._fs, cleaned.segment), lambda future: future.result())
            self._end(run)
            return
        self._swap(run, plan, cleaned)

    def _swap(self, run: _Run, plan: Plan, cleaned: CleanedGroup) -> None:
        """Swap, sync, settle, sync: in this order a crash leaves either the old or the new log."""
        log = run.target.log
        try:
            old_files = log.swap_in(cleaned.segment, cleaned.replaces)
        except ApiException as error:
            self._give_up(run, error)
            return

        def swapped(future: Future[None]) -> None:
            if self._logs.get(log.topic_partition) is not log:
                self._end(run)
                return
            try:
                future.result()
                log.settle(cleaned.segment)
            except (ApiException, OSError) as error:
                self._give_up(run, error)
                return
            self._submit(sync, settled)

        def settled(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                self._give_up(run, error)
                return
            log.remove_files(old_files)
            self._next_group(run, plan)

        def sync() -> None:
            self._fs.fsync_dir(log.path)

        self._submit(sync, swapped)

    def _still_valid(self, plan: Plan, cleaned: CleanedGroup) -> bool:
        """Return whether the log still has the segments that were read, unchanged."""
        log = plan.target.log
        present = set(log.segments)
        return (
            self._logs.get(log.topic_partition) is log
            and log.failed is None
            and all(s in present and s.size == plan.sizes[s] for s in cleaned.replaces)
        )

    def _end(self, run: _Run, *, cleaned: bool = False) -> None:
        self._runs.pop(run.target.log.topic_partition, None)
        if cleaned:
            self.look_for_work()
        else:
            self._wait()

    def _give_up(self, run: _Run, error: BaseException) -> None:
        tp = run.target.log.topic_partition
        if self._logs.get(tp) is run.target.log and not self._stopped:
            self.uncleanable.add(tp)
            _logger.warning(
                "Cannot clean %s; it is skipped until the broker restarts: %s", tp, error, exc_info=error
            )
        self._end(run)

    def _wait(self) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.uncleanable = {tp for tp in self.uncleanable if tp in self._logs}
        self._timer = self._clock.call_later(self._config.backoff_ms / 1000, self.look_for_work)

    def _submit(self, work: Callable[[], _T], done: Callable[[Future[_T]], None]) -> None:
        if self._offload is None:
            raise RuntimeError("the cleaner was not started")
        if not self._stopped:
            self._offload(work, done)

    # -- checkpoints --------------------------------------------------------------------------------------

    def _set_checkpoint(self, tp: TopicPartition, offset: int) -> None:
        log = self._logs.get(tp)
        if log is not None and _dir_of(log) in self._checkpoints:
            self._checkpoints[_dir_of(log)][tp] = offset
            self._save(_dir_of(log))

    def _save(self, directory: str) -> None:
        """Write a checkpoint in a thread, one write at a time. The last state is always written."""
        if directory in self._writing:
            self._unwritten.add(directory)
            return
        offsets = {tp: o for tp, o in self._checkpoints[directory].items() if tp in self._logs}
        self._checkpoints[directory] = dict(offsets)
        work = partial(write_offsets, self._fs, _checkpoint_path(directory), offsets)
        if self._offload is None:
            work()  # not started, so there are no threads; only a truncation gets here, which is rare
            return
        self._writing.add(directory)
        self._submit(work, partial(self._on_saved, directory))

    def _on_saved(self, directory: str, future: Future[None]) -> None:
        self._writing.discard(directory)
        error = future.exception()
        if error is not None:
            # The only effect: part of the log is cleaned again after the next start.
            _logger.warning("Cannot write %s: %s", _checkpoint_path(directory), error)
        if directory in self._unwritten:
            self._unwritten.discard(directory)
            self._save(directory)


def _select(
    logs: Sequence[PartitionLog], checkpoints: Mapping[TopicPartition, int], now_ms: int
) -> Selection:
    """Runs in a thread, which also loads what the cleaning of the selected log needs."""
    import ottla.log.cleaner.compaction  # noqa: F401
    from ottla.log.cleaner.selection import select

    return select(logs, checkpoints, now_ms)


def last_records(log: PartitionLog) -> dict[int, LastRecord]:
    """Return the batches that must stay, even without records, for active producers."""
    from ottla.log.cleaner.batch_filter import LastRecord

    return {
        producer_id: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.epoch)
        for producer_id, state in log.producers.active.items()
    }


def _to_threads(loop: asyncio.AbstractEventLoop, executor: Executor) -> Offload:
    def offload(work: Callable[[], _T], done: Callable[[Future[_T]], None]) -> None:
        def hand_back(future: Future[_T]) -> None:
            if not future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(done, future)

        executor.submit(work).add_done_callback(hand_back)

    return offload


def _dir_of(log: PartitionLog) -> str:
    return log.path.rpartition("/")[0]


def _checkpoint_path(directory: str) -> str:
    return f"{directory}/{CLEANER_OFFSET_FILE}"
