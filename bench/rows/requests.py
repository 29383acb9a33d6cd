"""Requests of one record: where the cost of a request is everything, with one client and with two hundred."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import System, cpu_seconds

_CONNECTIONS = 200


def one_record(bench: Bench) -> None:
    """No lingering, no batching: librdkafka, and a bare socket that costs next to nothing itself."""
    for in_flight in (1, 5):
        for system in bench.turns(bench.scale.few_rounds):
            topic = bench.topic(system, "one-record", 1)
            plan = Load(
                system.bootstrap,
                topic,
                partitions=1,
                linger_ms=0,
                batch_records=1,
                in_flight=in_flight,
                seconds=bench.scale.seconds / 2,
            )
            row = f"one-record requests, {in_flight} in flight"
            _count(bench, system, row, "librdkafka", "produce-for", plan)
            _count(bench, system, row, "bare socket", "swarm", plan)
            load.delete_topic(system.bootstrap, topic)


def many_clients(bench: Bench) -> None:
    """Two hundred connections, each with one request of one record under way."""
    for size in (100, 1000):
        for system in bench.turns(bench.scale.few_rounds):
            topic = bench.topic(system, "clients", 8)
            plan = Load(
                system.bootstrap,
                topic,
                partitions=8,
                size=size,
                in_flight=1,
                connections=_CONNECTIONS,
                seconds=bench.scale.seconds / 2,
            )
            row = f"{_CONNECTIONS} connections, {size} B"
            _count(bench, system, row, "requests", "swarm", plan)
            load.delete_topic(system.bootstrap, topic)


def _count(bench: Bench, system: System, row: str, name: str, kind: str, plan: Load) -> None:
    before = cpu_seconds(system.pid)
    figures = load.run(kind, plan)
    cpu = cpu_seconds(system.pid) - before
    rate = figures.pop("records/s")
    bench.sheet.add(system.name, row, name, "requests/s", rate, higher=True)
    bench.sheet.add(system.name, row, f"{name} broker CPU", "µs/request", cpu * 1e6 / (rate * plan.seconds))
    for figure, value in figures.items():
        bench.sheet.add(system.name, row, figure, "ms", value)
