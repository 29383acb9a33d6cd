"""All logs of a broker (skeleton of the public surface; the implementation follows)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.log.fs import Fs
from ottla.log.types import TopicPartition

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.log.log_dir import LogDir
    from ottla.log.partition_log import PartitionLog


class LogManager:
    dirs: list[LogDir]  # each: .path, .directory_id: bytes, .offline: bool, .error
    logs: Mapping[TopicPartition, PartitionLog]
    future_logs: Mapping[TopicPartition, PartitionLog]

    def __init__(
        self,
        fs: Fs,
        config: BrokerConfig,
        clock: Clock,
        executor: Executor,
        *,
        on_dir_failure: Callable[[LogDir], None] | None = None,
    ) -> None: ...

    def open_dirs(self, cluster_id: str | None, node_id: int) -> str:
        """Check, lock and (where empty) format log.dirs; returns the cluster id found or given. LogDirError otherwise."""
        ...

    def load(self, topic_config: Callable[[str], TopicConfig]) -> None:
        """Load (recover) every log found. Blocking, before the broker serves. __cluster_metadata-0 is left to raft."""
        ...

    def start(self) -> None:
        """Begin retention, flush and checkpoint tasks on the clock."""
        ...

    def get(self, tp: TopicPartition) -> PartitionLog | None: ...
    def get_or_create(
        self, tp: TopicPartition, topic_id: bytes, config: TopicConfig, *, directory_id: bytes | None = None
    ) -> PartitionLog: ...
    def delete(self, tp: TopicPartition) -> None:
        """Rename to -delete and remove after file.delete.delay.ms in the executor."""
        ...

    def delete_strays(self, keep: Callable[[TopicPartition, bytes], bool]) -> list[TopicPartition]: ...
    def dir_of(self, tp: TopicPartition) -> LogDir | None: ...
    def update_topic_config(self, topic: str, config: TopicConfig) -> None: ...
    def update_config(self, config: BrokerConfig) -> None: ...
    def high_watermark_checkpoint(self, tp: TopicPartition) -> int:
        """The high watermark as of the last checkpoint (0 where there is none)."""
        ...

    def checkpoint(self) -> None:
        """Write recovery-point, log-start and replication checkpoints of all dirs now."""
        ...

    def move(self, tp: TopicPartition, directory: str) -> None: ...
    def logs_in(self, directory: LogDir) -> Iterable[PartitionLog]: ...
    def shutdown(self) -> None:
        """Flush, close, checkpoint, write the clean-shutdown marker, unlock. Blocking."""
        ...
