"""Groups and transactions with librdkafka: rebalances of many members, commits, transactions."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.load import Load

_DEADLINE_S = 120.0


def _member(load: Load, group: str) -> Consumer:
    settings: dict[str, object] = {
        "bootstrap.servers": load.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "group.protocol": load.protocol,
    }
    if load.protocol == "classic":
        settings["partition.assignment.strategy"] = "range"
        if load.heartbeat_ms:
            settings["heartbeat.interval.ms"] = load.heartbeat_ms
    member = Consumer(settings)
    member.subscribe([load.topic])
    return member


def _until_settled(members: list[Consumer], load: Load) -> float:
    """Seconds until every partition belongs to exactly one member and no member is without."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < _DEADLINE_S:
        owned: list[int] = []
        idle = 0
        for member in members:
            member.poll(0)
            mine = [each.partition for each in member.assignment()]
            idle += not mine
            owned += mine
        if not idle and sorted(owned) == list(range(load.partitions)):
            return time.perf_counter() - begin
        time.sleep(0.005)
    raise TimeoutError(f"the group of {len(members)} did not settle in {_DEADLINE_S} s")


def rebalance(load: Load) -> dict[str, float]:
    """Seconds for `connections` members to form a group, to take over what one leaves, to give to one that joins."""
    group = f"{load.topic}-{load.protocol}"
    members = [_member(load, group) for _ in range(load.connections)]
    formed = _until_settled(members, load)
    begin = time.perf_counter()
    members.pop().close()
    _until_settled(members, load)
    left = time.perf_counter() - begin
    begin = time.perf_counter()
    members.append(_member(load, group))
    _until_settled(members, load)
    joined = time.perf_counter() - begin
    for member in members:
        member.unsubscribe()
    for member in members:
        member.close()
    return {"formed": formed, "after one left": left, "after one joined": joined}


def commits(load: Load) -> dict[str, float]:
    """Synchronous commits a second of one consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": f"{load.topic}-commits",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(load.topic, 0, 0)])
    consumer.commit(offsets=[TopicPartition(load.topic, 0, 0)], asynchronous=False)
    begin = time.perf_counter()
    done = 0
    while time.perf_counter() - begin < load.seconds:
        done += 1
        consumer.commit(offsets=[TopicPartition(load.topic, 0, done)], asynchronous=False)
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"commits/s": done / seconds}


def transactions(load: Load) -> dict[str, float]:
    """Transactions of one record a second, one after the other."""
    producer = Producer(
        {"bootstrap.servers": load.bootstrap, "transactional.id": f"{load.topic}-txn", "linger.ms": 0}
    )
    producer.init_transactions(60)
    value = b"x" * load.size

    def one() -> None:
        producer.begin_transaction()
        producer.produce(load.topic, value, partition=0)
        producer.commit_transaction(60)

    for _ in range(5):
        one()
    begin = time.perf_counter()
    done = 0
    while time.perf_counter() - begin < load.seconds:
        one()
        done += 1
    return {"transactions/s": done / (time.perf_counter() - begin)}
