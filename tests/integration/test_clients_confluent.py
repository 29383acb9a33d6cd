"""confluent-kafka (librdkafka), what Python users run in production, against a broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from ottla.testing.process import BrokerProcess


def consume(broker: BrokerProcess, partitions: list[TopicPartition], count: int, **options: Any) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, **options}
    )
    consumer.assign(partitions)
    got: list[Any] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), timeout=60)
        assert messages, f"only {len(got)} of {count} records came"
        for message in messages:
            assert message.error() is None, message.error()
            got.append(message)
    consumer.close()
    return got


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **options: Any) -> list[Any]:
    delivered: list[Any] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, **options})
    for value in values:
        producer.produce(topic, value, key=value[:8], partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    return delivered


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_come_back_in_order(broker: BrokerProcess, topic: str, codec: str, acks: str) -> None:
    values = [b"%06d" % i * 20 for i in range(2000)]
    produce(broker, topic, values, **{"compression.type": codec, "acks": acks, "linger.ms": 5})
    got = consume(broker, [TopicPartition(topic, 0, 0)], len(values))
    assert [message.value() for message in got] == values
    assert [message.offset() for message in got] == list(range(len(values)))


def test_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    values = [b"%06d" % i for i in range(5000)]
    delivered = produce(broker, topic, values, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert [message.offset() for message in delivered] == list(range(5000))
    got = consume(broker, [TopicPartition(topic, 0, 0)], len(values))
    assert [message.value() for message in got] == values


def test_records_that_come_while_waiting(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, [b"first"])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    # It has found the end, and waits there.
    end = consumer.poll(60)
    assert end is not None and end.error().code() == KafkaError._PARTITION_EOF and end.offset() == 1
    produce(broker, topic, [b"second"])
    message = consumer.poll(60)
    assert message is not None and message.value() == b"second"
    consumer.close()


def test_reading_past_the_end_is_told(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, [b"only"])
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 1000)])
    message = consumer.poll(60)
    assert message is not None and message.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_large_records(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": str(10 << 20)})])[topic].result(60)
    values = [bytes([i]) * (3 << 20) for i in range(4)]
    produce(broker, topic, values, **{"message.max.bytes": 10 << 20})
    got = consume(
        broker, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 4, **{"fetch.message.max.bytes": 1000}
    )
    assert [message.value() for message in got] == values


def test_admin_round_trip(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "1234567"})])[topic].result(60)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 5
    spec = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(5)}
    assert [future.result().offset for future in admin.list_offsets(spec).values()] == [0] * 5
    admin.delete_topics([topic])[topic].result(60)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 9)])[topic].result(60)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_delete_records_moves_the_start(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, [b"%d" % i for i in range(100)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    assert future.result(60).low_watermark == 40
    (first,) = consume(broker, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)
    assert (first.offset(), first.value()) == (40, b"40")


def test_many_partitions_are_read_fairly(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 20, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(4000):
        producer.produce(topic, b"x" * 500, partition=i % 20)
    assert producer.flush(60) == 0
    wanted = [TopicPartition(topic, p, 0) for p in range(20)]
    got = consume(broker, wanted, 4000, **{"fetch.message.max.bytes": 5_000})
    by_partition: dict[int, list[int]] = {}
    for message in got:
        by_partition.setdefault(message.partition(), []).append(message.offset())
    assert by_partition == {p: list(range(200)) for p in range(20)}
