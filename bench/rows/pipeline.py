"""The data pipeline: what its sink writes from Arrow, on one core."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load

_PARTITIONS = 4


def sink(bench: Bench) -> None:
    """Columns of 100 B values with keys, encoded and written in transactions."""
    row = "sink from Arrow, 100 B"
    records = bench.scale.records(100) // 1_000_000 * 1_000_000 or 500_000
    for system in bench.turns(bench.scale.few_rounds):
        topic = bench.topic(system, "sink", _PARTITIONS)
        figures = load.run("sink", Load(system.bootstrap, topic, records, 100, _PARTITIONS))
        for name, value in figures.items():
            bench.sheet.add(system.name, row, name, "records/s", value, higher=True)
        load.delete_topic(system.bootstrap, topic)
