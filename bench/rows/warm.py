"""Warm-up of both systems before the measurements."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.rows import latency


def warm_up(bench: Bench) -> None:
    """Warm up with large and with many small requests: a JIT needs that for a fair measurement."""
    for system in bench.turns(rounds=1):
        for size in (100, 1000):
            topic = bench.topic(system, "warm", 4)
            plan = Load(system.bootstrap, topic, bench.scale.records(size), size)
            load.run("produce", plan)
            load.run("consume", plan)
            load.delete_topic(system.bootstrap, topic)
        small = latency.plan(bench, system, bench.scale.seconds)
        load.run("latency", small)
        load.delete_topic(system.bootstrap, small.topic)
