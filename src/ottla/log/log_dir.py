"""One of the broker's `log.dirs`: its owner, its lock, its checkpoints and its health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ottla.clock import Clock
from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import (
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from ottla.log.files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.log.fs import Fs, Lock
from ottla.log.types import TopicPartition
from ottla.wire.uuid import ZERO_UUID, uuid_from_str

Offsets = Mapping[TopicPartition, int]

_HARMLESS = {LOCK_FILE, "lost+found", ".DS_Store"}
_CHECKPOINTS = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE)


class LogDirError(ApiException):
    """A log directory that must not be used; the message says which and why."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class LogDir(msgspec.Struct):
    """A directory of logs. It is offline after an I/O error until the broker restarts."""

    fs: Fs
    path: str
    directory_id: bytes = ZERO_UUID
    cluster_id: str | None = None
    error: OSError | None = None
    was_clean: bool = False
    """The last broker on it shut down cleanly."""
    previous_broker_epoch: int = -1
    recovery_points: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    """The three checkpoints as the files hold them."""
    cleaned: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    """The offsets up to which logs were compacted when the directory was loaded."""
    had_checkpoints: bool = False
    """Whether a recovery point file existed: then a broker used this directory, and it is not a copy of some logs."""
    _lock: Lock | None = None

    @property
    def offline(self) -> bool:
        return self.error is not None

    def inspect(self, cluster_id: str | None, node_id: int) -> None:
        """Refuse a directory that belongs to another node or program. Writes nothing."""
        try:
            if not self.fs.exists(self.path):
                return
            names = set(self.fs.listdir(self.path))
        except NotADirectoryError:
            raise LogDirError(f"log directory {self.path} is not a directory") from None
        except OSError as e:
            raise LogDirError(f"log directory {self.path} cannot be read: {e.strerror}") from e
        properties = read_meta_properties(self.fs, self.path)
        if properties is None:
            foreign = sorted(names - _HARMLESS)
            if foreign:
                raise LogDirError(
                    f"log directory {self.path} is not a data directory of Kafka or Ottla: it has no "
                    f"{META_PROPERTIES_FILE}, but holds {foreign[0]!r}"
                )
            return
        self._check_properties(properties, cluster_id, node_id)

    def _check_properties(self, properties: Mapping[str, str], cluster_id: str | None, node_id: int) -> None:
        where = f"{META_PROPERTIES_FILE} in {self.path}"
        if properties.get("version") not in ("0", "1"):
            raise LogDirError(f"{where} has version {properties.get('version')}, expected 1")
        own_node = properties.get("node.id", properties.get("broker.id"))
        if own_node is not None and own_node != str(node_id):
            raise LogDirError(f"{where} belongs to node.id {own_node}, this is node.id {node_id}")
        found = properties.get("cluster.id")
        if cluster_id is not None and found is not None and found != cluster_id:
            raise LogDirError(f"{where} belongs to cluster {found}, not to {cluster_id}")
        self.cluster_id = found
        try:
            self.directory_id = uuid_from_str(properties["directory.id"])
        except KeyError:
            self.directory_id = ZERO_UUID
        except ValueError:
            raise LogDirError(f"{where} has directory.id {properties['directory.id']!r}, no UUID") from None

    def take(self) -> None:
        """Create a missing directory, and lock it against other processes."""
        if self._lock is not None:
            return
        try:
            self.fs.mkdir(self.path, parents=True)
            self._lock = self.fs.lock(f"{self.path}/{LOCK_FILE}")
        except OSError as e:
            raise LogDirError(f"log directory {self.path} cannot be written: {e.strerror}") from e
        if self._lock is None:
            raise LogDirError(f"log directory {self.path} is in use by another process")

    def format(self, cluster_id: str, node_id: int, clock: Clock) -> None:
        """Write `meta.properties` into a new directory."""
        if self.cluster_id is None or self.directory_id == ZERO_UUID:
            self.cluster_id = cluster_id
            self.directory_id = clock.random_uuid()
            write_meta_properties(self.fs, self.path, cluster_id, node_id, self.directory_id)

    def begin_load(self) -> None:
        """Read the checkpoints and the clean-shutdown marker, and remove the marker."""
        epoch = read_clean_shutdown(self.fs, self.path)
        self.was_clean = epoch is not None
        self.previous_broker_epoch = -1 if epoch is None else epoch
        self.recovery_points, self.log_starts, self.high_watermarks = (
            read_offsets(self.fs, f"{self.path}/{name}") for name in _CHECKPOINTS
        )
        self.cleaned = read_offsets(self.fs, f"{self.path}/{CLEANER_OFFSET_FILE}")
        self.had_checkpoints = self.fs.exists(f"{self.path}/{RECOVERY_POINT_FILE}")
        if not self.had_checkpoints:
            write_offsets(self.fs, f"{self.path}/{RECOVERY_POINT_FILE}", {}, sync=False)
        if self.was_clean:
            self.fs.remove(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
            self.fs.fsync_dir(self.path)

    def write_checkpoints(self, offsets: Sequence[dict[TopicPartition, int]]) -> None:
        """Write the changed ones of (recovery points, log starts, high watermarks). Blocks."""
        known = (self.recovery_points, self.log_starts, self.high_watermarks)
        for name, before, now in zip(_CHECKPOINTS, known, offsets, strict=True):
            if before != now or not self.fs.exists(f"{self.path}/{name}"):
                write_offsets(self.fs, f"{self.path}/{name}", now)
        self.recovery_points, self.log_starts, self.high_watermarks = offsets

    def mark_clean(self, broker_epoch: int) -> None:
        write_clean_shutdown(self.fs, self.path, broker_epoch)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
