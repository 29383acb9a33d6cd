"""What both systems do before anything is measured."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.rows import latency


def warm_up(bench: Bench) -> None:
    """A JIT needs to have seen the work before it is fair to measure it: large requests, and many small ones."""
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
