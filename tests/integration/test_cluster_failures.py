"""Three nodes under load while one after the other is killed, stopped, paused or loses its disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration.cluster_load import Load, check_nothing_lost
from integration.raw_transactions import GROUP, TRANSACTION, coordinator
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.slow

PARTITIONS = 6
LAG_S = 6


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Less than the session of a broker, and more than one that only has to wait for a busy machine is late.
    settings = {"replica.lag.time.max.ms": LAG_S * 1000}
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def load(nodes: Cluster, topic: str) -> Iterator[Load]:
    """Writes to a topic of its own that go on through the whole test; nothing of it may be lost in the end."""
    nodes.create_topic(topic, PARTITIONS, configs={"min.insync.replicas": 2})
    load = Load(nodes.bootstrap, topic).start()
    load.wait_for_more(100)
    yield load
    load.stop()
    for node_id in nodes.nodes:
        if not nodes.running(node_id):
            nodes.start_node(node_id)
    nodes.wait_in_sync(topic, PARTITIONS)
    assert load.errors == []
    check_nothing_lost(nodes.bootstrap, load)


def victim_of(nodes: Cluster, topic: str, role: str) -> int:
    controller = nodes.wait_for(nodes.controller_id)
    assert controller is not None
    if role == "controller":
        return controller
    leaders = [nodes.leader_of(topic, index) for index in range(PARTITIONS)]
    return next(leader for leader in leaders if leader is not None and leader != controller)


@pytest.mark.parametrize("role", ["leader", "controller"])
def test_kill_9_costs_no_acknowledged_record(nodes: Cluster, load: Load, role: str) -> None:
    victim = victim_of(nodes, load.topic, role)
    nodes.kill(victim)
    # Everything goes on without it ...
    load.wait_for_more(300)
    nodes.wait_for(lambda: all(nodes.leader_of(load.topic, index) != victim for index in range(PARTITIONS)))
    # ... and with it again.
    nodes.start_node(victim)
    nodes.wait_in_sync(load.topic, PARTITIONS)
    load.wait_for_more(100)


def test_a_broker_that_stops_hands_over_first(nodes: Cluster, load: Load) -> None:
    victim = victim_of(nodes, load.topic, "leader")
    assert nodes.stop(victim) == 0
    load.wait_for_more(300)
    nodes.start_node(victim)
    nodes.wait_in_sync(load.topic, PARTITIONS)


def test_a_rolling_restart_costs_no_errors(nodes: Cluster, load: Load) -> None:
    for node_id in nodes.broker_ids:
        nodes.restart(node_id)
        nodes.wait_in_sync(load.topic, PARTITIONS)
        load.wait_for_more(50)
    assert load.errors == []


def test_a_wiped_directory_refills(nodes: Cluster, load: Load) -> None:
    victim = victim_of(nodes, load.topic, "leader")
    # Were it the only one in sync, all would be gone with it.
    nodes.wait_in_sync(load.topic, PARTITIONS)
    nodes.kill(victim)
    shutil.rmtree(nodes.plans[victim].data)
    nodes.prepare()
    load.wait_for_more(200)
    nodes.start_node(victim)
    nodes.wait_in_sync(load.topic, PARTITIONS)
    load.wait_for_more(50)


def test_all_killed_at_once(nodes: Cluster, load: Load) -> None:
    nodes.kill_all()
    for process in nodes.nodes.values():
        process.launch()
    for process in nodes.nodes.values():
        process.wait_ready()
    load.wait_for_more(100)
    nodes.wait_in_sync(load.topic, PARTITIONS)


def test_with_two_of_three_gone_writes_are_refused_and_go_on_when_they_return(
    nodes: Cluster, topic: str
) -> None:
    nodes.create_topic(topic, configs={"min.insync.replicas": 2})
    leader = nodes.leader_of(topic)
    others = [node_id for node_id in nodes.broker_ids if node_id != leader]
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"})
    impatient = Producer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "acks": "all",
            "delivery.timeout.ms": 4000,
            "request.timeout.ms": 2000,
        }
    )
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"kept", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(60)
    assert outcomes == [None]
    for node_id in others:
        nodes.kill(node_id)
    impatient.produce(topic, b"refused", on_delivery=lambda error, _: outcomes.append(error))
    impatient.flush(60)
    assert outcomes[1] is not None
    for node_id in others:
        nodes.nodes[node_id].launch()
    for node_id in others:
        nodes.nodes[node_id].wait_ready()
    nodes.wait_in_sync(topic)
    producer.produce(topic, b"again", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(60)
    assert outcomes[2] is None


def test_a_paused_follower_leaves_the_isr_and_returns(nodes: Cluster, load: Load) -> None:
    nodes.wait_in_sync(load.topic, PARTITIONS)
    controller = nodes.wait_for(nodes.controller_id)
    paused = next(node_id for node_id in nodes.broker_ids if node_id != controller)
    kept = next(index for index in range(PARTITIONS) if nodes.leader_of(load.topic, index) != paused)
    began = time.monotonic()
    nodes.pause(paused)
    try:
        nodes.wait_for(lambda: paused not in (nodes_isr(nodes, load.topic, kept, paused) or [paused]))
        # Only silence: it is not taken for dead before replica.lag.time.max.ms is over.
        assert time.monotonic() - began >= LAG_S / 2
    finally:
        nodes.resume(paused)
    nodes.wait_in_sync(load.topic, PARTITIONS)


def nodes_isr(nodes: Cluster, topic: str, partition: int, silent: int) -> list[int]:
    """According to a broker that responds."""
    other = next(node_id for node_id in nodes.broker_ids if node_id != silent)
    found = nodes.partition(topic, partition, node_id=other)
    return [] if found is None else list(found.isr_nodes)


def test_a_group_survives_its_coordinator(nodes: Cluster, load: Load) -> None:
    group = f"{load.topic}-group"
    settings = {
        "bootstrap.servers": nodes.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 60_000,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([load.topic])
        read = [m for m in consumer.consume(50, 60) if m.error() is None]
        assert read
        consumer.commit(asynchronous=False)
        before = _committed(consumer, load.topic)
        nodes.kill(nodes.wait_for(lambda: coordinator(nodes, group, GROUP)) or -1)
        more = [m for m in consumer.consume(50, 60) if m.error() is None]
        assert more
        consumer.commit(asynchronous=False)
        after = _committed(consumer, load.topic)
        assert sum(after.values()) > sum(before.values())
        assert all(after[index] >= offset for index, offset in before.items())
    finally:
        consumer.close()


def _committed(consumer: Consumer, topic: str) -> dict[int, int]:
    parts = consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], 60)
    return {part.partition: max(part.offset, 0) for part in parts}


def test_a_transaction_survives_its_coordinator(nodes: Cluster, load: Load, topic: str) -> None:
    target = f"{load.topic}-txn"
    nodes.create_topic(target, 3)
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "transactional.id": target})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(target, b"one", partition=partition)
    producer.flush(60)
    nodes.kill(nodes.wait_for(lambda: coordinator(nodes, target, TRANSACTION)) or -1)
    producer.commit_transaction(60)
    consumer = Consumer(
        {"bootstrap.servers": nodes.bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(target, index, 0) for index in range(3)])
        assert sorted(m.value() for m in consumer.consume(3, 120)) == [b"one"] * 3
    finally:
        consumer.close()
