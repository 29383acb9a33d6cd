"""A compacted topic as a client sees it: filled through librdkafka, cleaned by the broker, read back."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.process import BrokerProcess

TIMEOUT_S = 60.0


def create(broker: BrokerProcess, topic: str, **config: object) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = {name.replace("_", "."): str(value) for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=wanted)])[topic].result(TIMEOUT_S)


def read_all(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Everything up to the end of the partition: (offset, key, value)."""
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    consumer = Consumer(config)
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
        raise AssertionError(f"the end of {topic} was not reached")
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.slow
def test_only_the_last_value_of_each_key_is_left(start_broker, codec):
    broker = start_broker(settings={"log.cleaner.backoff.ms": 50})
    create(
        broker,
        "t",
        cleanup_policy="compact",
        internal_segment_bytes=20_000,
        min_cleanable_dirty_ratio=0.01,
    )
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 50,
        }
    )
    last: dict[bytes, bytes] = {}
    for number in range(4000):
        key, value = b"key-%d" % (number * 13 % 100), b"value-%d " % number * 3
        last[key] = value
        producer.produce("t", value, key=key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    deadline = time.monotonic() + TIMEOUT_S
    while len(found := read_all(broker, "t")) > 2000 and time.monotonic() < deadline:
        continue
    assert len(found) <= 2000
    assert {key: value for _, key, value in found} == last
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))

    producer.produce("t", b"after", key=b"key-0", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert broker.stop() == 0, broker.log
    assert "Traceback" not in broker.log, broker.log
    broker.start()
    assert {key: value for _, key, value in read_all(broker, "t")} == {**last, b"key-0": b"after"}


def test_a_record_without_a_key_is_refused(broker, topic):
    create(broker, topic, cleanup_policy="compact")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"no key", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in errors if error] == [KafkaError.INVALID_RECORD]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_wins_over_the_producers(broker, topic, target):
    create(broker, topic, compression_type=target)
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
        for number in range(20):
            value = f"{codec} {number} ".encode() * 20
            sent.append(value)
            producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    assert [value for _, _, value in read_all(broker, topic)] == sent
    data = b"".join(path.read_bytes() for path in broker.data.glob(f"{topic}-0/*.log"))
    expected = ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(target)
    position = 0
    while position < len(data):
        assert data[position + 22] & 7 == expected
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")


def test_log_append_time_is_the_brokers(broker, topic):
    create(broker, topic, message_timestamp_type="LogAppendTime")
    delivered = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(
        topic, b"v", partition=0, timestamp=1000, on_delivery=lambda _, message: delivered.append(message)
    )
    assert producer.flush(TIMEOUT_S) == 0
    kind, timestamp = delivered[0].timestamp()
    assert kind == 2
    assert abs(timestamp - time.time() * 1000) < 60_000


def test_a_timestamp_out_of_bounds_is_refused(broker, topic):
    create(broker, topic, message_timestamp_before_max_ms=60_000)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", partition=0, timestamp=1000, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.code() for error in errors if error] == [KafkaError.INVALID_TIMESTAMP]
