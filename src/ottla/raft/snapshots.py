"""Snapshot files `<end offset>-<epoch>.checkpoint`: a header, the voters, records in batches, a footer.

`bootstrap.checkpoint` has the same form. A file gets its final name only when it is complete and durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.log.fs import Fs
from ottla.raft.batches import control_batch, data_batch, read_batches
from ottla.raft.types import MAX_BATCH_BYTES, CommittedBatch, OffsetAndEpoch, RecordSerde
from ottla.raft.voters import VoterSet
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

SUFFIX: Final = ".checkpoint"
PARTIAL_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"

_NAME = re.compile(r"^(\d{20})-(\d{10})(.*)$")
_RECORD_OVERHEAD: Final = 32
"""An upper bound for the frame of a record without key and headers, at any offset."""


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[OffsetAndEpoch, bool] | None:
    """The snapshot's id and whether the file is a finished snapshot; None for a file of another kind."""
    match = _NAME.match(name)
    if match is None or not name.endswith((SUFFIX, PARTIAL_SUFFIX, DELETED_SUFFIX)):
        return None
    return OffsetAndEpoch(int(match[1]), int(match[2])), match[3] == SUFFIX


def snapshot_buffers(
    epoch: int,
    values: Iterable[bytes],
    *,
    kraft_version: int,
    voters: VoterSet | None,
    last_timestamp: int,
    now_ms: int,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[bytes]:
    """The batches of a snapshot of these encoded records."""
    header: list[WireMessage] = [
        messages.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp)
    ]
    if kraft_version > 0:
        header.append(messages.KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            header.append(voters.to_record())
    yield control_batch(header, 0, epoch, now_ms)
    offset = len(header)
    batch: list[bytes] = []
    size = 0
    for value in values:
        needed = len(value) + _RECORD_OVERHEAD
        if batch and size + needed > max_batch_bytes:
            yield data_batch(batch, offset, epoch, now_ms)
            offset += len(batch)
            batch, size = [], 0
        batch.append(value)
        size += needed
    if batch:
        yield data_batch(batch, offset, epoch, now_ms)
        offset += len(batch)
    yield control_batch([messages.SnapshotFooterRecord(version=0)], offset, epoch, now_ms)


def write_snapshot_file(fs: Fs, directory: str, name: str, buffers: Iterable[bytes]) -> int:
    """Write the file under a partial name, sync it, rename it, sync the directory. Returns its size."""
    partial = f"{directory}/{name.removesuffix(SUFFIX)}{PARTIAL_SUFFIX}"
    file = fs.open(partial, create=True, truncate=True)
    try:
        size = sum(file.append([buffer]) for buffer in buffers)
        file.fsync()
    finally:
        file.close()
    fs.rename(partial, f"{directory}/{name}")
    fs.fsync_dir(directory)
    return size


class SnapshotDownload:
    """A snapshot that arrives from the leader piece by piece. It counts when `finish` has made it durable."""

    __slots__ = ("_directory", "_file", "_fs", "_name", "epoch", "position", "snapshot_id")

    def __init__(self, fs: Fs, directory: str, snapshot_id: OffsetAndEpoch, epoch: int) -> None:
        self.snapshot_id = snapshot_id
        self.epoch = epoch
        """The epoch of the leader that sends it."""
        self.position = 0
        self._fs = fs
        self._directory = directory
        self._name = snapshot_name(snapshot_id)
        self._file = fs.open(self._partial, create=True, truncate=True)

    @property
    def _partial(self) -> str:
        return f"{self._directory}/{self._name.removesuffix(SUFFIX)}{PARTIAL_SUFFIX}"

    def append(self, data: bytes) -> None:
        self.position += self._file.append([data])

    def finish(self) -> int:
        """Give the file its final name, durably. Blocks. Returns its size."""
        self._file.fsync()
        self._file.close()
        self._fs.rename(self._partial, f"{self._directory}/{self._name}")
        self._fs.fsync_dir(self._directory)
        return self.position

    def discard(self) -> None:
        self._file.close()
        self._fs.remove(self._partial)


class SnapshotReader:
    """A snapshot file: its control messages, and its records in batches. Checks that the file is complete."""

    __slots__ = ("_buf", "_serde", "kraft_version", "last_contained_log_timestamp", "path", "size", "voters")

    def __init__(self, fs: Fs, path: str, serde: RecordSerde) -> None:
        self.path = path
        self._buf = fs.read_bytes(path)
        self._serde = serde
        self.size = len(self._buf)
        self.last_contained_log_timestamp = -1
        self.kraft_version = 0
        self.voters: VoterSet | None = None
        self._read_header()

    def _read_header(self) -> None:
        first = next(read_batches(self._buf, self._serde, self.path), None)
        control = [] if first is None else [message for _, message in first[1]]
        header = control[0] if control else None
        if not isinstance(header, messages.SnapshotHeaderRecord):
            raise ApiException(
                ErrorCode.CORRUPT_MESSAGE, f"{self.path} does not begin with a snapshot header"
            )
        self.last_contained_log_timestamp = header.last_contained_log_timestamp
        for message in control[1:]:
            if isinstance(message, messages.KRaftVersionRecord):
                self.kraft_version = message.kraft_version
            elif isinstance(message, messages.VotersRecord):
                self.voters = VoterSet.from_record(message)

    def batches(self) -> Iterator[CommittedBatch]:
        """The batches of records. Raises at the end when the footer is missing."""
        end = 0
        footer = False
        for batch, control in read_batches(self._buf, self._serde, self.path):
            end += batch.size
            footer = any(isinstance(message, messages.SnapshotFooterRecord) for _, message in control)
            if batch.records:
                yield batch
        if not footer or end != self.size:
            raise ApiException(ErrorCode.CORRUPT_MESSAGE, f"{self.path} does not end with a snapshot footer")

    def records(self) -> Iterator[WireMessage]:
        for batch in self.batches():
            yield from batch.records
