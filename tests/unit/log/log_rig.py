"""What the tests of the log share: configurations, batches, and a log on a file system in memory."""

from __future__ import annotations

import random
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.log.context import LogContext
from ottla.log.fs import Fs
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import Recovered, open_log
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.record import Record
from ottla.testing.memfs import MemFs

BROKER = BrokerConfig.single_node()
PATH = "/data/t-0"
NOW = 1_700_000_000_000


def topic_config(**overrides: Any) -> TopicConfig:
    """`segment_bytes=1000` and the like; segments may be as small as a test wants them."""
    named = {key.replace("_", "."): str(value) for key, value in overrides.items()}
    if "segment.bytes" in named:
        named["internal.segment.bytes"] = named.pop("segment.bytes")
    return TopicConfig.build(BROKER, named)


def batch(*values: bytes | str, timestamp: int = NOW, **fields: Any) -> bytes:
    """A batch of these values, timestamps a millisecond apart."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    base = fields.get("base_offset", 0)
    records = [Record(base + n, timestamp + n, b"key", value, []) for n, value in enumerate(raw)]
    return build_batch(records, **fields)


def idempotent(sequence: int, *values: str, pid: int = 7, epoch: int = 0, **fields: Any) -> bytes:
    return batch(*values, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **fields)


def marker(pid: int, *, epoch: int = 0, commit: bool, coordinator_epoch: int = 0) -> bytes:
    """The control batch that ends a transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    return build_batch(
        [Record(0, NOW, key, value, [])],
        producer_id=pid,
        producer_epoch=epoch,
        is_control=True,
        is_transactional=True,
    )


def stamped(raw: bytes, offset: int, epoch: int) -> bytes:
    """A batch with its place in the log."""
    placed = bytearray(raw)
    placed[:8] = offset.to_bytes(8, "big")
    placed[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(placed)


class Rig:
    """A log, its file system and the clock that tests turn by hand."""

    def __init__(self, fs: Fs | None = None, path: str = PATH, **overrides: Any) -> None:
        self.now_ms = NOW
        self.fs = MemFs(lambda: self.now_ms) if fs is None else fs
        self.path = path
        self.fs.mkdir(path.rpartition("/")[0], parents=True)
        self.config = topic_config(**overrides)
        self.flushes: list[int] = []
        self.report = Recovered()
        self.log = self.open(clean=False)

    def open(self, *, clean: bool, fs: Fs | None = None, **bounds: int) -> PartitionLog:
        if fs is not None:
            self.fs = fs
        context = LogContext(
            self.fs,
            now_ms=lambda: self.now_ms,
            random=random.Random(0),
            request_flush=lambda log, end: self.flushes.append(end),
        )
        self.report = Recovered()
        self.log = open_log(context, self.path, self.config, clean=clean, report=self.report, **bounds)
        return self.log

    def append(self, *values: str, epoch: int = 0, **fields: Any) -> int:
        """Append a batch; its first offset."""
        return self.append_raw(batch(*values, **fields), epoch=epoch)

    def append_raw(self, raw: bytes, *, epoch: int = 0, **options: Any) -> int:
        info = self.log.append_as_leader(raw, epoch, now_ms=self.now_ms, **options)
        self.log.high_watermark = self.log.log_end_offset
        return info.first_offset

    def replicate(self, raw: bytes, *, epoch: int = 0) -> int:
        """Append a batch as a follower does, with no check that its transaction was begun."""
        offset = self.log.log_end_offset
        self.log.append_as_follower(stamped(raw, offset, epoch))
        self.log.high_watermark = self.log.log_end_offset
        return offset

    def names(self) -> list[str]:
        return sorted(self.fs.listdir(self.path))


def has_open_transaction(log: PartitionLog) -> bool:
    return any(state.current_txn_first_offset >= 0 for state in log.producers.active.values())


def records_of(
    log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 20
) -> list[tuple[int, str]]:
    """(offset, value) of everything from an offset on, as a consumer reads it."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, str]] = []
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes).records
        following = offset
        for position, header in iter_batches(piece):
            following = header.next_offset
            for record in iter_records(piece, position, header):
                if record.offset >= offset and not header.is_control:
                    found.append((record.offset, (record.value or b"").decode()))
        if following == offset:
            break
        offset = following
    return found
