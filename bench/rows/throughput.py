"""Produce and read back with librdkafka: by record size, acks, codec and number of partitions."""

from __future__ import annotations

from typing import Any

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import System, cpu_seconds, rss_mb


def measure(
    bench: Bench, system: System, row: str, *, reads: bool = True, share: float = 1.0, **options: Any
) -> None:
    """One turn: produce, perhaps read it all back; records a second, and the broker's CPU for it."""
    size = int(options.get("size", 100))
    records = int(bench.scale.records(size) * share)
    plan = Load(system.bootstrap, bench.topic(system, row, options.get("partitions", 4)), records, **options)
    gigabytes = records * size / 1e9
    for kind in ("produce", "consume") if reads else ("produce",):
        bench.make_ready(plan)
        before = cpu_seconds(system.pid)
        seconds = load.run(kind, plan)["seconds"]
        cpu = cpu_seconds(system.pid) - before
        bench.sheet.add(system.name, row, kind, "records/s", records / seconds, higher=True)
        bench.sheet.add(system.name, row, f"{kind} broker CPU", "s/GB", cpu / gigabytes)
    bench.sheet.add(system.name, row, "memory under load", "MB", rss_mb(system.pid))
    load.delete_topic(system.bootstrap, plan.topic)


def sizes(bench: Bench) -> None:
    for size in (100, 1000):
        for system in bench.turns():
            measure(bench, system, f"{size} B", size=size)
            _drain(bench, system, f"{size} B", size)


def _drain(bench: Bench, system: System, row: str, size: int) -> None:
    """The same data read by a client that does nothing with it: what the broker alone can give."""
    topic = bench.topic(system, row, 4)
    plan = Load(system.bootstrap, topic, bench.scale.records(size), size)
    load.run("produce", plan)
    bench.make_ready(plan)
    before = cpu_seconds(system.pid)
    figures = load.run("drain", plan)
    cpu = cpu_seconds(system.pid) - before
    bench.sheet.add(system.name, row, "fetch, bare socket", "MB/s", figures["MB/s"], higher=True)
    gigabytes = figures["MB/s"] * figures["seconds"] / 1e3
    bench.sheet.add(system.name, row, "fetch, bare socket broker CPU", "s/GB", cpu / gigabytes)
    load.delete_topic(system.bootstrap, topic)


def acks(bench: Bench) -> None:
    for wanted in ("0", "all"):
        for size in (100, 1000):
            for system in bench.turns(bench.scale.few_rounds):
                measure(bench, system, f"{size} B acks={wanted}", reads=False, acks=wanted, size=size)


def codecs(bench: Bench) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for system in bench.turns(bench.scale.few_rounds):
            measure(bench, system, f"100 B {codec}", share=0.5, codec=codec)


def partitions(bench: Bench) -> None:
    for count in (1, 8, 1000):
        for system in bench.turns(bench.scale.few_rounds):
            measure(bench, system, f"100 B {count:,} partitions", partitions=count)
