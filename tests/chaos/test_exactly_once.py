"""Exactly once: a job that reads, transforms and writes in transactions, while it and its broker are killed."""

from __future__ import annotations

import queue
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once_job import INPUT, OUTPUT, PARTITIONS, transform

from ottla.testing.process import BrokerProcess

JOB = Path(__file__).with_name("exactly_once_job.py")


PHASES = ("begun", "sent", "offsets", "committed")


class Job:
    """The job's process, started again whenever it has ended with its work undone."""

    def __init__(self, bootstrap: str, per_transaction: int, errors: Path) -> None:
        self._command = [sys.executable, str(JOB), bootstrap, str(per_transaction)]
        self._errors = errors
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._said: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, args=(self._process, self._said))
        self._listener.start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], said: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said.put(line.strip())
        said.put(None)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()

    def next_phase(self, timeout_s: float) -> str | None:
        """What it says next, from whichever instance; None once all of the work is done."""
        while True:
            try:
                phase = self._said.get(timeout=timeout_s)
            except queue.Empty:
                raise AssertionError(f"silent for {timeout_s} s\n{self._errors.read_text()}") from None
            if phase is not None:
                return phase
            if self._process.wait() == 0:
                return None
            self._start()


def fill(bootstrap: str, count: int) -> list[list[bytes]]:
    """The input topic with so many records, and the empty output; what is in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for number in range(count):
        value = b"%d" % number
        producer.produce(INPUT, value, partition=number % PARTITIONS)
        values[number % PARTITIONS].append(value)
        if number % 10_000 == 0:
            producer.flush()
    assert producer.flush(60) == 0
    return values


def read_committed(bootstrap: str) -> list[list[bytes]]:
    """Everything that a read_committed reader finds in the output."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + 120
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                values[message.partition()].append(message.value())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    consumer.close()
    return values


def run(data: Path, *, records: int, per_transaction: int, job_kills: int, broker_kills: int) -> None:
    rng = random.Random(records)
    broker = BrokerProcess(data, settings={"group.initial.rebalance.delay.ms": 0}).start()
    kills = ["job"] * job_kills + ["broker"] * broker_kills
    rng.shuffle(kills)
    every = records // per_transaction // (len(kills) + 1)
    job: Job | None = None
    try:
        values = fill(broker.bootstrap, records)
        job = Job(broker.bootstrap, per_transaction, data.with_name("job.stderr"))
        commits, kill_in = 0, ""
        while (phase := job.next_phase(120)) is not None:
            if phase == kill_in:
                kill_in = ""
                if kills.pop() == "job":
                    job.kill()
                else:
                    broker.kill()
                    broker.start()
            elif phase == "committed":
                commits += 1
                if kills and commits % every == 0:
                    kill_in = rng.choice(PHASES)
        assert not kills, f"{len(kills)} kills were left over"
        assert job.starts > job_kills
        assert read_committed(broker.bootstrap) == [[transform(value) for value in part] for part in values]
        assert broker.stop() == 0
        assert "Traceback" not in broker.log, broker.log
    finally:
        if job is not None:
            job.kill()
        broker.kill()


def test_a_small_job_survives_a_kill_of_each(tmp_path: Path) -> None:
    run(tmp_path / "data", records=6_000, per_transaction=250, job_kills=1, broker_kills=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_exactly_once_through_twenty_kills(tmp_path: Path) -> None:
    run(tmp_path / "data", records=200_000, per_transaction=750, job_kills=10, broker_kills=10)
