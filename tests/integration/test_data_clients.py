"""Data through librdkafka and kafka-python: what goes in comes out, once, in order, with everything on it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition

from ottla.testing.process import BrokerProcess

TIMEOUT_S = 60.0


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    futures = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
    futures[topic].result(TIMEOUT_S)
    return admin


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **config: Any) -> list[Any]:
    """Send the values to partition 0 and wait; the delivered messages."""
    delivered: list[Any] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        delivered.append(error or message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **config})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"k%d" % number, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return delivered


def consume(broker: BrokerProcess, topic: str, count: int, partitions: int = 1, **config: Any) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        messages: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, 0.5):
                assert message.error() is None, message.error()
                messages.append(message)
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("kept_as", ["producer", "lz4"])
def test_every_codec_there_and_back(broker, topic, codec, kept_as):
    create(broker, topic, compression_type=kept_as)
    values = [b"%06d" % number * 20 for number in range(2000)]
    delivered = produce(broker, topic, values, **{"compression.type": codec})
    assert [message.offset() for message in delivered] == list(range(2000))
    assert [message.value() for message in consume(broker, topic, 2000)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(broker, topic, acks):
    create(broker, topic)
    values = [b"%d" % number for number in range(500)]
    assert len(produce(broker, topic, values, acks=acks)) == 500
    assert [message.value() for message in consume(broker, topic, 500)] == values


def test_an_idempotent_producer(broker, topic):
    create(broker, topic)
    values = [b"%d" % number for number in range(5000)]
    delivered = produce(broker, topic, values, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert [message.offset() for message in delivered] == list(range(5000))


def test_keys_headers_timestamps_and_nulls(broker, topic):
    create(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce(topic, None, key=b"k", headers=headers, timestamp=1_600_000_000_123, partition=0)
    producer.produce(topic, b"", key=None, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    first, second = consume(broker, topic, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", None, headers)
    assert first.timestamp()[1] == 1_600_000_000_123
    assert (second.key(), second.value()) == (None, b"")


def test_log_append_time(broker, topic):
    create(broker, topic, message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    produce(broker, topic, [b"a"])
    (message,) = consume(broker, topic, 1)
    kind, timestamp = message.timestamp()
    assert kind == 2
    assert before <= timestamp <= time.time_ns() // 1_000_000


@pytest.mark.slow
def test_many_partitions_are_read_together(broker, topic):
    create(broker, topic, 50)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5000):
        producer.produce(topic, b"%d" % number, partition=number % 50)
    assert producer.flush(TIMEOUT_S) == 0
    messages = consume(broker, topic, 5000, partitions=50)
    assert sorted(int(message.value()) for message in messages) == list(range(5000))
    by_partition: dict[int, list[int]] = {}
    for message in messages:
        by_partition.setdefault(message.partition(), []).append(message.offset())
    assert all(offsets == list(range(100)) for offsets in by_partition.values())


def test_a_message_larger_than_what_the_consumer_fetches_comes_whole(broker, topic):
    create(broker, topic)
    produce(broker, topic, [b"x" * 500_000, b"small"])
    small = {"fetch.message.max.bytes": 1000, "max.partition.fetch.bytes": 1000}
    assert [len(message.value()) for message in consume(broker, topic, 2, **small)] == [500_000, 5]


def test_a_message_that_is_too_large_is_refused(broker, topic):
    create(broker, topic, max_message_bytes="10000")
    (error,) = produce(broker, topic, [b"x" * 20_000])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_consumer_waits_for_what_is_not_there_yet(broker, topic):
    create(broker, topic)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "fetch.wait.max.ms": 50_000}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert consumer.poll(0.5) is None
    produce(broker, topic, [b"late"])
    before = time.monotonic()
    message = consumer.poll(TIMEOUT_S)
    assert message.value() == b"late"
    assert time.monotonic() - before < 40, "woken by the record, not by the end of the wait"
    consumer.close()


def test_read_committed_consumers_see_plain_records(broker, topic):
    create(broker, topic)
    produce(broker, topic, [b"a", b"b"])
    messages = consume(broker, topic, 2, **{"isolation.level": "read_committed"})
    assert [message.value() for message in messages] == [b"a", b"b"]


def test_offsets_by_time_and_by_name(broker, topic):
    admin = create(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"v", timestamp=1_600_000_000_000 + number * 1000, partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    def offset(spec: OffsetSpec) -> int:
        partition = TopicPartition(topic, 0)
        found: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1_600_000_003_500)) == 4
    assert offset(OffsetSpec.max_timestamp()) == 9


def test_deleted_records_are_gone(broker, topic):
    admin = create(broker, topic)
    produce(broker, topic, [b"%d" % number for number in range(10)])
    partition = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([partition])[partition].result(TIMEOUT_S)
    assert deleted.low_watermark == 4
    assert [message.offset() for message in consume(broker, topic, 6)] == [4, 5, 6, 7, 8, 9]
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as failed:
        admin.delete_records([beyond])[beyond].result(TIMEOUT_S)
    assert failed.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_wants_keys(broker, topic):
    create(broker, topic, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    errors: list[KafkaError] = []
    producer.produce(topic, b"v", partition=0, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors[0].code() == KafkaError.INVALID_RECORD
    assert len(produce(broker, topic, [b"with a key"])) == 1


@pytest.mark.slow
def test_data_survives_a_restart(start_broker, topic):
    broker = start_broker()
    create(broker, topic, 2)
    values = [b"%d" % number for number in range(100)]
    produce(broker, topic, values)
    assert broker.stop() == 0
    broker.start()
    assert [message.value() for message in consume(broker, topic, 100)] == values
    assert produce(broker, topic, [b"after"])[0].offset() == 100


@pytest.mark.slow
def test_kafka_python_there_and_back(broker, topic):
    create(broker, topic)
    producer = KafkaProducer(bootstrap_servers=[broker.bootstrap], compression_type="gzip", acks="all")
    sent = [producer.send(topic, b"%d" % number, key=b"k", headers=[("h", b"1")]) for number in range(200)]
    metadata = sent[-1].get(timeout=TIMEOUT_S)
    producer.close()
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 199)
    consumer = KafkaConsumer(
        bootstrap_servers=[broker.bootstrap], auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    partition = PyTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    messages = [next(consumer) for _ in range(200)]
    assert [message.value for message in messages] == [b"%d" % number for number in range(200)]
    assert messages[0].headers == [("h", b"1")]
    assert consumer.end_offsets([partition]) == {partition: 200}
    assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
    consumer.close()
