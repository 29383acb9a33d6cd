"""What an operator of a cluster does: hand over leadership, move replicas, lose brokers and forget them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.errors import ErrorCode
from ottla.testing.cluster import Cluster
from ottla.wire import messages

BROKERS = 4
SESSION_S = 240
"""Nothing that is tested with it waits for it to end."""
SHORT_SESSION_S = 8


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four brokers in three racks and one controller of its own; every test leaves all of them running."""
    settings = {
        "broker.session.timeout.ms": SESSION_S * 1000,
        "broker.heartbeat.interval.ms": 500,
        # Leaders change when a test asks for it.
        "auto.leader.rebalance.enable": "false",
    }
    nodes = Cluster(
        tmp_path_factory.mktemp("four"), BROKERS, controllers=1, settings=settings, racks=["a", "b", "c"]
    )
    with nodes:
        yield nodes
        for node_id in nodes.nodes:
            assert "Traceback" not in nodes.log(node_id), nodes.log(node_id)


def write(cluster: Cluster, topic: str, count: int = 200) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1})
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failures == []


def elect(cluster: Cluster, topic: str, election: int, version: int = 2) -> int:
    request = messages.ElectLeadersRequest
    asked = request(
        election_type=election,
        topic_partitions=[request.TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=60_000,
    )
    answer = cluster.ask(asked, version)
    return int(answer.replica_election_results[0].partition_result[0].error_code)


def reassign(cluster: Cluster, topic: str, replicas: list[int] | None) -> int:
    request = messages.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=replicas)
    asked = request(topics=[request.ReassignableTopic(name=topic, partitions=[partition])])
    return int(cluster.ask(asked, 1).responses[0].partitions[0].error_code)


def ongoing(cluster: Cluster) -> list[tuple[str, list[int], list[int]]]:
    answer = cluster.ask(messages.ListPartitionReassignmentsRequest(topics=None), 0)
    return [
        (topic.name, partition.adding_replicas, partition.removing_replicas)
        for topic in answer.topics
        for partition in topic.partitions
    ]


def replicas_of(cluster: Cluster, topic: str) -> list[int]:
    found = cluster.partition(topic)
    return [] if found is None else list(found.replica_nodes)


def test_replicas_are_spread_over_racks(four: Cluster, topic: str) -> None:
    # Brokers 1 and 4 share a rack.
    four.create_topic(topic, partitions=12, replication_factor=3)
    for index in range(12):
        found: Any = four.partition(topic, index)
        assert not {1, 4} <= set(found.replica_nodes)


def test_a_killed_broker_is_fenced_at_once_and_leads_again_when_asked(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[1, 2, 3]])
    four.wait_in_sync(topic)
    four.kill(1)
    # Its session would go on for longer.
    four.wait_for(lambda: four.leader_of(topic) == 2 and four.isr_of(topic) == [2, 3], SESSION_S / 2)
    assert elect(four, topic, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    write(four, topic)
    four.start_node(1)
    four.wait_in_sync(topic)
    assert four.leader_of(topic) == 2
    assert elect(four, topic, 0) == 0
    four.wait_for(lambda: four.leader_of(topic) == 1)
    assert elect(four, topic, 0) == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(four, topic, 0, version=0) == ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.slow
def test_a_paused_broker_keeps_its_session(tmp_path: Path, topic: str) -> None:
    settings = {
        "broker.session.timeout.ms": SHORT_SESSION_S * 1000,
        "broker.heartbeat.interval.ms": 500,
        "auto.leader.rebalance.enable": "false",
    }
    with Cluster(tmp_path / "pair", 2, controllers=1, settings=settings) as pair:
        pair.create_topic(topic, assignments=[[1, 2]])
        pair.wait_in_sync(topic)
        paused_at = time.monotonic()
        pair.pause(1)
        try:
            pair.wait_for(lambda: pair.leader_of(topic) == 2)
            # It was heard of last some time before.
            assert time.monotonic() - paused_at > SHORT_SESSION_S - 2
        finally:
            pair.resume(1)
        pair.wait_in_sync(topic)


@pytest.mark.slow
def test_a_stop_in_order_hands_over_first(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[3, 4, 1]])
    four.wait_in_sync(topic)
    write(four, topic, 10)
    assert four.stop(3) == 0
    assert four.partition(topic, node_id=4).leader_id == 4  # type: ignore[union-attr]
    write(four, topic, 10)
    four.start_node(3)
    four.wait_in_sync(topic)


@pytest.mark.slow
def test_an_unclean_election_only_when_it_is_allowed(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[1, 2]])
    four.wait_in_sync(topic)
    four.kill(2)
    four.wait_for(lambda: four.isr_of(topic) == [1])
    write(four, topic)
    four.kill(1)
    four.wait_for(lambda: four.partition(topic, node_id=3).leader_id == -1)  # type: ignore[union-attr]
    four.start_node(2)
    # Broker 2 lacks records: it waits for the other.
    assert four.leader_of(topic) is None
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    resource = request.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    assert four.ask(request(resources=[resource]), 1, node_id=3).responses[0].error_code == 0
    four.wait_for(lambda: four.leader_of(topic) == 2)
    four.start_node(1)
    four.wait_in_sync(topic)


def test_a_replica_moves_to_another_broker(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[1, 2]])
    write(four, topic, 2000)
    assert reassign(four, topic, [3, 4]) == 0
    four.wait_for(lambda: replicas_of(four, topic) == [3, 4] and four.isr_of(topic) == [3, 4])
    assert ongoing(four) == []
    assert four.leader_of(topic) == 3
    write(four, topic)
    for gone in (1, 2):
        directory = four.plans[gone].data / f"{topic}-0"
        four.wait_for(lambda directory=directory: not directory.exists())  # type: ignore[misc]


@pytest.mark.slow
def test_a_reassignment_to_a_broker_that_is_down_waits_and_is_cancelled(four: Cluster, topic: str) -> None:
    four.create_topic(topic, assignments=[[1, 2]])
    write(four, topic)
    four.kill(4)
    assert reassign(four, topic, [1, 4]) == 0
    assert ongoing(four) == [(topic, [4], [2])]
    assert reassign(four, topic, None) == 0
    assert ongoing(four) == []
    assert reassign(four, topic, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    four.wait_for(lambda: replicas_of(four, topic) == [1, 2] and four.isr_of(topic) == [1, 2])
    write(four, topic)
    four.start_node(4)


@pytest.mark.slow
def test_a_broker_that_is_gone_for_good_is_forgotten(four: Cluster, topic: str) -> None:
    def brokers() -> set[int]:
        return {broker.broker_id for broker in four.ask(messages.DescribeClusterRequest(), 1).brokers}

    four.wait_for(lambda: brokers() == {1, 2, 3, 4})
    four.kill(4)
    answer = four.ask(messages.UnregisterBrokerRequest(broker_id=4), 0)
    assert answer.error_code == 0
    again = four.ask(messages.UnregisterBrokerRequest(broker_id=4), 0)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    four.wait_for(lambda: brokers() == {1, 2, 3})
    four.start_node(4)
    four.wait_for(lambda: brokers() == {1, 2, 3, 4})
