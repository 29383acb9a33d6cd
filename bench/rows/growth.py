"""The cost of more data and more partitions: the same work at growing sizes, drawn as curves."""

from __future__ import annotations

import shutil

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.rows.throughput import measure

LOG_SIZE = "log of"
PARTITION_CURVE = "curve over"
_KEPT_FREE = 0.15
_SIZE = 1000


def log_size(bench: Bench) -> None:
    """Produce and read at the end of a log that has grown to so many GB. One system after the other, for the disk."""
    for system in bench.turns(1):
        topic = bench.topic(system, "log-size", 4)
        written = 0
        step = bench.scale.records(_SIZE)
        for gigabytes in bench.scale.log_gb:
            fill = int(gigabytes * 1e9 / _SIZE) - written - step
            if shutil.disk_usage(bench.directory).free * (1 - _KEPT_FREE) < fill * _SIZE:
                bench.sheet.note(f"{LOG_SIZE} {gigabytes:g} GB: left out, the disk is too small")
                break
            row = f"{LOG_SIZE} {gigabytes:g} GB"
            if fill > 0:
                load.run("produce", Load(system.bootstrap, topic, fill, _SIZE))
                written += fill
            plan = Load(system.bootstrap, topic, step, _SIZE)
            bench.make_ready(plan)
            seconds = load.run("produce", plan)["seconds"]
            written += step
            bench.sheet.add(system.name, row, "produce", "records/s", step / seconds, higher=True)
            plan = Load(system.bootstrap, topic, step, _SIZE, start=max(0, (written - step) // 4 - 1000))
            bench.make_ready(plan)
            seconds = load.run("consume", plan)["seconds"]
            bench.sheet.add(system.name, row, "consume", "records/s", step / seconds, higher=True)
        load.delete_topic(system.bootstrap, topic)


def partition_curve(bench: Bench) -> None:
    for count in bench.scale.curve:
        for system in bench.turns(1):
            measure(bench, system, f"{PARTITION_CURVE} {count:,} partitions", share=0.5, partitions=count)
