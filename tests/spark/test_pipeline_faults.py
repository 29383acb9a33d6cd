"""Exactly once while driver, executors and Python workers of a standalone Spark cluster are killed with kill -9.

`make test-faults` runs it with 500,000 records and 20 kills, also on Apache Kafka; here it is small enough for every
run, and on Ottla only: each kill costs a start of Spark.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import Job, kill_while_it_runs

from ottla.pipeline.standalone import StandaloneCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(3600)]

IDS = int(os.environ.get("OTTLA_FAULT_RECORDS", "12000")) // 2
KILLS = int(os.environ.get("OTTLA_FAULT_KILLS", "3"))
LONG = "OTTLA_FAULT_RECORDS" in os.environ
BATCHES = max(6, 2 * KILLS)
_APART = 500


def each_twice(count: int) -> Iterator[int]:
    """Numbers that come again some time after they came first."""
    for start in range(0, count, _APART):
        once = range(start, min(start + _APART, count))
        yield from once
        yield from once


@pytest.mark.parametrize("kafka", ["ottla", "apache"] if LONG else ["ottla"], indirect=True)
def test_each_result_once_while_processes_are_killed(kafka: Any, name: Any, tmp_path: Path) -> None:
    source, target = kafka.make(name("in"), 4), kafka.make(name("out"), 3)
    kafka.fill(source, ((str(number), f"id-{number}") for number in each_twice(IDS)))
    with StandaloneCluster(workers=2, cores=1, memory="700m", directory=tmp_path / "cluster") as cluster:
        arguments = [
            *(kafka.bootstrap, source, target, str(tmp_path / "checkpoint"), cluster.master),
            str(2 * IDS // BATCHES),
        ]
        job = Job(arguments, tmp_path / "driver.log")
        killed = kill_while_it_runs(
            kafka.bootstrap, target, job, cluster, KILLS, every=max(1, IDS // (KILLS + 1))
        )
    assert sum(killed.values()) - killed["failed runs"] == KILLS, killed
    found = Counter(one.value() for one in kafka.read(target))
    expected = {f"ID-{number}".encode() for number in range(IDS)}
    assert set(found) == expected, f"{len(expected - set(found))} missing after {killed}"
    assert max(found.values()) == 1, f"{sum(found.values()) - len(found)} doubled after {killed}"
    assert kafka.committed(f"{target}-group", source) == kafka.ends(source)
