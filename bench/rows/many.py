"""Thousands of partitions on one node and on three: create them, hold them, lose a broker, restart."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.clusters import CLUSTERS, ClusterSystem
from bench.context import Bench
from bench.load.every import create, topics_for, until_all_in_sync, write_everywhere
from bench.systems import Kafka, Ottla, System, cpu_seconds, rss_mb

_NODES = 3
_SETTLE_S = 5.0
_IDLE_S = 15.0


def one_node(bench: Bench) -> None:
    """Measure one system after the other, each alone on the machine."""
    names = {system.name for system in bench.systems}
    count = max(bench.scale.restart)
    for make in (Ottla, Kafka):
        if make.name in names:
            # Without the watchdog: its timer costs more than an idle broker.
            system = make(bench.directory / f"many-{count}" / make.name, plain=True)
            try:
                _life(bench, system, f"one node, {count:,} partitions", topics_for(count))
            finally:
                system.kill()
                system.wipe()


def _life(bench: Bench, system: System, row: str, topics: list[str]) -> None:
    def add(name: str, unit: str, value: float) -> None:
        bench.sheet.add(system.name, row, name, unit, value)

    system.start()
    _make(system.bootstrap, topics, 1, add)
    time.sleep(_SETTLE_S)
    add("idle CPU", "% of a core", _idle(lambda: cpu_seconds(system.pid)))
    add("memory", "MB", rss_mb(system.pid))
    for how in ("a clean stop", "kill -9"):
        system.stop() if how == "a clean stop" else system.kill()
        begin = time.monotonic()
        system.start()
        write_everywhere(system.bootstrap, topics)
        add(f"restart after {how} until every partition took a write", "s", time.monotonic() - begin)
    system.stop()


def cluster(bench: Bench) -> None:
    """Three nodes, replication factor 3, acks=all."""
    names = {system.name for system in bench.systems}
    count = max(bench.scale.restart)
    for make in CLUSTERS:
        if make.name in names:
            system = make(bench.directory / f"many-three-{count}" / make.name, _NODES, held=False)
            try:
                _cluster_life(bench, system, f"three nodes, {count:,} partitions", topics_for(count))
            finally:
                system.kill_all()
                system.wipe()


def _cluster_life(bench: Bench, system: ClusterSystem, row: str, topics: list[str]) -> None:
    def add(name: str, unit: str, value: float) -> None:
        bench.sheet.add(system.name, row, name, unit, value)

    system.start()
    time.sleep(_SETTLE_S)
    _make(system.bootstrap, topics, _NODES, add)
    until_all_in_sync(system.bootstrap, topics, _NODES)
    time.sleep(_SETTLE_S)
    add("idle CPU of all brokers", "% of a core", _idle(system.cpu_seconds))
    add("memory of all brokers", "MB", system.rss_mb())
    for victim, how in ((1, "kill -9"), (2, "planned stop")):
        system.kill(victim) if how == "kill -9" else system.stop_one(victim)
        add(f"{how} until every partition took a write", "s", write_everywhere(system.bootstrap, topics))
        begin = time.monotonic()
        system.start_one(victim)
        until_all_in_sync(system.bootstrap, topics, _NODES)
        add(f"back after {how} until all is in sync", "s", time.monotonic() - begin)
    system.stop()


def _make(bootstrap: str, topics: list[str], replicas: int, add: Callable[[str, str, float], None]) -> None:
    begin = time.monotonic()
    create(bootstrap, topics, replicas)
    add("created", "s", time.monotonic() - begin)
    write_everywhere(bootstrap, topics)
    add("creation until every partition took a write", "s", time.monotonic() - begin)


def _idle(cpu: Callable[[], float]) -> float:
    before = cpu()
    time.sleep(_IDLE_S)
    return (cpu() - before) / _IDLE_S * 100
