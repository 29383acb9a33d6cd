"""A producer that writes numbers and knows which were acknowledged, and a reader that finds out what became of them."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition


class Load:
    """Idempotent acks=all writes, from `start` to `stop`. Every error that reaches the application is kept."""

    def __init__(self, bootstrap: str, topic: str, *, pause_s: float = 0.002, **settings: Any) -> None:
        self.topic = topic
        self.acknowledged: dict[int, float] = {}
        """Number to the time of its acknowledgement."""
        self.times: dict[int, list[float]] = {}
        """When each partition acknowledged something."""
        self.errors: list[str] = []
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._heard = threading.Condition()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                # Longer than anything that is done to a cluster takes on a busy machine.
                "delivery.timeout.ms": 180_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 50,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Load:
        self._thread.start()
        return self

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(self._pause_s):
            self._producer.produce(self.topic, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        with self._heard:
            if error is None:
                now = time.monotonic()
                self.acknowledged[int(message.value())] = now
                self.times.setdefault(message.partition(), []).append(now)
            else:
                self.errors.append(str(error))
            self._heard.notify_all()

    def stop(self) -> Load:
        """Write no more, and wait until everything is acknowledged or has failed."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(180)
        return self

    def wait_for_more(self, count: int = 20, timeout_s: float = 120.0) -> None:
        """Until so many more were acknowledged."""
        with self._heard:
            wanted = len(self.acknowledged) + count
            if not self._heard.wait_for(lambda: len(self.acknowledged) >= wanted, timeout_s):
                raise AssertionError(f"no more acknowledgements in {timeout_s} s: {self.errors[-3:]}")

    def gaps_s(self, since: float) -> dict[int, float]:
        """The longest time since then that each partition was without an acknowledgement."""
        return {
            partition: max(
                (b - a for a, b in itertools.pairwise(sorted(times)) if b > since), default=float("inf")
            )
            for partition, times in self.times.items()
        }


def ends_of(bootstrap: str, topic: str, timeout_s: float) -> dict[int, tuple[int, int]]:
    """Where each partition begins and ends, records of transactions that are not ended among them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "read-all", "isolation.level": "read_uncommitted"}
    )
    try:
        deadline = time.monotonic() + timeout_s
        # A broker that has not heard of the topic yet knows no partitions.
        while not (found := consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions):
            assert time.monotonic() < deadline, f"nobody knows {topic}"
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=timeout_s)
            for index in found
        }
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, timeout_s: float = 60.0, **settings: Any) -> dict[int, list[bytes]]:
    """Every committed record of each partition, in order. Transactions that are about to end are waited for."""
    ends = ends_of(bootstrap, topic, timeout_s)
    wanted = {"bootstrap.servers": bootstrap, "group.id": "read-all", "enable.partition.eof": True}
    consumer = Consumer({**wanted, **settings})
    try:
        records: dict[int, list[bytes]] = {index: [] for index in ends}
        left = {index for index, (low, high) in ends.items() if high > low}
        consumer.assign([TopicPartition(topic, index, ends[index][0]) for index in left])
        deadline = time.monotonic() + timeout_s
        while left:
            if time.monotonic() > deadline:
                raise AssertionError(f"partitions {left} of {topic} could not be read to the end")
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                records[message.partition()].append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                # It may be the end only until a marker is written.
                if message.offset() >= ends[message.partition()][1]:
                    left.discard(message.partition())
            else:
                raise AssertionError(str(message.error()))
        return records
    finally:
        consumer.close()


def check_nothing_lost(bootstrap: str, load: Load) -> None:
    """Every acknowledged number is there, once, and in the order it was written."""
    partitions = read_all(bootstrap, load.topic)
    seen: set[int] = set()
    for values in partitions.values():
        numbers = [int(value) for value in values]
        assert numbers == sorted(numbers), "records were reordered"
        assert len(set(numbers)) == len(numbers), "records were duplicated"
        seen.update(numbers)
    missing = load.acknowledged.keys() - seen
    assert not missing, f"{len(missing)} acknowledged records are lost: {sorted(missing)[:5]}"
