"""Scenes of every Kafka course, played on three brokers and a controller that outlives them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.cluster import Cluster
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

pytestmark = pytest.mark.slow

ALL, ONE = -1, 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A follower that is silent stays in sync for longer than any scene takes.
    settings = {"replica.lag.time.max.ms": 600_000, "broker.session.timeout.ms": 600_000}
    with Cluster(tmp_path_factory.mktemp("stage"), 3, controllers=1, settings=settings) as cluster:
        yield cluster


def send(cluster: Cluster, topic: str, value: bytes, acks: int) -> int:
    """What the leader says to one record."""
    leader = cluster.leader_of(topic)
    assert leader is not None
    request = messages.ProduceRequest
    records = build_batch([Record(0, 0, None, value, ())], base_offset=0)
    partition = request.PartitionProduceData(index=0, records=records)
    topics = [request.TopicProduceData(name=topic, partition_data=[partition])]
    with RawClient(*cluster.plans[leader].address, timeout_s=30) as client:
        answer = client.ask(request(acks=acks, timeout_ms=20_000, topic_data=topics), 12)
    return int(answer.responses[0].partition_responses[0].error_code)


def readable(cluster: Cluster, topic: str) -> int:
    """The offset up to which consumers may read."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1])
    finally:
        consumer.close()


def followers_of(cluster: Cluster, topic: str) -> list[int]:
    return [node_id for node_id in cluster.broker_ids if node_id != cluster.leader_of(topic)]


def test_with_two_of_three_brokers_down_writes_are_refused(stage: Cluster, topic: str) -> None:
    stage.create_topic(topic, configs={"min.insync.replicas": 2})
    assert send(stage, topic, b"kept", ALL) == ErrorCode.NONE
    gone = followers_of(stage, topic)
    for node_id in gone:
        stage.kill(node_id)
    stage.wait_for(lambda: len(stage.isr_of(topic)) == 1)
    assert send(stage, topic, b"refused", ALL) == ErrorCode.NOT_ENOUGH_REPLICAS
    producer = Producer({"bootstrap.servers": stage.bootstrap, "acks": "all", "delivery.timeout.ms": 1000})
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"refused, too", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes[0] is not None
    for node_id in gone:
        stage.start_node(node_id)
    stage.wait_in_sync(topic)
    assert send(stage, topic, b"again", ALL) == ErrorCode.NONE
    assert readable(stage, topic) == 2


def test_a_record_is_readable_only_once_all_in_sync_have_it(stage: Cluster, topic: str) -> None:
    stage.create_topic(topic, configs={"min.insync.replicas": 1})
    assert send(stage, topic, b"seen", ALL) == ErrorCode.NONE
    sleeping = followers_of(stage, topic)
    for node_id in sleeping:
        stage.pause(node_id)
    try:
        assert send(stage, topic, b"only with the leader", ONE) == ErrorCode.NONE
        assert len(stage.isr_of(topic)) == 3
        assert readable(stage, topic) == 1
        assert len(stage.isr_of(topic)) == 3
        for node_id in sleeping:
            stage.kill(node_id)
        # They are no longer among those in sync, and what is left of these has both records.
        stage.wait_for(lambda: len(stage.isr_of(topic)) == 1)
        stage.wait_for(lambda: readable(stage, topic) == 2)
    finally:
        for node_id in sleeping:
            stage.kill(node_id)
            stage.start_node(node_id)
    stage.wait_in_sync(topic)
