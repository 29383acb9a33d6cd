"""A topic into Spark's rows: Ottla's reader or Spark's own Kafka source, on one core."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.load import Load
from ottla.pipeline import spark_session

_ROUNDS = 4
_COUNTED = 2
"""The first rounds compile code; the best of the last ones counts."""
_WARM_RECORDS = 1
"""What the writer of the topic sends before its load."""
_CPU_FIELDS = slice(11, 15)
_PARENT = 1


def with_ottla(load: Load) -> dict[str, float]:
    """By `format("ottla")`."""
    return _read(load, "ottla")


def with_spark(load: Load) -> dict[str, float]:
    """By `format("kafka")`."""
    return _read(load, "kafka")


def _read(load: Load, how: str) -> dict[str, float]:
    """Records a second of the wall, and of the processor time of driver, JVM and workers together."""
    spark = spark_session("bench-reader", master="local[1]", settings={"spark.ui.enabled": "false"})
    frame = (
        spark.read.format(how)
        .option("kafka.bootstrap.servers", load.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", load.topic)
        .load()
    )
    walls, cores = [], []
    for _ in range(_ROUNDS):
        begin, spent = time.perf_counter(), _cpu_seconds()
        frame.write.format("noop").mode("overwrite").save()
        walls.append(time.perf_counter() - begin)
        cores.append(_cpu_seconds() - spent)
    found = frame.count()
    if found != load.records + _WARM_RECORDS:
        raise RuntimeError(f"{how} read {found} of {load.records + _WARM_RECORDS} records")
    spark.stop()
    return {
        "records/s": load.records / min(walls[-_COUNTED:]),
        "records per core second": load.records / min(cores[-_COUNTED:]),
    }


def _cpu_seconds() -> float:
    """The processor time of this process and of all that descend from it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[_PARENT]), sum(map(int, fields[_CPU_FIELDS]))
    here = os.getpid()

    def is_ours(pid: int) -> bool:
        while pid and pid != here:
            pid = parents.get(pid, 0)
        return pid == here

    return sum(used for pid, used in ticks.items() if is_ours(pid)) / os.sysconf("SC_CLK_TCK")
