"""Replicas on three real brokers: a leader that slept, readers nearby, deleted records, moves and failed disks."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.cluster import Cluster
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("replicas")
    settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with Cluster(data, settings=settings, racks=("north", "east", "south")) as cluster:
        yield cluster


def batch(value: bytes) -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, None, value, ())], base_offset=0))


def produce_request(topic: str, value: bytes, timeout_ms: int = 30_000) -> Any:
    request = messages.ProduceRequest
    return request(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            request.TopicProduceData(
                name=topic,
                partition_data=[request.PartitionProduceData(index=0, records=batch(value))],
            )
        ],
    )


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            for message in consumer.consume(count - len(found), 10):
                assert message.error() is None
                found.append(message.value())
    finally:
        consumer.close()
    return found


def test_a_leader_that_slept_never_acknowledges_what_the_others_do_not_have(
    nodes: Cluster, topic: str
) -> None:
    nodes.create_topic(topic, assignments=[[1, 2, 3]], configs={"min.insync.replicas": 1})
    produce(nodes.bootstrap, topic, b"before")
    leader = nodes.leader_of(topic)
    assert leader is not None
    with RawClient(*nodes.plans[leader].address, timeout_s=60) as client:
        nodes.pause(leader)
        client.send(produce_request(topic, b"lost"), 12)
        nodes.wait_for(lambda: nodes_except(nodes, topic, leader))
        survivor = next(n for n in nodes.broker_ids if n != leader)
        produce(nodes.address(survivor), topic, b"after")
        nodes.resume(leader)
        answer = client.receive().responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    nodes.wait_in_sync(topic)
    assert read(nodes.bootstrap, topic, 2) == [b"before", b"after"]


def nodes_except(nodes: Cluster, topic: str, paused: int) -> bool:
    """Whether the brokers that are awake have another leader."""
    awake = next(n for n in nodes.broker_ids if n != paused)
    found = nodes.partition(topic, node_id=awake)
    return found is not None and found.leader_id not in (-1, paused)


def test_a_consumer_reads_from_the_replica_in_its_rack(nodes: Cluster, topic: str) -> None:
    nodes.create_topic(topic, assignments=[[1, 2, 3]])
    values = [b"%d" % n for n in range(100)]
    produce(nodes.bootstrap, topic, *values)
    leader = nodes.leader_of(topic)
    assert leader is not None
    racks = {1: "north", 2: "east", 3: "south"}
    near = next(n for n in nodes.broker_ids if n != leader)

    def preferred(rack: str) -> int:
        request = messages.FetchRequest
        asked = request(
            max_wait_ms=0,
            session_epoch=-1,
            topics=[
                request.FetchTopic(
                    topic=topic,
                    partitions=[
                        request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                    ],
                )
            ],
            rack_id=rack,
        )
        part = nodes.ask(asked, 12, node_id=leader).responses[0].partitions[0]
        return int(part.preferred_read_replica)

    assert nodes.wait_for(lambda: preferred(racks[near]) == near)
    assert preferred(racks[leader]) == preferred("elsewhere") == preferred("") == -1
    assert read(nodes.bootstrap, topic, 100, **{"client.rack": racks[near]}) == values


def test_records_are_deleted_on_every_replica(nodes: Cluster, topic: str) -> None:
    nodes.create_topic(topic, assignments=[[1, 2, 3]])
    produce(nodes.bootstrap, topic, *[b"%d" % n for n in range(10)])
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert deleted.result(60).low_watermark == 7
    request = messages.ListOffsetsRequest
    for node_id in nodes.broker_ids:
        asked = request(
            replica_id=-2,
            topics=[
                request.ListOffsetsTopic(
                    name=topic, partitions=[request.ListOffsetsPartition(partition_index=0, timestamp=-2)]
                )
            ],
        )
        answer = nodes.ask(asked, 7, node_id=node_id).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 7)


def test_an_unfit_follower_of_another_name_is_told_so(nodes: Cluster, topic: str) -> None:
    nodes.create_topic(topic, assignments=[[1, 2]])
    request = messages.FetchRequest
    asked = request(
        replica_id=3,
        max_wait_ms=0,
        session_epoch=-1,
        topics=[
            request.FetchTopic(
                topic=topic,
                partitions=[
                    request.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=1024, current_leader_epoch=0
                    )
                ],
            )
        ],
    )
    answer = nodes.ask(asked, 12, node_id=nodes.leader_of(topic)).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.fixture(scope="module")
def two_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, the second with two log directories."""
    data = tmp_path_factory.mktemp("disks")
    cluster = Cluster(data, n=2, controllers=1, settings={"offsets.topic.replication.factor": 2})
    plan = cluster.plans[2]
    dirs = f"{plan.data}/one,{plan.data}/two"
    object.__setattr__(
        plan, "properties", {**plan.properties, "log.dirs": dirs, "metadata.log.dir": f"{plan.data}/one"}
    )
    with cluster:
        yield cluster


def directories_of(cluster: Cluster, topic: str, node_id: int) -> set[str]:
    """Where a broker has logs of the topic, future ones left out."""
    answer = cluster.ask(messages.DescribeLogDirsRequest(topics=None), 4, node_id=node_id)
    return {
        Path(result.log_dir).name
        for result in answer.results
        for described in result.topics
        if described.name == topic
        for partition in described.partitions
        if not partition.is_future_key
    }


def move(cluster: Cluster, topic: str, node_id: int, directory: str) -> int:
    request = messages.AlterReplicaLogDirsRequest
    asked = request(
        dirs=[
            request.AlterReplicaLogDir(
                path=f"{cluster.plans[node_id].data}/{directory}",
                topics=[request.AlterReplicaLogDirTopic(name=topic, partitions=[0])],
            )
        ]
    )
    answer = cluster.ask(asked, 2, node_id=node_id)
    return int(answer.results[0].partitions[0].error_code)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_replica_moves_between_log_directories(two_disks: Cluster, topic: str, leader: int) -> None:
    two_disks.create_topic(topic, assignments=[[leader, 3 - leader]])
    values = [b"%d" % n for n in range(200)]
    produce(two_disks.bootstrap, topic, *values)
    (source,) = two_disks.wait_for(lambda: directories_of(two_disks, topic, 2))
    target = "two" if source == "one" else "one"
    assert move(two_disks, topic, 2, target) == ErrorCode.NONE
    two_disks.wait_for(lambda: directories_of(two_disks, topic, 2) == {target})
    produce(two_disks.bootstrap, topic, b"later")
    two_disks.wait_in_sync(topic)
    two_disks.stop(2)
    two_disks.start_node(2)
    two_disks.wait_in_sync(topic)
    assert directories_of(two_disks, topic, 2) == {target}
    assert read(two_disks.address(2), topic, 201) == [*values, b"later"]


def test_a_failed_directory_takes_only_its_own_partitions(two_disks: Cluster, topic: str) -> None:
    """Runs last: the directory does not come back."""
    other = topic + "-other"
    two_disks.create_topic(topic, assignments=[[2, 1]])
    two_disks.create_topic(other, assignments=[[2, 1]])
    for name, wanted in ((topic, "two"), (other, "one")):
        produce(two_disks.bootstrap, name, b"a")
        if directories_of(two_disks, name, 2) != {wanted}:
            assert move(two_disks, name, 2, wanted) == ErrorCode.NONE
            two_disks.wait_for(lambda n=name, w=wanted: directories_of(two_disks, n, 2) == {w})
    two_disks.wait_in_sync(topic)
    two_disks.wait_in_sync(other)
    # A disk that is gone: its files cannot be opened any more.
    os.kill(two_disks.nodes[2].pid, signal.SIGSTOP)
    shutil.rmtree(two_disks.plans[2].data / "two")
    os.kill(two_disks.nodes[2].pid, signal.SIGCONT)
    two_disks.wait_for(lambda: two_disks.leader_of(topic) in (1, 2))
    two_disks.ask(messages.DescribeLogDirsRequest(topics=None), 4, node_id=2)
    roll = {"segment.ms": "1"}
    alter(two_disks, topic, roll)
    produce(two_disks.address(1), topic, b"b", b"c")
    two_disks.wait_for(lambda: two_disks.leader_of(topic) == 1 and two_disks.isr_of(topic) == [1])
    assert two_disks.isr_of(other) == [1, 2]
    produce(two_disks.bootstrap, other, b"d")
    assert read(two_disks.address(1), other, 2) == [b"a", b"d"]


def alter(cluster: Cluster, topic: str, configs: dict[str, str]) -> None:
    request = messages.IncrementalAlterConfigsRequest
    asked = request(
        resources=[
            request.AlterConfigsResource(
                resource_type=2,
                resource_name=topic,
                configs=[
                    request.AlterableConfig(name=key, config_operation=0, value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    assert cluster.ask(asked, 1).responses[0].error_code == ErrorCode.NONE
