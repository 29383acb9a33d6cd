"""What is measured. A row runs on both systems in turn, several rounds, and yields samples by metric."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import clients
from bench.clients import Load
from bench.systems import Kafka, Ottla, System, cpu_seconds, rss_mb

_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a row does: the quick form fits into three minutes."""

    rounds: int
    megabytes: int
    seconds: int


QUICK = Scale(rounds=2, megabytes=100, seconds=4)
FULL = Scale(rounds=5, megabytes=300, seconds=15)


@dataclass(slots=True)
class Metric:
    """Samples of one figure from both systems."""

    row: str
    name: str
    unit: str
    higher_is_better: bool
    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, system: str, value: float) -> None:
        self.samples.setdefault(system, []).append(value)


class Sheet:
    """All metrics of a run, in the order in which they first came."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str], Metric] = {}

    def add(
        self, system: System, row: str, name: str, unit: str, value: float, *, higher: bool = False
    ) -> None:
        metric = self.metrics.setdefault((row, name), Metric(row, name, unit, higher))
        metric.add(system.name, value)


@dataclass(slots=True)
class Bench:
    """The two systems, started and warm, and where their figures go."""

    systems: list[System]
    scale: Scale
    sheet: Sheet
    directory: Path

    def turns(self) -> Iterator[System]:
        """Each system once a round; who begins changes with the round."""
        for turn in range(self.scale.rounds):
            yield from self.systems if turn % 2 == 0 else reversed(self.systems)


Row = Callable[[Bench], None]


def warm_up(bench: Bench) -> None:
    """A JIT needs to have seen the work before it is fair to measure it."""
    for system in bench.systems:
        for size in (100, 1000):
            topic = f"warm-{next(_names)}"
            clients.create_topic(system.bootstrap, topic, 4)
            records = bench.scale.megabytes * 1_000_000 // size
            clients.run("produce", Load(system.bootstrap, topic, records, size))
            clients.run("consume", Load(system.bootstrap, topic, records, size))
            clients.delete_topic(system.bootstrap, topic)


def _throughput(bench: Bench, row: str, **options: object) -> None:
    """Produce, then read it all back: records a second, and the broker's CPU for it."""
    for system in bench.turns():
        topic = f"{row.replace(' ', '-').replace('=', '-')}-{next(_names)}"
        size = int(str(options.get("size", 100)))
        records = bench.scale.megabytes * 1_000_000 // size
        load = Load(system.bootstrap, topic, records, **options)  # type: ignore[arg-type]
        clients.create_topic(system.bootstrap, topic, load.partitions)
        for kind in ("produce", "consume"):
            before = cpu_seconds(system.pid)
            seconds = clients.run(kind, load)["seconds"]
            cpu = cpu_seconds(system.pid) - before
            gigabytes = records * size / 1e9
            bench.sheet.add(system, row, kind, "records/s", records / seconds, higher=True)
            bench.sheet.add(system, row, f"{kind} broker CPU", "s/GB", cpu / gigabytes)
        bench.sheet.add(system, row, "memory", "MB", rss_mb(system.pid))
        clients.delete_topic(system.bootstrap, topic)


def throughput(bench: Bench) -> None:
    for size in (100, 1000):
        _throughput(bench, f"{size} B", size=size)


def acks(bench: Bench) -> None:
    for wanted in ("0", "all"):
        _throughput(bench, f"100 B acks={wanted}", acks=wanted)


def codecs(bench: Bench) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        _throughput(bench, f"100 B {codec}", codec=codec)


def partitions(bench: Bench) -> None:
    for count in (1, 8, 1000):
        _throughput(bench, f"100 B {count} partitions", partitions=count)


def latency(bench: Bench) -> None:
    """Acknowledgement and arrival at 20,000 records/s."""
    for system in bench.turns():
        topic = f"latency-{next(_names)}"
        clients.create_topic(system.bootstrap, topic, 4)
        load = Load(system.bootstrap, topic, 20_000 * bench.scale.seconds, rate=20_000)
        for name, value in clients.run("latency", load).items():
            bench.sheet.add(system, "latency at 20 k/s", name, "ms", value)
        clients.delete_topic(system.bootstrap, topic)


def start(bench: Bench) -> None:
    """From exec to the first answer on a fresh directory, and the memory it then holds."""
    for turn in range(bench.scale.rounds):
        for make in (Ottla, Kafka):
            system = make(bench.directory / f"start-{make.name}-{turn}")
            bench.sheet.add(system, "start", "exec to first answer", "s", system.start())
            bench.sheet.add(system, "start", "idle memory", "MB", rss_mb(system.pid))
            system.stop()
            system.wipe()


def restart(bench: Bench) -> None:
    """The same with 1,000 partitions that hold data, after a clean stop and after kill -9."""
    for make in (Ottla, Kafka):
        system = make(bench.directory / f"restart-{make.name}")
        system.start()
        clients.create_topic(system.bootstrap, "many", 1000)
        clients.run("produce", Load(system.bootstrap, "many", 200_000, partitions=1000))
        for _ in range(bench.scale.rounds):
            system.stop()
            bench.sheet.add(system, "1,000 partitions", "start after a clean stop", "s", system.start())
            system.kill()
            bench.sheet.add(system, "1,000 partitions", "start after kill -9", "s", system.start())
        system.stop()
        system.wipe()


ROWS: dict[str, Row] = {
    "throughput": throughput,
    "latency": latency,
    "acks": acks,
    "codecs": codecs,
    "partitions": partitions,
    "start": start,
    "restart": restart,
}
NEEDS_WARM_SYSTEMS = {"throughput", "latency", "acks", "codecs", "partitions"}
