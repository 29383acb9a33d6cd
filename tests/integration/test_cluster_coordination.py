"""Groups, transactions and queues go on when the broker that coordinates them is killed, and lose or repeat nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration.cluster_load import read_all
from integration.raw_transactions import (
    GROUP,
    PATIENCE_S,
    TRANSACTION,
    Abortable,
    RawProducer,
    coordinator,
)
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.slow

QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}


@pytest.fixture(autouse=True)
def all_return(cluster: Cluster) -> Iterator[None]:
    """Who was killed comes back before the next test."""
    yield
    for node_id in cluster.broker_ids:
        if not cluster.running(node_id):
            cluster.start_node(node_id)
    cluster.wait_all_in_sync(PATIENCE_S)


def write(cluster: Cluster, topic: str, numbers: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUICK})
    failures: list[object] = []
    for number in numbers:
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def make_sure(cluster: Cluster, node_id: int) -> None:
    """Start a node that was killed, and wait until it has caught up, with the coordinators' topics as well."""
    cluster.start_node(node_id)
    cluster.wait_all_in_sync(PATIENCE_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster, topic: str, protocol: str) -> None:
    topic += protocol
    cluster.create_topic(topic, 3)
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **QUICK,
    }
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = 500
    members = [Consumer(settings) for _ in range(2)]
    seen: Counter[int] = Counter()

    def read_up_to(count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(seen) < count:
            assert time.monotonic() < end, f"{len(seen)} of {count}"
            for member in members:
                message = member.poll(0.05)
                if message is not None and message.error() is None:
                    seen[int(message.value())] += 1

    def committed() -> dict[int, int]:
        found = members[0].committed([TopicPartition(topic, index) for index in range(3)], PATIENCE_S)
        return {each.partition: each.offset for each in found}

    for member in members:
        member.subscribe([topic])
    settled = time.monotonic() + PATIENCE_S
    while not all(member.assignment() for member in members):
        assert time.monotonic() < settled
        for member in members:
            member.poll(0.05)
    write(cluster, topic, range(300), 3)
    read_up_to(300)
    for member in members:
        member.commit(asynchronous=False)
    before = committed()
    assert sum(before.values()) == 300

    cluster.kill(cluster.wait_for(lambda: coordinator(cluster, topic, GROUP)) or -1)
    assert committed() == before
    write(cluster, topic, range(300, 600), 3)
    read_up_to(600)
    end = time.monotonic() + PATIENCE_S
    while sum(committed().values()) < 600:
        assert time.monotonic() < end, committed()
        for member in members:
            member.poll(0.05)
            try:
                member.commit(asynchronous=False)
            except KafkaException as error:
                # Between two assignments a member may have nothing to commit, or not the epoch to do it in.
                assert time.monotonic() < end, error
    # What was committed before is not read again; what was not may be.
    assert all(seen[number] == 1 for number in range(300)), seen.most_common(3)
    for member in members:
        member.close()


def copy(cluster: Cluster, source: str, sink: str, total: int, events: dict[int, Callable[[], None]]) -> None:
    """Copy records from topic to topic, in transactions that also commit what was read.

    An event comes in the middle of the transaction of its number: after the records, before the offsets.
    """
    producer = RawProducer(cluster, sink)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", **QUICK})
    reader.assign([TopicPartition(source, index, 0) for index in range(3)])
    copied = number = 0
    end = time.monotonic() + 3 * PATIENCE_S
    while copied < total:
        assert time.monotonic() < end, f"copied {copied} of {total}"
        records = [message for message in reader.consume(50, 0.5) if message.error() is None]
        if not records:
            continue
        event = events.pop(number, None)
        number += 1
        while True:
            try:
                _copy_once(producer, source, sink, records, event)
                break
            except Abortable:
                event = None
                producer.end(commit=False)
        copied += len(records)
    reader.close()
    producer.close()
    assert not events


def _copy_once(
    producer: RawProducer, source: str, sink: str, records: list[Message], event: Callable[[], None] | None
) -> None:
    by_partition: dict[int, list[Message]] = {}
    for record in records:
        by_partition.setdefault(record.partition(), []).append(record)
    for partition, theirs in by_partition.items():
        producer.send(sink, partition, [record.value() for record in theirs])
    if event is not None:
        event()
    offsets = {partition: theirs[-1].offset() + 1 for partition, theirs in by_partition.items()}
    producer.commit_offsets(sink, source, offsets)
    producer.end(commit=True)


def test_a_transactional_copy_survives_coordinators_and_leaders(cluster: Cluster, topic: str) -> None:
    source, sink = topic, f"{topic}-copy"
    for name in (source, sink):
        cluster.create_topic(name, 3, configs={"min.insync.replicas": 2})
    write(cluster, source, range(1500), 3)
    killed: list[int] = []

    def kill(find: Callable[[], int | None]) -> None:
        for other in killed:
            make_sure(cluster, other)
        victim = cluster.wait_for(find)
        assert victim is not None
        killed[:] = [victim]
        cluster.kill(victim)

    def kill_coordinator(kind: int) -> None:
        kill(lambda: coordinator(cluster, sink, kind))

    copy(
        cluster,
        source,
        sink,
        1500,
        {
            3: lambda: kill_coordinator(TRANSACTION),
            8: lambda: kill_coordinator(GROUP),
            13: lambda: kill(lambda: cluster.leader_of(sink, 0)),
            18: lambda: kill_coordinator(TRANSACTION),
            23: lambda: kill_coordinator(GROUP),
        },
    )
    found = read_all(cluster.bootstrap, sink, **{"isolation.level": "read_committed"})
    for index in range(3):
        assert [int(value) for value in found[index]] == list(range(index, 1500, 3))
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": sink, **QUICK})
    offsets = group.committed([TopicPartition(source, index) for index in range(3)], PATIENCE_S)
    assert [each.offset for each in offsets] == [500, 500, 500]
    group.close()


def test_an_unfinished_transaction_is_aborted_by_the_next_coordinator(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, 2)
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, **QUICK}
    old = Producer(settings)
    old.init_transactions(PATIENCE_S)
    old.begin_transaction()
    for index in range(2):
        old.produce(topic, b"lost", partition=index)
    assert old.flush(PATIENCE_S) == 0
    cluster.kill(cluster.wait_for(lambda: coordinator(cluster, topic, TRANSACTION)) or -1)
    new = Producer(settings)
    new.init_transactions(PATIENCE_S)
    new.begin_transaction()
    for index in range(2):
        new.produce(topic, b"kept", partition=index)
    new.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException):
        old.commit_transaction(PATIENCE_S)
    found = read_all(cluster.bootstrap, topic, **{"isolation.level": "read_committed"})
    assert found == {0: [b"kept"], 1: [b"kept"]}


@pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no share consumer"
)
def test_a_queue_goes_on_when_leaders_and_coordinators_are_killed(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, 3, configs={"min.insync.replicas": 2})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    # A lock that ends while a busy machine keeps the consumer waiting would deliver its record again.
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=changes)
    admin.incremental_alter_configs([group])[group].result(PATIENCE_S)
    write(cluster, topic, range(300), 3)
    member = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, **QUICK}
    )
    member.subscribe([topic])
    seen: Counter[int] = Counter()

    def read_up_to(count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(seen) < count:
            assert time.monotonic() < end, f"{len(seen)} of {count}"
            seen.update(int(message.value()) for message in member.poll(0.2) or [] if message.error() is None)
        member.commit_sync()

    read_up_to(300)
    for step, victim in enumerate(
        (lambda: cluster.leader_of(topic, 0), lambda: coordinator(cluster, topic, GROUP))
    ):
        node_id = cluster.wait_for(victim)
        assert node_id is not None
        cluster.kill(node_id)
        first = 300 * (step + 1)
        write(cluster, topic, range(first, first + 300), 3)
        read_up_to(first + 300)
        make_sure(cluster, node_id)
    member.close()
    assert sorted(seen) == list(range(900))
    # What was acknowledged is kept by the share coordinator: only what was under way may have come twice.
    assert sum(seen.values()) < 1100
