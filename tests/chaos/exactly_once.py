"""Exactly once under fire: a job that copies in transactions, killed together with the brokers it runs on.

`python -m chaos.exactly_once --records 1000000 --job-kills 50 --broker-kills 50` is the long form
(`make exactly-once`).
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.exactly_once_job import INPUT, OUTPUT, PARTITIONS, transform
from ottla.testing.cluster import Cluster
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

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """It does nothing while the block runs."""
        self._process.send_signal(signal.SIGSTOP)
        yield
        self._process.send_signal(signal.SIGCONT)

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


class Brokers(Protocol):
    """What the job runs on: one broker or several."""

    bootstrap: str
    replicas: int

    def wait(self) -> None:
        """Until all of them run."""

    def hit(self, rng: random.Random) -> None:
        """kill -9 one of them and start it again."""

    def finish(self) -> None:
        """They end in order, and nothing is in their logs that should not be."""

    def kill(self) -> None: ...


class One:
    replicas = 1

    def __init__(self, data: Path) -> None:
        self._broker = BrokerProcess(data, settings={"group.initial.rebalance.delay.ms": 0}).start()
        self.bootstrap = self._broker.bootstrap

    def wait(self) -> None: ...

    def hit(self, rng: random.Random) -> None:
        self._broker.kill()
        self._broker.start()

    def finish(self) -> None:
        assert self._broker.stop() == 0
        assert "Traceback" not in self._broker.log, self._broker.log

    def kill(self) -> None:
        self._broker.kill()


class Three:
    """A cluster of three. The job goes on while a node is down."""

    replicas = 3

    def __init__(self, data: Path) -> None:
        self._cluster = Cluster(data, settings={"min.insync.replicas": 2}).start()
        self.bootstrap = self._cluster.bootstrap
        self._starts = futures.ThreadPoolExecutor(1)
        self._starting: futures.Future[None] | None = None

    def hit(self, rng: random.Random) -> None:
        victim = rng.choice(self._cluster.broker_ids)
        self._cluster.kill(victim)
        self._starting = self._starts.submit(self._cluster.start_node, victim)

    def wait(self) -> None:
        if self._starting is not None:
            self._starting.result()

    def finish(self) -> None:
        self.wait()
        self._cluster.stop_all()
        for node_id in self._cluster.nodes:
            assert "Traceback" not in self._cluster.log(node_id), self._cluster.log(node_id)

    def kill(self) -> None:
        self._starts.shutdown()
        self._cluster.kill_all()


def fill(bootstrap: str, count: int, replicas: int) -> list[list[bytes]]:
    """The input topic with so many records, and the empty output; what is in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, replicas) for name in (INPUT, OUTPUT)]
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


def ends_of_output(bootstrap: str) -> list[int]:
    """Where the partitions of the output end, decided or not."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted"}
    )
    try:
        partitions = [TopicPartition(OUTPUT, partition) for partition in range(PARTITIONS)]
        return [int(consumer.get_watermark_offsets(each, timeout=120)[1]) for each in partitions]
    finally:
        consumer.close()


def read_committed(bootstrap: str) -> list[list[bytes]]:
    """Everything that a read_committed reader finds in the output, once all that was written is decided."""
    ends = ends_of_output(bootstrap)
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
            # It may be the end only until a marker is written.
            elif message.error().name() == "_PARTITION_EOF" and message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
    consumer.close()
    return values


def run(
    brokers: Brokers, errors: Path, *, records: int, per_transaction: int, job_kills: int, broker_kills: int
) -> int:
    """Copy everything while both sides are hit; gives how often the job was started."""
    rng = random.Random(records)
    kills = ["job"] * job_kills + ["broker"] * broker_kills
    rng.shuffle(kills)
    # Early enough that the last is not too late: a phase that was killed is not said again.
    every = max(records // per_transaction * 4 // (5 * len(kills) + 5), 1)
    job: Job | None = None
    try:
        values = fill(brokers.bootstrap, records, brokers.replicas)
        job = Job(brokers.bootstrap, per_transaction, errors)
        commits, kill_in = 0, ""
        while (phase := job.next_phase(120)) is not None:
            if phase == kill_in:
                kill_in = ""
                if kills.pop() == "job":
                    job.kill()
                else:
                    with job.held():
                        brokers.wait()
                    brokers.hit(rng)
            elif phase == "committed":
                commits += 1
                if kills and commits % every == 0:
                    kill_in = rng.choice(PHASES)
        assert not kills, f"{len(kills)} kills were left over"
        assert job.starts > job_kills
        brokers.wait()
        assert read_committed(brokers.bootstrap) == [[transform(value) for value in part] for part in values]
        brokers.finish()
        return job.starts
    finally:
        if job is not None:
            job.kill()
        brokers.kill()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--records", type=int, default=1_000_000)
    words.add_argument("--per-transaction", type=int, default=750)
    words.add_argument("--job-kills", type=int, default=50)
    words.add_argument("--broker-kills", type=int, default=50)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        starts = run(Three(Path(directory) / "data"), Path(directory) / "job.stderr", **vars(given))
        print(
            f"{given.records} records copied exactly once on three brokers in {time.monotonic() - began:.0f} s, "
            f"through {given.broker_kills} kills of brokers and {given.job_kills} of the job ({starts} starts)"
        )


if __name__ == "__main__":
    main()
