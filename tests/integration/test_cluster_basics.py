"""Three nodes, each broker and controller, none of which fails: any of them can be asked for anything."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from integration.cluster_load import read_all
from ottla.errors import ErrorCode
from ottla.testing.cluster import Cluster
from ottla.wire import messages

pytestmark = pytest.mark.slow


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **settings})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []


def test_every_broker_tells_the_same_story(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=6)
    request = messages.MetadataRequest
    stories = []
    for node_id in cluster.broker_ids:
        answer = cluster.ask(request(topics=[request.MetadataRequestTopic(name=topic)]), 12, node_id=node_id)
        assert answer.cluster_id == cluster.cluster_id
        assert answer.controller_id in cluster.broker_ids
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        assert brokers == {node: cluster.address(node) for node in cluster.broker_ids}
        partitions = answer.topics[0].partitions
        assert {partition.leader_id for partition in partitions} == {1, 2, 3}
        for partition in partitions:
            assert sorted(partition.replica_nodes) == [1, 2, 3]
            assert partition.offline_replicas == []
        stories.append(sorted((p.partition_index, p.leader_id, tuple(p.replica_nodes)) for p in partitions))
    assert stories[0] == stories[1] == stories[2]


def test_what_is_written_through_any_broker_is_read_through_any_other(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    for node_id in cluster.broker_ids:
        produce(cluster.address(node_id), topic, [f"{node_id}-{n}".encode() for n in range(100)])
    wanted = sorted(f"{node_id}-{n}".encode() for node_id in cluster.broker_ids for n in range(100))
    for node_id in cluster.broker_ids:
        found = read_all(cluster.address(node_id), topic)
        assert sorted(value for values in found.values() for value in values) == wanted


def test_followers_have_what_the_leader_has(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    produce(cluster.bootstrap, topic, [b"x" * 1000] * 500)
    assert cluster.isr_of(topic) == [1, 2, 3]

    def sizes() -> set[bytes]:
        return {
            (plan.data / f"{topic}-0" / "00000000000000000000.log").read_bytes()
            for plan in cluster.plans.values()
        }

    # With acks=all the records are everywhere when they are acknowledged; byte for byte.
    assert len(sizes()) == 1
    assert len(sizes().pop()) > 500_000


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_any_broker_takes_admin_requests(cluster: Cluster, topic: str, node_id: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.address(node_id)})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(60)
    for other in cluster.broker_ids:
        cluster.wait_for(lambda other=other: cluster.partition(topic, node_id=other))
    change = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)
    request = messages.DescribeConfigsRequest
    asked = request(
        resources=[
            request.DescribeConfigsResource(
                resource_type=2, resource_name=topic, configuration_keys=["retention.ms"]
            )
        ]
    )
    for other in cluster.broker_ids:
        cluster.wait_for(
            lambda other=other: cluster.ask(asked, 4, node_id=other).results[0].configs[0].value == "12345"
        )
    admin.delete_topics([topic])[topic].result(60)
    for other in cluster.broker_ids:
        cluster.wait_for(lambda other=other: cluster.partition(topic, node_id=other) is None)


def test_errors_of_the_controller_come_back_through_any_broker(cluster: Cluster, topic: str) -> None:
    request = messages.CreateTopicsRequest
    asked = request(
        topics=[request.CreatableTopic(name=topic, num_partitions=1, replication_factor=4)], timeout_ms=60_000
    )
    for node_id in cluster.broker_ids:
        result = cluster.ask(asked, 7, node_id=node_id).topics[0]
        assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "4" in result.error_message


def test_topics_are_created_when_a_client_names_them(cluster: Cluster, topic: str) -> None:
    for node_id in cluster.broker_ids:
        name = f"{topic}-{node_id}"
        produce(cluster.address(node_id), name, [b"first"], **{"allow.auto.create.topics": True})
        assert read_all(cluster.bootstrap, name) == {0: [b"first"]}


def test_groups_live_on_all_brokers(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    produce(cluster.bootstrap, topic, [b"%d" % n for n in range(30)])
    for number in range(6):
        settings = {
            "bootstrap.servers": cluster.address(1 + number % 3),
            "group.id": f"{topic}-{number}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe([topic])
            read = []
            while len(read) < 30:
                message = consumer.poll(60)
                assert message is not None and message.error() is None
                read.append(message.value())
            consumer.commit(asynchronous=False)
            assert sorted(map(int, read)) == list(range(30))
            parts = [TopicPartition(topic, index) for index in range(3)]
            assert sum(max(part.offset, 0) for part in consumer.committed(parts, 30)) == 30
        finally:
            consumer.close()


def test_transactions_span_brokers(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=6)
    for number in range(4):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{number}"})
        producer.init_transactions(60)
        for outcome in ("kept", "dropped"):
            producer.begin_transaction()
            for partition in range(6):
                producer.produce(topic, f"{outcome}-{number}".encode(), partition=partition)
            (producer.commit_transaction if outcome == "kept" else producer.abort_transaction)(30)
    found = read_all(cluster.bootstrap, topic, **{"isolation.level": "read_committed"})
    assert found == {index: [f"kept-{number}".encode() for number in range(4)] for index in range(6)}


def test_offsets_are_committed_within_a_transaction(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    produce(cluster.bootstrap, topic, [b"in"] * 10)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-g"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    try:
        consumer.assign([TopicPartition(topic, 0)])
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(60)
        assert consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == 4
    finally:
        consumer.close()


def test_the_quorum_tells_of_itself_through_any_broker(cluster: Cluster) -> None:
    request = messages.DescribeQuorumRequest
    asked = request(
        topics=[
            request.TopicData(
                topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)]
            )
        ]
    )

    def agreed() -> bool:
        answers = [cluster.ask(asked, 2, node_id=node_id) for node_id in cluster.broker_ids]
        if any(answer.error_code for answer in answers):
            return False
        reported = [answer.topics[0].partitions[0] for answer in answers]
        leaders = {each.leader_id for each in reported}
        voters = {tuple(sorted(voter.replica_id for voter in each.current_voters)) for each in reported}
        return len(leaders) == 1 and leaders <= {1, 2, 3} and voters == {(1, 2, 3)}

    # Another leader may be elected between two answers.
    cluster.wait_for(agreed)
