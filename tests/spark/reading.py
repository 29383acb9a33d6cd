"""A cluster as the tests see it: another client creates topics, writes records and reads them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_END_S = 60.0
_MARKERS_S = 20.0
"""A transaction is committed before its markers are in all partitions; until then readers do not see it."""


@dataclass(frozen=True)
class Kafka:
    """A running cluster."""

    bootstrap: str

    def make(self, topic: str, partitions: int = 1, **settings: Any) -> str:
        # Records with the timestamps of tests are past any retention.
        config = {"retention.ms": "-1"} | {
            key.replace("_", "."): str(value) for key, value in settings.items()
        }
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics([NewTopic(topic, partitions, config=config)]).values():
            made.result(60)
        return topic

    def fill(self, topic: str, records: Iterable[tuple[Any, Any]], partition: int | None = None) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"}
        )
        where = {} if partition is None else {"partition": partition}
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, key=key, value=value, **where)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """All records at this moment, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests-read",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
            }
        )
        try:
            ends = self.ends(topic, "read_uncommitted")
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            found, ended, left = [], set(), set(ends)
            while left:
                message = consumer.poll(_END_S if len(ended) < len(ends) else _MARKERS_S)
                if message is None:
                    assert len(ended) == len(ends), f"no end of {topic} within {_END_S} s"
                    break  # what is left belongs to transactions that are still open
                if not message.error():
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                    if message.offset() >= ends[message.partition()]:
                        left.discard(message.partition())
                elif not message.error().retriable():
                    raise KafkaException(message.error())
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()

    def values(self, topic: str) -> Counter[bytes]:
        return Counter(one.value() for one in self.read(topic))

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """A group's offsets by partition."""
        # A reader of committed records would wait for the open transaction of a killed job, until its next run ends it.
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "isolation.level": "read_uncommitted",
        }
        consumer = Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            partitions_of = [TopicPartition(topic, number) for number in partitions]
            deadline = time.monotonic() + _END_S
            while True:
                try:
                    committed = consumer.committed(partitions_of, timeout=60)
                    return {one.partition: one.offset for one in committed}
                except KafkaException as error:
                    # The first to ask finds a coordinator that is still loading.
                    waits = error.args[0].code() in (
                        KafkaError.NOT_COORDINATOR,
                        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                    )
                    if not waits or time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()

    def ends(self, topic: str, isolation: str = "read_committed") -> Mapping[int, int]:
        """The offset after the last record that a reader of this isolation level sees, by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests-ends",
                "isolation.level": isolation,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1]
                for number in partitions
            }
        finally:
            consumer.close()
