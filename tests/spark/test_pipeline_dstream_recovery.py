"""A DStream program on a standalone cluster whose executors and driver are killed with kill -9 while records come.

Its direct stream and its receiver, which runs on an executor, lose nothing up to the last record; state and output go
on, each record counted once. `make test-dstream-faults` kills more often.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.pipeline.standalone import StandaloneCluster
from spark.killing import Job, kill, report_kills, watcher

pytestmark = [pytest.mark.java, pytest.mark.timeout(3600)]

PROGRAM = Path(__file__).parents[2] / "examples" / "dstream_counts.py"
KINDS = ("direct", "received")
KILLS = int(os.environ.get("OTTLA_DSTREAM_KILLS", "2"))
"""Executors and the driver take turns."""
VALUES = 5
BETWEEN_KILLS = 20
_PACE_S = 0.1
_DEADLINE_S = 500.0


class Feeder:
    """Writes a record to each topic again and again, and keeps what was acknowledged."""

    def __init__(self, bootstrap: str, sources: dict[str, str]) -> None:
        self.written: Counter[str] = Counter()
        self._sources = sources
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(_PACE_S):
            for kind, topic in self._sources.items():
                value = f"{kind}-{number % VALUES}"
                self._producer.produce(topic, value, partition=number % 2, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.written[message.value().decode()] += 1

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Write while the block runs; afterwards everything is acknowledged."""
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()
            assert self._producer.flush(60) == 0


class Counts:
    """What the program has committed to its target topic."""

    def __init__(self, bootstrap: str, target: str) -> None:
        self.newest: Counter[str] = Counter()
        self._consumer = watcher(bootstrap, target, "read_committed")

    def total(self, kind: str) -> int:
        return sum(count for value, count in self.newest.items() if value.startswith(kind))

    def wait_for(self, job: Job, wanted: dict[str, int]) -> None:
        """Return when so many records of each kind are counted, or more."""
        deadline = time.monotonic() + _DEADLINE_S
        while any(self.total(kind) < count for kind, count in wanted.items()):
            message: Any = self._consumer.poll(0.5)
            if message is not None and not message.error():
                self.newest[message.key().decode()] = int(message.value().split()[1])
            assert job.poll() is None, said(job)
            assert time.monotonic() < deadline, (wanted, self.newest, said(job))

    def wait_for_more(self, job: Job, count: int) -> None:
        self.wait_for(job, {kind: self.total(kind) + count for kind in KINDS})


def said(job: Job) -> str:
    """What the program complained of: the first words, which have the cause, and the last."""
    lines = [line for line in job.output().splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines if len(lines) < 120 else [*lines[:80], "...", *lines[-40:]])


def results(kafka: Any, target: str) -> list[tuple[str, int, int]]:
    """(value, batch, count) of all committed records."""
    found = []
    for message in kafka.read(target):
        batch, count = message.value().decode().split(" ")
        found.append((message.key().decode(), int(batch), int(count)))
    return found


def test_counts_go_on_after_executors_and_the_driver_are_killed(
    ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    sources = {kind: ottla_kafka.make(name(kind), 2) for kind in KINDS}
    target = ottla_kafka.make(name("out"), 1)
    done: Counter[str] = Counter()
    feeder, counts = Feeder(ottla_kafka.bootstrap, sources), Counts(ottla_kafka.bootstrap, target)
    with StandaloneCluster(workers=2, cores=1, directory=tmp_path / "cluster") as cluster:
        command = [
            *(sys.executable, str(PROGRAM), "--bootstrap-server", ottla_kafka.bootstrap),
            *("--master", cluster.master, "--interval", "4"),
            *("--source", sources["direct"], "--received", sources["received"], "--target", target),
            *("--checkpoint", (tmp_path / "checkpoint").as_uri()),
        ]
        job = Job(command, tmp_path / "driver.log").start()
        try:
            with feeder.feeding():
                for number in range(KILLS):
                    counts.wait_for_more(job, BETWEEN_KILLS)
                    if number % 2 == 0:
                        killed = [kill(pid) for pid in cluster.executor_pids()]
                        assert any(killed)
                        done["executor"] += sum(killed)
                    else:
                        job.kill()
                        job.start()
                        done["driver"] += 1
                counts.wait_for_more(job, BETWEEN_KILLS)
            # Also the driver that recovered runs its tasks on the cluster.
            assert cluster.executor_pids()
            everything = sum(feeder.written.values()) // len(KINDS)
            counts.wait_for(job, dict.fromkeys(KINDS, everything))
        finally:
            job.kill()
    assert counts.newest == feeder.written
    found = results(ottla_kafka, target)
    written = Counter((value, batch) for value, batch, _ in found)
    assert set(written.values()) == {1}, "each batch is in the target once"
    for wanted in {value for value, _, _ in found}:
        counted = [count for value, _, count in sorted(found, key=lambda one: one[1]) if value == wanted]
        assert counted == sorted(counted)
    report_kills(done)
