"""Exactly once while driver, executors and Python workers of a standalone Spark cluster are killed with kill -9.

`make test-faults` runs it with 500,000 records and 20 kills, also on Apache Kafka; here it is small enough for every
run, and on Ottla only: each kill costs a start of Spark.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.standalone import StandaloneCluster
from ottla.testing.apache import run_java
from ottla.testing.ports import free_ports
from spark.applications import COUNTS, TALLIES, run_command, written
from spark.killing import Job, kill_while_it_runs, report_kills

pytestmark = [pytest.mark.java, pytest.mark.timeout(7200)]

IDS = int(os.environ.get("OTTLA_FAULT_RECORDS", "12000")) // 2
KILLS = int(os.environ.get("OTTLA_FAULT_KILLS", "3"))
LONG = "OTTLA_FAULT_RECORDS" in os.environ
BATCHES = max(6, KILLS + 4)
RUNS = [("ottla", "tallies"), ("apache", "tallies"), ("ottla", "counts"), ("apache", "counts")]
TEXTS = {"tallies": TALLIES, "counts": COUNTS}


def lag(kafka: Any, group: str, topic: str) -> int:
    done = kafka.committed(group, topic)
    return sum(end - max(0, done[partition]) for partition, end in kafka.ends(topic).items())


@pytest.mark.parametrize(("kafka", "state"), RUNS if LONG else RUNS[:1], indirect=["kafka"])
def test_each_result_once_while_processes_are_killed(
    kafka: Any, state: str, name: Any, tmp_path: Path
) -> None:
    source, target, application = kafka.make(name("in"), 4), kafka.make(name("out"), 3), name("app")
    # Every id comes twice, so far apart that a batch has it once: 1 and 2 must be written for each, once.
    for _ in range(2):
        kafka.fill(source, ((str(number), f"id-{number}") for number in range(IDS)))
    file = written(TEXTS[state], tmp_path, source, target)
    started, lags = time.monotonic(), [lag(kafka, application, source)]
    port, web_port = free_ports(2)
    with StandaloneCluster(
        workers=2, cores=1, memory="700m", port=port, web_port=web_port, directory=tmp_path / "cluster"
    ) as cluster:
        more = ("--once", "--batch-records", str(2 * IDS // BATCHES), "--master", cluster.master)
        job = Job(run_command(file, kafka, application, tmp_path / "state", *more), tmp_path / "driver.log")
        killed = kill_while_it_runs(
            kafka.bootstrap,
            target,
            job,
            cluster,
            KILLS,
            every=2 * IDS // (KILLS + 1),
            look=lambda: lags.append(lag(kafka, application, source)),
        )
    print(f"{2 * IDS:,} records, {dict(killed)}, {time.monotonic() - started:.0f} s, lags {lags}")
    assert sum(killed.values()) - killed["failed runs"] == KILLS, killed
    found = Counter((one.key(), int.from_bytes(one.value(), "big")) for one in kafka.read(target))
    expected = {(b"id-%d" % number, count) for number in range(IDS) for count in (1, 2)}
    assert set(found) == expected, f"{len(expected - set(found))} missing after {killed}"
    assert max(found.values()) == 1, f"{sum(found.values()) - len(found)} doubled after {killed}"
    assert lags[0] == 2 * IDS
    assert lags == sorted(lags, reverse=True)
    shown = run_java(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", kafka.bootstrap, "--describe", "--group", application),
    )
    assert [line.split()[5] for line in shown.splitlines() if source in line.split()[1:2]] == ["0"] * 4, shown
    report_kills(killed)
