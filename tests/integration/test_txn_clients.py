"""Transactions as clients use them: librdkafka, kafka-python and aiokafka, and what they cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyTopicPartition

from ottla.testing.process import BrokerProcess


def create(broker: BrokerProcess, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        created.result()


def transactional(broker: BrokerProcess, name: str, **options: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, **options}
    )
    producer.init_transactions(60)
    return producer


@contextlib.contextmanager
def consuming(broker: BrokerProcess, group: str, **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **options,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """What is in partition 0 for a reader of this isolation."""
    with consuming(broker, "reader", **{"isolation.level": isolation}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return values
            values.append(message.value())


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    with consuming(broker, group) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 0)], 60)
        return found.offset


def test_committed_is_seen_and_aborted_is_not(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    producer = transactional(broker, topic)
    for round_ in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (round_, part))
        if round_ % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    assert read(broker, topic) == [b"%d.%d" % (round_, part) for round_ in (0, 2, 4) for part in range(3)]
    # Records that librdkafka had not sent before the abort never reached the broker.
    assert len(read(broker, topic, "read_uncommitted")) >= 9


@pytest.mark.slow
def test_a_zombie_is_fenced(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    zombie = transactional(broker, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(60)
    successor = transactional(broker, topic)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(60)
    assert caught.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce(topic, b"successor")
    successor.commit_transaction(60)
    assert read(broker, topic) == [b"successor"]
    assert read(broker, topic, "read_uncommitted") == [b"zombie", b"successor"]


@pytest.mark.slow
def test_offsets_are_committed_with_the_transaction(broker: BrokerProcess, topic: str) -> None:
    source, group = topic + "-in", topic + "-group"
    create(broker, topic, source)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        plain.produce(source, b"%d" % number)
    plain.flush(60)
    producer = transactional(broker, topic)
    with consuming(broker, group) as consumer:
        consumer.subscribe([source])
        records = [message for message in consumer.consume(10, 60) if message.error() is None]
        for commit in (False, True):
            producer.begin_transaction()
            for record in records:
                producer.produce(topic, record.value())
            producer.send_offsets_to_transaction(
                [TopicPartition(source, 0, len(records))], consumer.consumer_group_metadata(), 60
            )
            if commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
                (found,) = consumer.committed([TopicPartition(source, 0)], 60)
                assert found.offset < 0, "the offsets were aborted with their transaction"
    assert committed(broker, group, source) == len(records)
    assert read(broker, topic) == [record.value() for record in records]


def test_kafka_python(broker: BrokerProcess, topic: str) -> None:
    source, group = topic + "-in", topic + "-group"
    create(broker, topic, source)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    with contextlib.closing(producer):
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0).get(60)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"kept", partition=0)
        offsets = {PyTopicPartition(source, 0): OffsetAndMetadata(5, "noted", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        producer.commit_transaction()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    with contextlib.closing(consumer):
        assert next(consumer).value == b"kept"
    assert committed(broker, group, source) == 5


def test_aiokafka(broker: BrokerProcess, topic: str) -> None:
    source, group = topic + "-in", topic + "-group"
    create(broker, topic, source)

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await producer.start()
        try:
            with contextlib.suppress(RuntimeError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted", partition=0)
                    raise RuntimeError("changed my mind")
            async with producer.transaction():
                await producer.send(topic, b"kept", partition=0)
                await producer.send_offsets_to_transaction({AioTopicPartition(source, 0): 7}, group)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            return [(await consumer.getone()).value]
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [b"kept"]
    assert committed(broker, group, source) == 7


@pytest.mark.slow
def test_offsets_of_transactions_survive_compaction_and_a_kill(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_broker(
        settings={
            "offsets.topic.num.partitions": 1,
            "offsets.topic.segment.bytes": 1 << 20,
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.min.cleanable.ratio": 0.01,
        }
    )
    create(broker, topic)
    producer = transactional(broker, topic)
    with consuming(broker, topic) as consumer:
        member = consumer.consumer_group_metadata()
    for number in range(1, 1001):
        producer.begin_transaction()
        note = str(number).ljust(4000)
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, number, note)], member, 60)
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    deadline = time.monotonic() + 120
    while logged_bytes(broker, "__consumer_offsets-0") > 3 << 20:
        assert time.monotonic() < deadline, "the topic was not compacted"
        assert committed(broker, topic, topic) == 999
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5000)], member, 60)
    broker.kill()
    broker.start()
    successor = transactional(broker, topic)
    assert committed(broker, topic, topic) == 999, "what was open was aborted"
    successor.begin_transaction()
    successor.send_offsets_to_transaction([TopicPartition(topic, 0, 1001)], member, 60)
    successor.commit_transaction(60)
    assert committed(broker, topic, topic) == 1001
    assert "Traceback" not in broker.log, broker.log


def logged_bytes(broker: BrokerProcess, partition: str) -> int:
    total = 0
    for path in (broker.data / partition).glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
