"""Three brokers, replication factor 3, acks=all: throughput, latency, coordination, and what a failure costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench import load
from bench.clusters import CLUSTERS, ClusterSystem
from bench.context import Bench
from bench.load import Load
from bench.rows.latency import RATE
from bench.sheet import OTTLA

_NODES = 3
_PARTITIONS = 6
_WARM_RUNS = 2
_SETTLE_S = 2.0
_FAULT_AFTER_S = 3.0
_WATCH_S = {"ottla": 10.0, "kafka": 22.0}
"""How long the writer runs: longer than the slowest failover of either system."""


@contextmanager
def _pair(bench: Bench, name: str, *, held: bool) -> Iterator[list[ClusterSystem]]:
    names = {system.name for system in bench.systems}
    systems = [
        make(bench.directory / name / make.name, _NODES, held=held) for make in CLUSTERS if make.name in names
    ]
    try:
        yield systems
    finally:
        for system in systems:
            system.kill_all()
            system.wipe()


def steady(bench: Bench) -> None:
    """Start both clusters; pause one while the other is measured."""
    with _pair(bench, "three", held=True) as systems:
        for system in systems:
            system.start()
            time.sleep(_SETTLE_S)
            _warm(bench, system)
            system.pause()
        for turn in range(bench.scale.few_rounds):
            for system in systems if turn % 2 == 0 else reversed(systems):
                system.resume()
                time.sleep(_SETTLE_S)
                for size in (100, 1000):
                    _throughput(bench, system, size)
                _latency(bench, system)
                for kind in ("commits", "transactions"):
                    _rate(bench, system, kind)
                system.pause()
        for system in systems:
            if system.name == OTTLA:
                system.resume()
                system.stop()


def _topic(bench: Bench, system: ClusterSystem, about: str, partitions: int = _PARTITIONS) -> str:
    name = bench.name(about)
    load.create_topic(system.bootstrap, name, partitions, replicas=_NODES)
    load.until_in_sync(system.bootstrap, name, _NODES)
    return name


def _warm(bench: Bench, system: ClusterSystem) -> None:
    for _ in range(_WARM_RUNS):
        for size in (100, 1000):
            topic = _topic(bench, system, "warm")
            plan = Load(
                system.bootstrap, topic, bench.scale.records(size), size, partitions=_PARTITIONS, acks="all"
            )
            load.run("produce", plan)
            load.delete_topic(system.bootstrap, topic)
        for kind in ("commits", "transactions"):
            topic = _topic(bench, system, "warm", 1)
            load.run(kind, Load(system.bootstrap, topic, partitions=1, seconds=bench.scale.seconds / 2))
            load.delete_topic(system.bootstrap, topic)


def _throughput(bench: Bench, system: ClusterSystem, size: int) -> None:
    row = f"three brokers, {size} B acks=all"
    records = bench.scale.records(size)
    topic = _topic(bench, system, row)
    plan = Load(system.bootstrap, topic, records, size, partitions=_PARTITIONS, acks="all")
    gigabytes = records * size / 1e9
    for kind in ("produce", "consume"):
        bench.make_ready(plan)
        before = system.cpu_seconds()
        seconds = load.run(kind, plan)["seconds"]
        cpu = system.cpu_seconds() - before
        bench.sheet.add(system.name, row, kind, "records/s", records / seconds, higher=True)
        bench.sheet.add(system.name, row, f"{kind}, CPU of all brokers", "s/GB", cpu / gigabytes)
    bench.sheet.add(system.name, row, "memory of all brokers", "MB", system.rss_mb())
    load.delete_topic(system.bootstrap, topic)


def _latency(bench: Bench, system: ClusterSystem) -> None:
    row = "three brokers, latency at 20 k/s acks=all"
    topic = _topic(bench, system, "latency")
    plan = Load(
        system.bootstrap,
        topic,
        rate=RATE,
        seconds=bench.scale.seconds,
        linger_ms=5,
        acks="all",
        partitions=_PARTITIONS,
    )
    figures = load.run("latency", plan)
    for name in ("rate", "sender late p99"):
        figures.pop(name)
    for name, value in figures.items():
        bench.sheet.add(system.name, row, name, "ms", value)
    load.delete_topic(system.bootstrap, topic)


def _rate(bench: Bench, system: ClusterSystem, kind: str) -> None:
    topic = _topic(bench, system, kind, 1)
    plan = Load(system.bootstrap, topic, partitions=1, seconds=bench.scale.seconds / 2)
    (figure,) = load.run(kind, plan).items()
    bench.sheet.add(
        system.name, f"three brokers, {kind}", "one after the other", figure[0], figure[1], higher=True
    )
    load.delete_topic(system.bootstrap, topic)


def failover(bench: Bench) -> None:
    """Measure a writer on six partitions while one broker is killed or stopped, with default settings."""
    with _pair(bench, "failover", held=False) as systems:
        for system in systems:
            system.start()
            time.sleep(_SETTLE_S)
            for turn in range(bench.scale.few_rounds):
                victim = 1 + turn % _NODES
                for how in ("kill -9", "planned stop"):
                    _fail_one(bench, system, victim, how)
            system.stop()


def _fail_one(bench: Bench, system: ClusterSystem, victim: int, how: str) -> None:
    topic = _topic(bench, system, "failover")
    led = [p for p, leader in load.leaders(system.bootstrap, topic).items() if leader == victim]
    plan = Load(
        system.bootstrap,
        topic,
        rate=100,
        partitions=_PARTITIONS,
        seconds=_FAULT_AFTER_S + _WATCH_S[system.name],
    )
    writer = load.start("gaps", plan, signals_ready=True)
    load.wait_ready(writer)
    time.sleep(_FAULT_AFTER_S)
    if how == "kill -9":
        system.kill(victim)
    else:
        system.stop_one(victim)
    figures = load.finish(writer)
    errors = figures.pop("errors")
    row = f"failover, {how}"
    if not led:
        bench.sheet.note(f"{row}: broker {victim} of {system.name} led no partition of the topic")
    ours = [figures[str(p)] for p in led] or [0.0]
    others = [seconds for p, seconds in figures.items() if int(p) not in led]
    bench.sheet.add(system.name, row, "gap on its partitions, median", "s", statistics.median(ours))
    bench.sheet.add(system.name, row, "gap on its partitions, longest", "s", max(ours))
    bench.sheet.add(system.name, row, "gap on all others, longest", "s", max(others))
    bench.sheet.add(system.name, row, "errors", "records", errors)
    system.start_one(victim)
    load.until_in_sync(system.bootstrap, topic, _NODES)
    load.delete_topic(system.bootstrap, topic)
