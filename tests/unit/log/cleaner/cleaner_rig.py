"""A compacted log with its cleaner, on a clock that stands still and with threads that run at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ottla.config.broker import SINGLE_NODE, BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.log.cleaner.log_cleaner import CleanerConfig, LogCleaner
from ottla.log.context import LogContext
from ottla.log.fs import Fs
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import open_log
from ottla.log.types import AppendOrigin, TopicPartition
from ottla.log.verification import UNVERIFIED
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.control import build_end_txn_marker
from ottla.records.record import Record
from ottla.testing.virtual_clock import VirtualClock

BROKER = BrokerConfig({**SINGLE_NODE})


def topic_config(**overrides: object) -> TopicConfig:
    values = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": 1_000_000,
        "index.interval.bytes": 200,
        "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 1000,
        "file.delete.delay.ms": 0,
        **{key.replace("_", "."): value for key, value in overrides.items()},
    }
    return TopicConfig.build(BROKER, {key: str(value) for key, value in values.items()})


def run_at_once(work: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is handed to `done`, as an executor does
        future.set_exception(error)
    done(future)


class Queue:
    """An offload whose work waits until the test lets it go on."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = []

    def __call__(self, work: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
        self.waiting.append((work, done))

    def step(self) -> str:
        work, done = self.waiting.pop(0)
        run_at_once(work, done)
        return getattr(work, "func", work).__name__

    def run_until(self, name: str) -> None:
        """Do everything up to and including a step."""
        while self.step() != name:
            pass

    def run(self) -> None:
        while self.waiting:
            self.step()


class Rig:
    """One partition `t-0` in a log directory."""

    def __init__(self, fs: Fs, directory: str, config: TopicConfig | None = None, **cleaner: Any) -> None:
        self.fs = fs
        self.directory = directory
        self.clock = VirtualClock()
        self.tp = TopicPartition("t", 0)
        self.config = config or topic_config()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.log = self.open()
        self.cleaner_options = {"backoff_ms": 1000, **cleaner}
        self.offload: Any = run_at_once
        self.cleaner = self.new_cleaner()
        self.sequences: dict[int, int] = {}

    def new_cleaner(self) -> LogCleaner:
        return LogCleaner(
            self.fs,
            self.logs,
            [self.directory],
            CleanerConfig(**self.cleaner_options),
            self.clock,
            offload=lambda work, done: self.offload(work, done),
        )

    def open(self, *, clean: bool = False) -> PartitionLog:
        context = LogContext(self.fs, now_ms=self.clock.now_ms, random=self.clock.random)
        path = f"{self.directory}/{self.tp}"
        self.log = self.logs[self.tp] = open_log(context, path, self.config, clean=clean)
        self.log.high_watermark = self.log.log_end_offset
        return self.log

    def put(
        self, *pairs: tuple[bytes | None, bytes | None], producer: int = -1, txn: bool = False, **fields: Any
    ) -> int:
        """Append one batch; its first offset."""
        now = self.clock.now_ms()
        records = [Record(index, now, key, value) for index, (key, value) in enumerate(pairs)]
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(pairs)
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, **fields}
        raw = build_batch(records, is_transactional=txn, **fields)
        return self.append(raw)

    def append(self, raw: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        info = self.log.append_as_leader(raw, 0, now_ms=self.clock.now_ms(), origin=origin, guard=UNVERIFIED)
        self.log.high_watermark = self.log.log_end_offset
        return info.first_offset

    def end_txn(self, producer: int, *, commit: bool) -> int:
        marker = build_end_txn_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        return self.append(marker, AppendOrigin.COORDINATOR)

    def roll(self) -> None:
        self.log.roll()

    def clean(self) -> None:
        """Let the cleaner look for work now, and do all it finds."""
        self.cleaner.start()

    def records(self) -> list[Record]:
        """Everything in the log, read as a consumer would: from its start, slice by slice."""
        found: list[Record] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            before = offset
            for position, header in iter_batches(data := bytes(self.log.read(offset, 1 << 20).records)):
                found += [r for r in iter_records(data, position, header) if r.offset >= offset]
                offset = header.next_offset
            if offset == before:
                break
        return found

    def values(self) -> dict[bytes | None, bytes | None]:
        return {record.key: record.value for record in self.records()}

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def files(self) -> list[str]:
        return sorted(self.fs.listdir(f"{self.directory}/{self.tp}"))
