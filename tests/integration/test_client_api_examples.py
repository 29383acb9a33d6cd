"""What kafka-python's documentation and courses show, written as there, with `from ottla import ...`."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from ottla import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from ottla.client.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from ottla.testing import running_broker


@pytest.fixture(scope="module")
def bootstrap():
    with running_broker(settings={"num.partitions": 4}) as broker:
        yield broker.bootstrap


def test_a_first_producer_and_consumer(bootstrap, topic):
    producer = KafkaProducer(bootstrap_servers=[bootstrap])
    for _ in range(100):
        producer.send(topic, b"some_message_bytes")
    record_metadata = producer.send(topic, key=b"ping", value=b"1234").get(timeout=60)
    assert (record_metadata.topic, record_metadata.serialized_key_size) == (topic, 4)
    producer.flush()
    producer.close()

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    messages = list(islice(consumer, 101))
    assert len(messages) == 101
    assert {message.value for message in messages} == {b"some_message_bytes", b"1234"}
    consumer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, consumer_timeout_ms=500)
    assert list(consumer) == []
    consumer.close()


def test_json_in_and_out(bootstrap, topic):
    with KafkaProducer(
        bootstrap_servers=bootstrap, value_serializer=lambda v: json.dumps(v).encode("utf-8"), retries=5
    ) as producer:
        producer.send(topic, {"key": "value"})
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=lambda m: json.loads(m.decode("ascii")),
    ) as consumer:
        assert next(consumer).value == {"key": "value"}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", None])
def test_every_compression(bootstrap, topic, codec):
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        for n in range(50):
            producer.send(topic, b"msg %d" % n, partition=0)
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        assert [next(consumer).value for _ in range(50)] == [b"msg %d" % n for n in range(50)]


def test_callbacks_tell_success_and_failure(bootstrap, topic):
    sent, failed = [], []
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"raw_bytes").add_callback(sent.append).add_errback(failed.append)
    producer.flush()
    assert [one.offset for one in sent] == [0]
    assert producer.send(topic, b"again").get(60).offset >= 0
    assert failed == []
    producer.close()


def test_members_of_a_group_share_the_partitions(bootstrap, topic):
    class RebalanceLog(ConsumerRebalanceListener):
        def __init__(self):
            self.assigned, self.revoked = set(), set()

        def on_partitions_revoked(self, revoked):
            self.revoked |= revoked

        def on_partitions_assigned(self, assigned):
            self.assigned |= assigned

    everything = {TopicPartition(topic, n) for n in range(4)}
    settings = {"bootstrap_servers": bootstrap, "group_id": topic, "heartbeat_interval_ms": 200}
    reported = RebalanceLog()
    first, second = KafkaConsumer(**settings), KafkaConsumer(**settings)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v").get(60)
    first.subscribe([topic], listener=reported)
    while first.assignment() != everything:
        first.poll(50)
    second.subscribe([topic])
    while len(first.assignment()) != 2 or len(second.assignment()) != 2:
        first.poll(50)
        second.poll(50)
    assert first.assignment() | second.assignment() == everything
    assert reported.assigned == reported.revoked == everything
    second.close()
    while first.assignment() != everything:
        first.poll(50)
    first.unsubscribe()
    assert (first.assignment(), first.subscription()) == (set(), None)
    first.close()


@pytest.mark.parametrize(
    "settings",
    [{"partition_assignment_strategy": "cooperative-sticky"}, {"group_protocol": "consumer"}],
    ids=lambda settings: next(iter(settings.values())),
)
def test_groups_that_rebalance_step_by_step(bootstrap, topic, settings):
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(40):
            producer.send(topic, b"%d" % n, partition=n % 4)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        **settings,
    )
    assert len([next(consumer) for _ in range(40)]) == 40
    consumer.seek_to_beginning()
    assert sorted(int(next(consumer).value) for _ in range(40)) == list(range(40))
    consumer.close()


def test_a_listener_decides_where_reading_begins(bootstrap, topic):
    class FromFive(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            pass

        def on_partitions_assigned(self, assigned):
            for partition in assigned:
                consumer.seek(partition, 5)

    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=2)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    consumer.subscribe([topic], listener=FromFive())
    assert next(consumer).offset == 5
    consumer.close()


def test_what_was_not_given_out_is_not_committed(bootstrap, topic):
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(100):
            producer.send(topic, b"%d" % n, partition=0)
    with KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        assert consumer.committed(partition) == 3


def test_an_exception_leaves_the_last_commit_alone(bootstrap, topic):
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v", partition=0).get(60)
    with (
        pytest.raises(RuntimeError, match="processing failed"),
        KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer,
    ):
        next(consumer)
        raise RuntimeError("processing failed")
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        assert consumer.committed(partition) is None


def test_consume_transform_produce_in_transactions(bootstrap, topic):
    source, target = TopicPartition(topic, 0), f"{topic}-out"
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(6):
            producer.send(topic, b"%d" % n, partition=0)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for end in ("abort", "commit"):
        producer.begin_transaction()
        for _ in range(3):
            record = next(consumer)
            producer.send(target, b"%s %s" % (end.encode(), record.value), partition=0)
        offsets = {source: OffsetAndMetadata(consumer.position(source), "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.abort_transaction() if end == "abort" else producer.commit_transaction()
    assert consumer.committed(source) == 6
    consumer.close()
    producer.close()
    with KafkaConsumer(
        target,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
    ) as reader:
        assert [next(reader).value for _ in range(3)] == [b"commit 3", b"commit 4", b"commit 5"]


def test_no_broker_there():
    with pytest.raises(NoBrokersAvailable, match=r"127\.0\.0\.1:1 within 0\.5 s"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=500)
    with pytest.raises(KafkaTimeoutError):
        KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=500)


def test_nowhere_to_begin(bootstrap, topic):
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v").get(60)
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(KafkaError, match="auto_offset_reset"):
            consumer.poll(60_000)
        consumer.seek(TopicPartition(topic, 0), 50)
        with pytest.raises(KafkaError, match="OffsetOutOfRange"):
            consumer.poll(60_000)


def test_an_offset_that_is_gone_is_reset_by_the_policy(bootstrap, topic):
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v", partition=0).get(60)
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 50)
        assert next(consumer).offset == 0


def test_a_topic_that_comes_later_is_read_without_a_group(bootstrap, topic):
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        consumer.poll(50)
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"here").get(60)
        assert next(consumer).value == b"here"
        assert len(consumer.assignment()) == 4


def test_a_settings_mistake_is_named(bootstrap):
    with pytest.raises(KafkaConfigurationError, match="did you mean bootstrap_servers"):
        KafkaProducer(bootstrap_server=bootstrap)
    with pytest.raises(KafkaConfigurationError, match="group_protocol='consumer'"):
        KafkaConsumer(
            bootstrap_servers=bootstrap, group_id="g", group_protocol="consumer", session_timeout_ms=1
        )
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer, pytest.raises(IllegalStateError):
        consumer.commit()
