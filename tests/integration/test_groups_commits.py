"""Ways to commit, and where a consumer begins that never did: the settings that every course explains."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from integration.group_members import BROKER_SETTINGS, TIMINGS, make_topic
from ottla.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return BROKER_SETTINGS


def consumer_of(broker: BrokerProcess, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **TIMINGS,
            **{key if key == "on_commit" else key.replace("_", "."): value for key, value in options.items()},
        }
    )


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"only {len(found)} of {count}"
        assert message.error() is None, message.error()
        found.append(message.value())
    return found


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    """What the group has committed for partition 0, asked for by an admin."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    (partition,) = future.result(60).topic_partitions
    return int(partition.offset)


def test_sync_commit(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])
    consumer = consumer_of(broker, f"g-{topic}", enable_auto_commit=False)
    consumer.subscribe([topic])
    read(consumer, 4)
    (kept,) = consumer.commit(asynchronous=False)
    assert (kept.offset, kept.error) == (4, None)
    assert committed(broker, f"g-{topic}", topic) == 4
    consumer.close()
    assert committed(broker, f"g-{topic}", topic) == 4


def test_async_commit_tells_when_it_is_kept(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])
    reported: list[tuple[object, list[TopicPartition]]] = []
    consumer = consumer_of(
        broker,
        f"g-{topic}",
        enable_auto_commit=False,
        on_commit=lambda error, partitions: reported.append((error, partitions)),
    )
    consumer.subscribe([topic])
    read(consumer, 6)
    consumer.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=True)
    while not reported:
        consumer.poll(0.1)
    ((error, (partition,)),) = reported
    assert error is None and partition.offset == 6
    consumer.close()
    assert committed(broker, f"g-{topic}", topic) == 6


def test_auto_commit_happens_on_close_and_in_between(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])
    kept: list[int] = []
    consumer = consumer_of(
        broker,
        f"g-{topic}",
        auto_commit_interval_ms=50,
        on_commit=lambda error, partitions: kept.extend(each.offset for each in partitions if error is None),
    )
    consumer.subscribe([topic])
    read(consumer, 5)
    # The first commits may be of less, where reading took its time.
    while not any(offset >= 5 for offset in kept):
        consumer.poll(0.05)
    assert committed(broker, f"g-{topic}", topic) >= 5
    consumer.close()
    successor = consumer_of(broker, f"g-{topic}")
    successor.subscribe([topic])
    at = committed(broker, f"g-{topic}", topic)
    assert read(successor, 10 - at) == [b"%d" % i for i in range(at, 10)]
    successor.close()
    assert committed(broker, f"g-{topic}", topic) == 10


def test_commits_carry_metadata_and_leader_epoch(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"x"])
    consumer = consumer_of(broker, f"g-{topic}", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata="where I was")], asynchronous=False)
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    assert (kept.offset, kept.metadata) == (1, "where I was")
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata="x" * 4097)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()


def test_reset_to_earliest_latest_and_none(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"old"])
    earliest = consumer_of(broker, f"e-{topic}", auto_offset_reset="earliest")
    earliest.subscribe([topic])
    assert read(earliest, 1) == [b"old"]
    earliest.close()

    latest = consumer_of(broker, f"l-{topic}", auto_offset_reset="latest", enable_partition_eof=True)
    latest.subscribe([topic])
    message = latest.poll(60)
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    assert message.offset() == 1
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"new")
    producer.flush(60)
    assert read(latest, 1) == [b"new"]
    latest.close()

    nowhere = consumer_of(broker, f"n-{topic}", auto_offset_reset="error")
    nowhere.subscribe([topic])
    message = nowhere.poll(60)
    assert message is not None and message.error().code() == KafkaError._AUTO_OFFSET_RESET
    nowhere.close()


def test_kafka_python_without_a_place_to_begin(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"old"])
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=f"g-{topic}", auto_offset_reset="none"
    )
    with closing(consumer), pytest.raises(kafka.errors.NoOffsetForPartitionError):
        for _ in range(3):
            consumer.poll(timeout_ms=30_000)


def test_kafka_python_commits_sync_async_and_by_itself(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])

    def member(**options: object) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
            **options,
        )

    consumer = member(enable_auto_commit=False, max_poll_records=1)
    partition = kafka.TopicPartition(topic, 0)
    assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
    consumer.commit()
    assert consumer.committed(partition) == 3
    next(consumer)
    kept = threading.Event()
    consumer.commit_async(callback=lambda offsets, outcome: kept.set())
    while not kept.is_set():
        consumer.poll(timeout_ms=20)
    assert consumer.committed(partition) >= 4
    at = consumer.committed(partition)
    consumer.close()
    successor = member(enable_auto_commit=True)
    assert [next(successor).offset for _ in range(10 - at)] == list(range(at, 10))
    successor.close()
    assert committed(broker, f"g-{topic}", topic) == 10


def test_a_group_survives_a_restart_of_the_broker(start_broker, topic: str) -> None:  # type: ignore[no-untyped-def]
    broker = start_broker(settings=BROKER_SETTINGS)
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(10)])
    consumer = consumer_of(broker, "g", enable_auto_commit=False, session_timeout_ms=60_000)
    consumer.subscribe([topic])
    read(consumer, 4)
    consumer.commit(asynchronous=False)
    broker.kill()
    broker.start()
    assert read(consumer, 6) == [b"%d" % i for i in range(4, 10)]
    consumer.commit(asynchronous=False)
    assert committed(broker, "g", topic) == 10
    consumer.close()
