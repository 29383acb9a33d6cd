"""kafka-python against a broker: the lines that every tutorial begins with, and what people write next."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from json import dumps, loads

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from ottla.testing.process import BrokerProcess


@pytest.mark.filterwarnings("ignore:value_.*serializer does not implement:DeprecationWarning")
def test_tutorial_lines_run_as_they_are_written(start_broker: Callable[..., BrokerProcess]) -> None:
    address = start_broker().bootstrap
    producer = KafkaProducer(bootstrap_servers=[address], value_serializer=lambda x: dumps(x).encode("utf-8"))
    for e in range(100):
        data = {"number": e}
        future = producer.send("sample3", value=data)
    metadata = future.get(timeout=60)
    assert (metadata.topic, metadata.partition, metadata.offset) == ("sample3", 0, 99)
    producer.close()

    consumer = KafkaConsumer(
        "sample3",
        auto_offset_reset="earliest",
        bootstrap_servers=[address],
        consumer_timeout_ms=60_000,
        value_deserializer=lambda x: loads(x.decode("utf-8")),
    )
    assert [message.value["number"] for message in islice(consumer, 100)] == list(range(100))
    consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_whole(broker: BrokerProcess, topic: str, codec: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=20)
    sent = [(f"k{i}".encode(), b"v" * (i % 300), [("h", str(i).encode())]) for i in range(300)]
    for key, value, headers in sent:
        producer.send(
            topic, key=key, value=value, headers=headers, timestamp_ms=1_600_000_000_000 + len(value)
        )
    producer.flush(timeout=60)
    producer.close()

    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    got = []
    for message in consumer:
        got.append((message.key, message.value, list(message.headers)))
        assert message.timestamp == 1_600_000_000_000 + len(message.value)
        if len(got) == len(sent):
            break
    consumer.close()
    assert got == sent


def test_consumer_seeks_by_offset_and_by_time(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for i in range(50):
        producer.send(topic, value=str(i).encode(), timestamp_ms=1_700_000_000_000 + i * 1000).get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=60_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 50}
    found = consumer.offsets_for_times({partition: 1_700_000_000_000 + 20_500})
    assert found[partition].offset == 21
    consumer.seek(partition, found[partition].offset)
    assert next(consumer).value == b"21"
    consumer.close()


def test_topics_are_made_described_and_removed(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    admin.close()


def test_a_record_over_the_limit_is_refused(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=4 << 20)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, value=bytes(2 << 20)).get(timeout=60)
    producer.close()
    another = KafkaProducer(bootstrap_servers=broker.bootstrap)
    assert another.send(topic, value=b"small").get(timeout=60).offset == 0
    another.close()
