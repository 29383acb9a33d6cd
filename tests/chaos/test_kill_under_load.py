"""kill -9 under load: what was acknowledged is there afterwards, in order, once."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.process import BrokerProcess

TOPIC = "ledger"
PARTITIONS = 4


class Load:
    """An idempotent producer that never stops; it keeps what the broker has acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = [0] * PARTITIONS
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 40,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 2_000,
                "log_level": 0,
            }
        )
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        with self._news:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged[message.partition(), message.offset()] = message.value()
            self._news.notify_all()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                value = b"%d" % self.sent[partition]
                try:
                    self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._on_delivery)
                except BufferError:
                    self._producer.poll(0.02)
                else:
                    self.sent[partition] += 1
            self._producer.poll(0)

    def wait_for_more(self, count: int) -> None:
        """Until so many more records are acknowledged: the load's own measure of time."""
        with self._news:
            goal = len(self.acknowledged) + count
            done = self._news.wait_for(lambda: self.failures or len(self.acknowledged) >= goal, timeout=120)
        assert done and not self.failures, self.failures or f"no {count} acknowledgements within two minutes"

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.failures


def read_all(bootstrap: str, partition: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[bytes] = []
    while len(values) < end:
        messages = consumer.consume(min(end - len(values), 10_000), timeout=60)
        assert messages, f"only {len(values)} of {end} records of partition {partition} came"
        for message in messages:
            assert message.offset() == len(values)
            values.append(message.value())
    consumer.close()
    return values


def kill_under_load(data: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    settings = {"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 512}
    broker = BrokerProcess(data, settings=settings).start()
    load = None
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        load = Load(broker.bootstrap)
        for _ in range(kills):
            load.wait_for_more(rng.randrange(1, 4_000))
            broker.kill()
            broker.start()
        load.wait_for_more(1)
        load.finish()

        stored = {partition: read_all(broker.bootstrap, partition) for partition in range(PARTITIONS)}
        for (partition, offset), value in load.acknowledged.items():
            assert stored[partition][offset] == value
        for partition, values in stored.items():
            assert values == [b"%d" % i for i in range(load.sent[partition])], "in order, each one once"
        assert broker.stop() == 0, broker.log
    finally:
        if load is not None:
            load._stopping.set()
        broker.kill()


@pytest.mark.slow
def test_killed_a_few_times(tmp_path: Path) -> None:
    kill_under_load(tmp_path / "data", kills=3, seed=1)


@pytest.mark.slow
def test_killed_fifty_times(tmp_path: Path) -> None:
    kill_under_load(tmp_path / "data", kills=50, seed=2)
