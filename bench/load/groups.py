"""Groups and transactions with librdkafka: rebalances of many members, commits, transactions."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bench.load import Load

_DEADLINE_S = 120.0
_HEARTBEAT_S = 5.0
"""The longest time between two heartbeats of a member, with the defaults of both protocols."""

_NOT_YET = (
    # A broker hears of a new topic, or of its own partitions, a moment after others have answered.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


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


def _some_moment(members: list[Consumer], chance: random.Random) -> None:
    """Members of a group that has just formed ask in step: what comes next must not depend on when they do."""
    end = time.perf_counter() + chance.uniform(0, _HEARTBEAT_S)
    while time.perf_counter() < end:
        for member in members:
            member.poll(0)
        time.sleep(0.005)


def rebalance(load: Load) -> dict[str, float]:
    """Seconds for `connections` members to form a group, to take over what one leaves, to give to one that joins."""
    chance = random.Random(load.seed)
    group = f"{load.topic}-{load.protocol}"
    members = [_member(load, group) for _ in range(load.connections)]
    formed = _until_settled(members, load)
    _some_moment(members, chance)
    begin = time.perf_counter()
    members.pop().close()
    _until_settled(members, load)
    left = time.perf_counter() - begin
    _some_moment(members, chance)
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
    """Synchronous commits a second, of `connections` consumers in groups of their own."""

    def client(number: int) -> Callable[[], None]:
        consumer = Consumer(
            {
                "bootstrap.servers": load.bootstrap,
                "group.id": f"{load.topic}-commits-{number}",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(load.topic, 0, 0)])
        offsets = itertools.count()

        def commit() -> None:
            consumer.commit(offsets=[TopicPartition(load.topic, 0, next(offsets))], asynchronous=False)

        _until_coordinated(commit)
        return commit

    return {"commits/s": _rate(load, client)}


def _until_coordinated(commit: Callable[[], None]) -> None:
    """Commit once. On a new broker, the partition of the group's coordinator may just be getting its leader."""
    end = time.perf_counter() + _DEADLINE_S
    while True:
        try:
            return commit()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.perf_counter() > end:
                raise
        time.sleep(0.05)


def transactions(load: Load) -> dict[str, float]:
    """Transactions of one record a second, of `connections` producers."""
    value = b"x" * load.size

    def client(number: int) -> Callable[[], None]:
        producer = Producer(
            {
                "bootstrap.servers": load.bootstrap,
                "transactional.id": f"{load.topic}-txn-{number}",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(60)

        def transact() -> None:
            producer.begin_transaction()
            producer.produce(load.topic, value, partition=0)
            producer.commit_transaction(60)

        return transact

    return {"transactions/s": _rate(load, client)}


def _rate(load: Load, client: Callable[[int], Callable[[], None]]) -> float:
    """How often a second all clients together do their work; each has a thread."""
    with ThreadPoolExecutor(load.connections) as threads:
        clients = list(threads.map(client, range(load.connections)))
        for _ in range(5):
            list(threads.map(lambda work: work(), clients))
        begin = time.perf_counter()

        def repeat(work: Callable[[], None]) -> int:
            for done in itertools.count(1):
                work()
                if time.perf_counter() - begin >= load.seconds:
                    return done
            raise AssertionError("counting has no end")

        done = sum(threads.map(repeat, clients))
        return done / (time.perf_counter() - begin)
