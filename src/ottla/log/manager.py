"""All logs of a broker in its log directories: finds, creates, loads, deletes, checkpoints and closes them.

Used on the event loop, except `load`, which blocks and runs before the broker serves. Raft owns the metadata log.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from types import MappingProxyType

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.errors import ApiException, ErrorCode
from ottla.log.cleaner.log_cleaner import CleanerConfig, LogCleaner, MakeThreads, make_threads
from ottla.log.context import LogContext
from ottla.log.creation import NewLog
from ottla.log.files import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    METADATA_TOPIC,
    STRAY_DIR_SUFFIX,
    marked_dir_name,
    parse_dir_name,
)
from ottla.log.fs import Fs
from ottla.log.housekeeping import Housekeeping
from ottla.log.log_dir import LogDir, LogDirError
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import ANYWHERE, Recovered, open_log
from ottla.log.relocation import Announce, Relocation
from ottla.log.types import NO_EPOCH, TopicPartition
from ottla.wire.uuid import uuid_to_str

_logger = logging.getLogger(__name__)

Checkpoints = Sequence[dict[TopicPartition, int]]


class LogManager:
    """The logs by partition. `on_dir_failure` is called on the event loop once for each directory that fails."""

    def __init__(
        self,
        fs: Fs,
        config: BrokerConfig,
        clock: Clock,
        executor: Executor,
        *,
        on_dir_failure: Callable[[LogDir], None] | None = None,
        cleaner_threads: MakeThreads = make_threads,
    ) -> None:
        self.fs = fs
        self._cleaner_threads = cleaner_threads
        self.config = config
        self.dirs = [LogDir(fs, _plain(path)) for path in config.log_dirs]
        self._clock = clock
        self._executor = executor
        self._on_dir_failure = on_dir_failure
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._future_logs: dict[TopicPartition, PartitionLog] = {}
        self._begun: dict[TopicPartition, NewLog] = {}
        """Logs that are being created, or will be."""
        self._dir_of: dict[PartitionLog, LogDir] = {}
        self._contexts = {directory.path: self._context(directory) for directory in self.dirs}
        self._housekeeping = Housekeeping(self, fs, clock, executor)
        self._relocation = Relocation(self, clock, executor)
        self._preferred: dict[TopicPartition, bytes] = {}
        """Directories requested by AlterReplicaLogDirs before the partition existed."""
        self.cleaner: LogCleaner | None = None
        self._to_remove: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loaded = False
        self._stopped = False

    def _context(self, directory: LogDir) -> LogContext:
        return LogContext(
            self.fs,
            now_ms=self._clock.now_ms,
            random=self._clock.random,
            producer_id_expiration_ms=self.config.int("producer.id.expiration.ms"),
            request_flush=self._housekeeping_flush,
            remove_later=self._housekeeping_remove,
            on_io_error=partial(self._dir_failed, directory),
            on_truncated=self._truncated,
        )

    def context_of(self, directory: LogDir) -> LogContext:
        return self._contexts[directory.path]

    def _truncated(self, log: PartitionLog, offset: int) -> None:
        if self._logs.get(log.topic_partition) is not log:
            return
        self._relocation.truncated(log.topic_partition, offset)
        if self.cleaner is not None:
            self.cleaner.truncated(log.topic_partition, offset)
        # The records after the truncation are not on disk, so an older checkpoint must not cover them.
        self._housekeeping.flush(log, log.log_end_offset)
        self._housekeeping.checkpoint()

    def _housekeeping_flush(self, log: PartitionLog, up_to: int) -> None:
        self._housekeeping.flush(log, up_to)

    def _housekeeping_remove(self, paths: Sequence[str], delay_ms: int) -> None:
        self._housekeeping.remove_later(paths, delay_ms)

    # -- opening ------------------------------------------------------------------------------------------

    def open_dirs(self, cluster_id: str | None, node_id: int) -> str:
        """Check all directories, lock them and format new ones. Returns the cluster id; raises LogDirError."""
        for directory in self.dirs:
            directory.inspect(cluster_id, node_id)
        known = {directory.cluster_id for directory in self.dirs if directory.cluster_id is not None}
        if len(known) > 1:
            raise LogDirError(f"log directories of different clusters: {', '.join(sorted(known))}")
        found = known.pop() if known else cluster_id or uuid_to_str(self._clock.random_uuid())
        try:
            for directory in self.dirs:
                directory.take()
            for directory in self.dirs:
                directory.format(found, node_id, self._clock)
        except (LogDirError, OSError):
            for directory in self.dirs:
                directory.release()
            raise
        ids = {directory.directory_id for directory in self.dirs}
        if len(ids) != len(self.dirs):
            raise LogDirError("two log directories have the same directory.id: one is a copy of the other")
        return found

    def load(self, topic_config: Callable[[str], TopicConfig]) -> None:
        """Load every log, recovering those of a directory that was not shut down cleanly. Blocks."""
        configs: dict[str, TopicConfig] = {}

        def config_of(topic: str) -> TopicConfig:
            if topic not in configs:
                configs[topic] = topic_config(topic)
            return configs[topic]

        for directory in self.dirs:
            try:
                self._load_dir(directory, config_of)
            except OSError as e:
                self._dir_failed(directory, e)
        if all(directory.offline for directory in self.dirs):
            raise LogDirError(f"no log directory can be used: {self.dirs[0].path}: {self.dirs[0].error}")
        self._loaded = True

    def _load_dir(self, directory: LogDir, config_of: Callable[[str], TopicConfig]) -> None:
        directory.begin_load()
        for name, is_dir in self.fs.entries(directory.path):
            parsed = parse_dir_name(name) if is_dir else None
            if parsed is None or parsed[0].topic == METADATA_TOPIC:
                continue
            tp, mark = parsed
            path = f"{directory.path}/{name}"
            if mark == DELETE_DIR_SUFFIX:
                self._to_remove.append(path)
            elif mark != STRAY_DIR_SUFFIX:
                table = self._future_logs if mark == FUTURE_DIR_SUFFIX else self._logs
                log = self._load_log(directory, path, tp, config_of(tp.topic))
                known = table.get(tp)
                table[tp] = log if known is None else self._better_of(known, log)

    def _better_of(self, known: PartitionLog, log: PartitionLog) -> PartitionLog:
        """Choose between logs of one partition in two directories.

        A creation that failed, as on a full disk, leaves an empty log, and the partition is made in another directory.
        """
        empty = next((one for one in (log, known) if one.log_end_offset == 0), None)
        if empty is None:
            raise LogDirError(
                f"{log.topic_partition} is both in {known.path} and in {log.path}: remove one of them"
            )
        kept = known if empty is log else log
        self._retire(empty, STRAY_DIR_SUFFIX)
        _logger.warning("%s is in %s: its empty log stays in %s", kept.topic_partition, kept.path, empty.path)
        return kept

    def _load_log(
        self, directory: LogDir, path: str, tp: TopicPartition, config: TopicConfig
    ) -> PartitionLog:
        report = Recovered()
        log = open_log(
            self._contexts[directory.path],
            path,
            config,
            clean=directory.was_clean,
            log_start_offset=directory.log_starts.get(tp, 0),
            recovery_point=directory.recovery_points.get(tp, 0),
            # Followers receive gaps that the leader's compaction made.
            gaps_below=ANYWHERE if tp in directory.cleaned else None,
            foreign=not directory.had_checkpoints,
            report=report,
        )
        if report.truncated_bytes or report.deleted_segments:
            _logger.warning(
                "%s: cut %d damaged bytes and %d segments after them; the log ends at offset %d",
                tp,
                report.truncated_bytes,
                report.deleted_segments,
                log.log_end_offset,
            )
        log.high_watermark = directory.high_watermarks.get(tp, 0)
        self._dir_of[log] = directory
        return log

    def start(self) -> None:
        """Start the periodic work: retention, flushes, checkpoints, removal of deleted files."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None  # a simulation: everything is one thread
        self._housekeeping.start()
        online = [directory.path for directory in self.dirs if not directory.offline]
        self.cleaner = LogCleaner(
            self.fs,
            self.logs,
            online,
            CleanerConfig.of(self.config),
            self._clock,
            make_threads=self._cleaner_threads,
        )
        if self._loop is not None:
            self.cleaner.start()
            self._relocation.start(self._loop.call_soon_threadsafe)
        self._housekeeping.remove_later(self._to_remove, self.config.int("log.segment.delete.delay.ms"))
        self._to_remove = []

    # -- finding and creating ---------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return MappingProxyType(self._logs)

    @property
    def future_logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """The copies being made in other directories (AlterReplicaLogDirs)."""
        return MappingProxyType(self._future_logs)

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        return self._logs.get(tp)

    def get_or_create(
        self, tp: TopicPartition, topic_id: bytes, config: TopicConfig, *, directory_id: bytes | None = None
    ) -> PartitionLog:
        """Return the partition's log. A new one goes to the given directory, or to the one with the fewest logs.

        One that is cordoned gets it only if it is named, or all are.
        """
        log = self._logs.get(tp)
        if log is not None:
            log.assign_topic_id(topic_id)
            return log
        new = self.begin(tp, topic_id, config, directory_id=directory_id)
        try:
            log = self._take(tp, new)
        except OSError as e:
            self._dir_failed(new.directory, e)
            raise ApiException(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be created in {new.path}: {e}"
            ) from e
        if log.config is not config:
            log.update_config(config)
        return log

    def begin(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        *,
        directory_id: bytes | None = None,
        leader_epoch: int = NO_EPOCH,
    ) -> NewLog:
        """Prepare a new log that a thread can `make`. `get_or_create` takes it in any case.

        With a leader epoch, everything that its first record needs is made too.
        """
        new = self._begun.get(tp)
        if new is not None and new.topic_id != topic_id:
            self.delete(tp, new.topic_id)  # the topic was deleted before the log was used
            new = None
        if new is None:
            directory = self._directory_for(self._preferred.pop(tp, directory_id))
            self._forget_checkpoints(directory, tp)
            context = self._contexts[directory.path]
            path = f"{directory.path}/{tp}"
            new = self._begun[tp] = NewLog(context, directory, path, config, topic_id, leader_epoch)
        return new

    def _take(self, tp: TopicPartition, new: NewLog) -> PartitionLog:
        del self._begun[tp]
        log = new.take()
        if new.directory.error is not None:
            log.close_files()
            raise new.directory.error
        self._logs[tp] = log
        self._dir_of[log] = new.directory
        return log

    def _directory_for(self, directory_id: bytes | None) -> LogDir:
        online = [directory for directory in self.dirs if not directory.offline]
        if not online:
            raise ApiException(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories have failed")
        for directory in online:
            if directory.directory_id == directory_id:
                return directory
        open_ones = [directory for directory in online if not self.is_cordoned(directory)]
        if len(open_ones) <= 1:
            return (open_ones or online)[0]
        counts = dict.fromkeys((directory.path for directory in open_ones), 0)
        for directory in (*self._dir_of.values(), *(new.directory for new in self._begun.values())):
            if directory.path in counts:
                counts[directory.path] += 1
        return min(open_ones, key=lambda directory: counts[directory.path])

    def _forget_checkpoints(self, directory: LogDir, tp: TopicPartition) -> None:
        """Remove the checkpoints of a deleted log, so that a new one of the same name cannot inherit them."""
        if tp in directory.log_starts or tp in directory.recovery_points:
            self._housekeeping.wait_for_checkpoint()
            offsets = self.checkpoint_offsets()[directory.path]
            for table in offsets:
                table.pop(tp, None)
            try:
                directory.write_checkpoints(offsets)
            except OSError as e:
                self._dir_failed(directory, e)

    def dir_of(self, tp: TopicPartition) -> LogDir | None:
        log = self._logs.get(tp)
        return None if log is None else self._dir_of.get(log)

    def directory_of(self, log: PartitionLog) -> LogDir:
        """Return the directory of a log, future logs included."""
        return self._dir_of[log]

    def is_cordoned(self, directory: LogDir) -> bool:
        """Return whether the directory is cordoned: it gets no new logs."""
        return directory.path in map(_plain, self.config.cordoned_log_dirs)

    def announce_moves(self, announce: Announce) -> None:
        """Set the function that announces a move to another directory and waits for consent."""
        self._relocation.announce = announce

    def logs_in(self, directory: LogDir) -> Iterable[PartitionLog]:
        """Return the logs of a directory, future logs included."""
        return [log for log, its_dir in self._dir_of.items() if its_dir is directory]

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a change of the broker configuration from the next run of each task."""
        self.config = config
        if self.cleaner is not None:
            self.cleaner.update_config(CleanerConfig.of(config))
        expiration_ms = config.int("producer.id.expiration.ms")
        for context in self._contexts.values():
            context.producer_id_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producers.expiration_ms = expiration_ms

    # -- deleting -----------------------------------------------------------------------------------------

    def delete(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Delete a log: its directory is renamed at once and removed after `file.delete.delay.ms`."""
        new = self._begun.get(tp)
        if new is not None and new.topic_id == topic_id:
            self._call_off(tp)
        found = self._logs.get(tp)
        if found is None or found.topic_id != topic_id:
            return
        for table in (self._future_logs, self._logs):
            log = table.pop(tp, None)
            if log is not None:
                self._retire(log, DELETE_DIR_SUFFIX)
                self._housekeeping.remove_later([log.path], log.config.file_delete_delay_ms)

    def delete_strays(self, keep: Callable[[TopicPartition, bytes], bool]) -> list[TopicPartition]:
        """Rename to `-stray` the logs for which `keep(partition, topic id)` is false."""
        strays = [tp for tp, log in self._logs.items() if not keep(tp, log.topic_id)]
        for tp in strays:
            for table in (self._future_logs, self._logs):
                log = table.pop(tp, None)
                if log is not None:
                    self._retire(log, STRAY_DIR_SUFFIX)
                    _logger.warning("%s is not in the metadata: its log stays in %s", tp, log.path)
        return strays

    def _retire(self, log: PartitionLog, suffix: str) -> None:
        """Rename a log's directory. Readers that use it can finish."""
        if self.cleaner is not None:
            self.cleaner.abort(log.topic_partition)
        directory = self._dir_of.pop(log)
        unique = uuid.UUID(bytes=self._clock.random_uuid()).hex
        target = f"{directory.path}/{marked_dir_name(log.topic_partition, unique, suffix)}"
        directory.high_watermarks.pop(log.topic_partition, None)
        try:
            self.fs.rename(log.path, target)
        except OSError as e:
            self._dir_failed(directory, e)
            return
        log.moved_to(target)
        log.close_files()

    def _call_off(self, tp: TopicPartition) -> None:
        """Cancel the creation of a log. A log that exists already is kept."""
        new = self._begun.pop(tp)
        log = new.call_off()
        if log is not None and new.directory.error is None:
            self._logs[tp] = log
            self._dir_of[log] = new.directory

    # -- moving -------------------------------------------------------------------------------------------

    def move(self, tp: TopicPartition, path: str) -> None:
        """Move a log to another directory in the background. A move to its own directory cancels a running one."""
        target = next((d for d in self.dirs if d.path == path.rstrip("/")), None)
        if target is None:
            raise ApiException(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among the log directories")
        if target.offline:
            raise ApiException(
                ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline: {target.error}"
            )
        if self.is_cordoned(target):
            raise ApiException(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"log directory {path} is cordoned")
        log = self._logs.get(tp)
        if log is None:
            self._preferred[tp] = target.directory_id
            raise ApiException(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp} has no log here; a new one goes to {path}"
            )
        future = self._future_logs.get(tp)
        if future is not None:
            if self._dir_of[future] is target:
                return
            del self._future_logs[tp]
            self._retire(future, DELETE_DIR_SUFFIX)
            self._housekeeping.remove_later([future.path], future.config.file_delete_delay_ms)
        if self._dir_of[log] is target:
            return
        try:
            future = self._relocation.begin(tp, target)
        except OSError as e:
            self._dir_failed(target, e)
            raise ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} cannot be copied to {path}: {e}") from e
        self._future_logs[tp] = future
        self._dir_of[future] = target
        self._relocation.resume(tp)

    def exchange(self, tp: TopicPartition) -> None:
        """Replace the log's files by those of the future log, which has caught up."""
        log, future = self._logs[tp], self._future_logs.pop(tp)
        if self.cleaner is not None:
            self.cleaner.abort(tp)
        source, target = self._dir_of[log], self._dir_of.pop(future)
        unique = uuid.UUID(bytes=self._clock.random_uuid()).hex
        old_path = f"{source.path}/{marked_dir_name(tp, unique, DELETE_DIR_SUFFIX)}"
        try:
            self._forget_checkpoints(target, tp)
            self.fs.rename(log.path, old_path)
            self.fs.rename(future.path, f"{target.path}/{tp}")
        except OSError as e:
            self._dir_failed(target, e)
            return
        future.moved_to(f"{target.path}/{tp}")
        log.adopt(future)
        self._dir_of[log] = target
        self._housekeeping.flush(log, log.log_end_offset)
        self._housekeeping.checkpoint()
        self._housekeeping.remove_later([old_path], log.config.file_delete_delay_ms)

    # -- checkpoints --------------------------------------------------------------------------------------

    def checkpoint_offsets(self, *, closing: bool = False) -> dict[str, Checkpoints]:
        """Return the current (recovery points, log starts, high watermarks) of each online directory."""
        found: dict[str, Checkpoints] = {d.path: ({}, {}, {}) for d in self.dirs if not d.offline}
        for tp, log in self._logs.items():
            tables = found.get(self._dir_of[log].path)
            if tables is None or log.failed is not None:
                continue
            recovery_points, log_starts, high_watermarks = tables
            recovery_points[tp] = log.recovery_point if closing else log.recovery_point_to_keep
            high_watermarks[tp] = log.high_watermark
            if log.log_start_offset > log.segments[0].base_offset:
                log_starts[tp] = log.log_start_offset
        return found

    def write_checkpoints(self, offsets: Mapping[str, Checkpoints]) -> None:
        """Write the checkpoints. Blocks: runs in the executor."""
        for directory in self.dirs:
            if directory.path in offsets and not directory.offline:
                try:
                    directory.write_checkpoints(offsets[directory.path])
                except OSError as e:
                    self._dir_failed(directory, e)

    def checkpoint(self) -> None:
        """Write the checkpoints of all directories now. Blocks."""
        self.write_checkpoints(self.checkpoint_offsets())

    # -- failing and ending -------------------------------------------------------------------------------

    def _dir_failed(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline after an I/O error. Safe in any thread."""
        if directory.error is not None:
            return
        directory.error = error
        _logger.error("log directory %s failed and is offline: %s", directory.path, error)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._after_failure, directory, error)
        else:
            self._after_failure(directory, error)

    def _after_failure(self, directory: LogDir, error: OSError) -> None:
        for log in self.logs_in(directory):
            log.failed = log.failed or error
            log.close_files()
        if self._on_dir_failure is not None:
            self._on_dir_failure(directory)

    def stop(self) -> None:
        """Start no more work. Runs on the event loop, before `shutdown`."""
        if not self._stopped:
            self._stopped = True
            self._housekeeping.stop()
            if self.cleaner is not None:
                self.cleaner.stop()
            self._relocation.stop()
            for tp in list(self._begun):
                self._call_off(tp)

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write checkpoints and the clean-shutdown marker, unlock. Blocks."""
        self.stop()
        self._housekeeping.wait_for_checkpoint()
        if self._loaded:
            self._flush_all()
            for log in list(self._dir_of):
                if log.failed is None:
                    try:
                        log.close()
                    except ApiException as e:
                        _logger.error("closing %s: %s", log.topic_partition, e)
            self.write_checkpoints(self.checkpoint_offsets(closing=True))
            for directory in self.dirs:
                if not directory.offline:
                    directory.mark_clean(broker_epoch)
            self._loaded = False
        for directory in self.dirs:
            directory.release()
        self._loop = None

    def _flush_all(self) -> None:
        def flush(log: PartitionLog) -> None:
            try:
                log.flush()
            except ApiException as e:
                _logger.error("flush of %s: %s", log.topic_partition, e)

        unflushed = [
            log for log in self._dir_of if log.failed is None and log.recovery_point < log.log_end_offset
        ]
        for _ in self._executor.map(flush, unflushed):
            continue


def _plain(path: str) -> str:
    return path.rstrip("/") or "/"
