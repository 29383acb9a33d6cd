"""One machine with one broker process and with two: small requests of many clients, and commits of ten."""

from __future__ import annotations

import os

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.machine_processes import OttlaMachine
from bench.sheet import KAFKA, OTTLA
from bench.systems import HELD_SETTINGS, Kafka, System, cpu_seconds, rss_mb, stop_cleanly

PROCESSES = "machine with "
_COUNTS = (1, 2)
_CONNECTIONS = 200
_PARTITIONS = 16
_COMMITTERS = 10
_WARM_ROUNDS = 4
"""With one round, Apache Kafka took several times the CPU for a request that it takes when it is warm."""


def processes(bench: Bench) -> None:
    """Apache Kafka uses all cores with one process: its figures stand beside each number of Ottla's processes."""
    names = {system.name for system in bench.systems}
    directory = bench.directory / "processes"
    counts = [count for count in _COUNTS if count <= (os.cpu_count() or 1)]
    systems: list[System] = []
    if OTTLA in names:
        systems += [OttlaMachine(directory / str(count), count) for count in counts]
    if KAFKA in names:
        systems.append(Kafka(directory / KAFKA, HELD_SETTINGS))
    try:
        for system in systems:
            system.start()
        for system in bench.turns(_WARM_ROUNDS, systems):
            _measure(bench, system, [])
        for system in bench.turns(bench.scale.few_rounds, systems):
            _measure(bench, system, [system.count] if isinstance(system, OttlaMachine) else counts)
        stop_cleanly(systems)
    finally:
        for system in systems:
            system.resume()
            system.kill()
            system.wipe()


def _measure(bench: Bench, system: System, counts: list[int]) -> None:
    """Add the figures to the rows of these numbers of processes; without any, this warms the system up."""

    def add(name: str, unit: str, value: float, *, higher: bool = False) -> None:
        for count in counts:
            bench.sheet.add(system.name, f"{PROCESSES}{count} processes", name, unit, value, higher=higher)

    def cpu() -> float:
        return system.cpu_seconds() if isinstance(system, OttlaMachine) else cpu_seconds(system.pid)

    for size, name in ((100, "requests"), (1000, "requests of 1 kB")):
        topic = bench.topic(system, "processes", _PARTITIONS)
        plan = Load(
            system.bootstrap,
            topic,
            partitions=_PARTITIONS,
            size=size,
            in_flight=1,
            connections=_CONNECTIONS,
            seconds=bench.scale.seconds / 2,
        )
        before = cpu()
        figures = load.run("swarm", plan)
        rate = figures["records/s"]
        add(name, "requests/s", rate, higher=True)
        add(f"{name}, broker CPU", "µs/request", (cpu() - before) * 1e6 / (rate * plan.seconds))
        add(f"{name}, answer p99", "ms", figures["answer p99"])
        load.delete_topic(system.bootstrap, topic)
    for how, name in (("", "commits of ten clients"), ("bare-", "commits of ten bare sockets")):
        topic = bench.topic(system, "commits", 1)
        plan = Load(
            system.bootstrap,
            topic,
            partitions=1,
            seconds=bench.scale.seconds / 2,
            connections=_COMMITTERS,
        )
        before = cpu()
        rate = load.run(f"{how}commits", plan)["commits/s"]
        add(name, "commits/s", rate, higher=True)
        add(f"{name}, broker CPU", "µs/commit", (cpu() - before) * 1e6 / (rate * plan.seconds))
        load.delete_topic(system.bootstrap, topic)
    memory = system.rss_mb() if isinstance(system, OttlaMachine) else rss_mb(system.pid)
    add("memory", "MB", memory)
