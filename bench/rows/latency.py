"""Latency at 20,000 records/s: undisturbed, beside a reader of cold data, beside a compaction."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import System

RATE = 20_000
_LINGER_MS = 2
"""Four partitions make 2,000 requests/s of it: both brokers hold the rate on two cores, clients beside them."""
_COLD_BYTES_A_SECOND = 250_000_000
"""The same rate for both: a faster broker must not be charged for doing more work."""
_MAY_STAY = 0.05
_SENDER_LATE_MS = 5.0


def plan(bench: Bench, system: System, seconds: float) -> Load:
    topic = bench.topic(system, "latency", 4)
    return Load(system.bootstrap, topic, rate=RATE, seconds=seconds, linger_ms=_LINGER_MS)


def _add(bench: Bench, system: System, row: str, figures: dict[str, float]) -> None:
    rate = figures.pop("rate")
    if rate < 0.95 * RATE:
        bench.sheet.note(f"{row}: {system.name} held only {rate:,.0f} records/s")
    late = figures.pop("sender late p99")
    if late > _SENDER_LATE_MS:
        bench.sheet.note(f"{row}: beside {system.name} the sender itself was {late:.1f} ms late at p99")
    for name, value in figures.items():
        bench.sheet.add(system.name, row, name, "ms", value)


def steady(bench: Bench) -> None:
    row = "latency at 20 k/s"
    for system in bench.turns(bench.scale.few_rounds):
        wanted = plan(bench, system, bench.scale.seconds)
        _add(bench, system, row, load.run("latency", wanted))
        load.delete_topic(system.bootstrap, wanted.topic)


def beside_a_cold_read(bench: Bench) -> None:
    """A backlog is written, put out of the page cache, and read at a fixed pace while others write and read."""
    row = f"latency beside a cold read of {bench.scale.cold_gb:g} GB"
    records = int(bench.scale.cold_gb * 1e6)
    backlogs: dict[str, Load] = {}
    for system in bench.turns(1):
        topic = bench.topic(system, "cold", 4)
        backlogs[system.name] = Load(system.bootstrap, topic, records, 1000, rate=_COLD_BYTES_A_SECOND)
        load.run("produce", backlogs[system.name])
    for system in bench.turns(1):
        backlog = backlogs[system.name]
        if (left := put_out_of_memory(system.data, backlog.topic)) > _MAY_STAY:
            bench.sheet.note(f"{row}: {left:.0%} of {system.name}'s backlog stayed in the page cache")
        wanted = plan(bench, system, max(bench.scale.cold_gb * 1e9 / _COLD_BYTES_A_SECOND, 1))
        reader = load.start("drain", backlog)
        figures = load.run("latency", wanted)
        read = load.finish(reader)
        _add(bench, system, row, figures)
        bench.sheet.add(system.name, row, "cold reader", "MB/s", read["MB/s"], higher=True)
        for topic in (wanted.topic, backlog.topic):
            load.delete_topic(system.bootstrap, topic)


def put_out_of_memory(data: Path, topic: str) -> float:
    """Sync a topic's segments and drop them from the page cache. Returns the share that stayed."""
    kept = total = 0
    for path in data.glob(f"{topic}-*/*.log"):
        fd = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            # Check a sample of the file: a page that can be read without waiting is still in memory.
            probes = range(0, size, max(size // 100, 4096))
            total += len(probes)
            kept += sum(_in_memory(fd, position) for position in probes)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    return kept / total if total else 1.0


def _in_memory(fd: int, position: int) -> bool:
    try:
        return os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def beside_a_compaction(bench: Bench) -> None:
    """A topic with many records of few keys is compacted while others write and read."""
    row = f"latency beside a compaction of {bench.scale.compact_mb} MB"
    records = bench.scale.compact_mb * 1_000_000 // 200
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(bench.scale.compact_mb * 1_000_000 // 12),
        "min.cleanable.dirty.ratio": "1.0",
    }
    for system in bench.turns(1):
        topic = bench.topic(system, "compacted", 1, config)
        load.run("produce", Load(system.bootstrap, topic, records, 200, partitions=1, keys=500))
        wanted = plan(bench, system, bench.scale.seconds)
        load.alter_topic(system.bootstrap, topic, {"min.cleanable.dirty.ratio": "0.01"})
        _add(bench, system, row, load.run("latency", wanted))
        checkpoint = system.data / "cleaner-offset-checkpoint"
        end = time.monotonic() + 60
        while not (done := checkpoint.exists() and topic in checkpoint.read_text()):
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        if not done:
            bench.sheet.note(f"{row}: {system.name} had not compacted a minute after it was asked to")
        for each in (topic, wanted.topic):
            load.delete_topic(system.bootstrap, each)
