"""Moving to a mirror and back: verified, rehearsed, then done; no group repeats or misses a record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.cli.main import main
from ottla.testing.process import BrokerProcess

pytestmark = pytest.mark.slow

TOPIC, GROUP = "orders", "readers"
PARTITIONS = 2
_SAME_NAMES = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"


class TwoClusters:
    """A and B, and the file of the mirror between them."""

    def __init__(self, start: Callable[..., BrokerProcess], folder: Path, *, renamed: bool = False) -> None:
        settings = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
        self.a = start("a", settings=settings)
        self.b = start("b", settings=settings)
        self.file = folder / "mm2.properties"
        self.file.write_text(
            "clusters = A, B\n"
            f"A.bootstrap.servers = {self.a.bootstrap}\n"
            f"B.bootstrap.servers = {self.b.bootstrap}\n"
            "A->B.enabled = true\n"
            + ("B->A.enabled = true\n" if renamed else _SAME_NAMES)
            + "heartbeats.replication.enabled = false\n"
            "emit.heartbeats.enabled = false\n"
            "mirror.cycle.ms = 500\n"
            + "".join(
                f"{key}.replication.factor = 1\n"
                for key in ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic", "offset.storage")
            )
        )
        admin = AdminClient({"bootstrap.servers": self.a.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)

    def mirror(self, command: str, *words: str) -> Result:
        return CliRunner().invoke(main, ["mirror", command, str(self.file), *words])

    def done(self, command: str, *words: str) -> str:
        result = self.mirror(command, *words)
        assert result.exit_code == 0, result.output
        return result.output

    def drill(self) -> tuple[int, dict[str, object]]:
        result = self.mirror("drill", "--json")
        return result.exit_code, json.loads(result.stdout)[0]


@pytest.fixture
def clusters(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> TwoClusters:
    return TwoClusters(start_broker, tmp_path)


def write(broker: BrokerProcess, numbers: range, transactional: str | None = None) -> None:
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**settings, "transactional.id": transactional} if transactional else settings)
    if transactional:
        producer.init_transactions(60)
    for number in numbers:
        if transactional:
            producer.begin_transaction()
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        if transactional and number % 4 == 3:
            producer.flush(60)
            producer.abort_transaction(60)
        elif transactional:
            producer.commit_transaction(60)
    assert producer.flush(60) == 0


def kept(numbers: range) -> list[int]:
    """What of numbers that were written in transactions was not aborted."""
    return [number for number in numbers if number % 4 != 3]


def member(broker: BrokerProcess, *topics: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(list(topics) or [TOPIC])
    return consumer


def take(broker: BrokerProcess, count: int, *topics: str) -> list[int]:
    """So many records as a member of the group, committed; then the member leaves."""
    consumer = member(broker, *topics)
    found: list[int] = []
    while len(found) < count:
        for message in consumer.consume(1, 30):
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
            consumer.commit(message, asynchronous=False)
    consumer.close()
    return found


def everything(broker: BrokerProcess) -> list[list[int]]:
    """The committed records of each partition, in order."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "judge", "enable.partition.eof": True}
    )
    found: list[list[int]] = []
    for partition in range(PARTITIONS):
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found.append([])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found[-1].append(int(message.value() or b""))
    consumer.close()
    return found


def begin_group(broker: BrokerProcess, topic: str = TOPIC) -> None:
    """Give the group a position at the beginning: from here on it never resets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    consumer.commit(
        offsets=[TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)], asynchronous=False
    )
    consumer.close()


def set_retention(broker: BrokerProcess, value: str | None) -> None:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", value or "", incremental_operation=kind)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def topics(broker: BrokerProcess) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics)


def test_there_and_back(clusters: TwoClusters) -> None:
    a, b = clusters.a, clusters.b
    begin_group(a)
    write(a, range(40), transactional="writer")
    write(a, range(40, 80))
    wanted = [*kept(range(40)), *range(40, 80)]
    seen = take(a, 20)

    before = topics(b)
    for command in ("verify", "drill"):
        refused = clusters.mirror(command)
        assert refused.exit_code == 1 and "A->B has not run yet" in refused.output
    assert topics(b) == before, "looking makes nothing"

    clusters.done("run", "--once")
    assert "0 differences" in clusters.done("verify", "--full")
    assert "0 differences" in clusters.done("verify", "--sample", "5")
    code, found = clusters.drill()
    assert code == 0 and found["passed"] is True
    assert found["rto"], "a consumer has read at the target"

    # The group goes on, and new records come: a failover now would repeat and lose some.
    seen += take(a, 10)
    write(a, range(80, 100))
    wanted += range(80, 100)
    code, found = clusters.drill()
    assert code == 1
    assert sum(one["repeated"] for one in found["positions"]) == 10  # type: ignore[attr-defined]
    assert found["rpo"]["records"] == 20  # type: ignore[index]
    set_retention(b, "1234567")
    differs = clusters.mirror("verify")
    assert differs.exit_code == 1 and "retention.ms=1234567" in differs.output
    set_retention(b, None)

    # A group in a topic that is not copied yet could not move at all.
    begin_group(a, "later")
    code, found = clusters.drill()
    assert code == 1
    problems = {one["topic"]: one["problem"] for one in found["positions"]}  # type: ignore[attr-defined]
    assert problems["later"] == "it is not copied yet"

    consumer = member(a)
    while not consumer.assignment():
        consumer.poll(0.1)
    refused = clusters.mirror("failover", "A", "B")
    assert refused.exit_code == 1 and "groups have members at A: readers" in refused.output
    consumer.close()
    assert "20 last records" in clusters.done("failover", "A", "B")
    assert clusters.drill()[0] == 0

    seen += take(b, 25)
    write(b, range(100, 130))
    wanted += range(100, 130)
    seen += take(b, 10)
    assert "30 records" in clusters.done("failback", "B", "A")
    seen += take(a, len(wanted) - len(seen))
    assert sorted(seen) == wanted, "each record once, on both clusters together"
    assert everything(a) == everything(b) == [[each for each in wanted if each % 2 == odd] for odd in (0, 1)]

    # The first direction goes on, and copies only what is new.
    write(a, range(130, 133))
    clusters.done("run", "--once")
    assert everything(a) == everything(b)
    assert "0 differences" in clusters.done("verify", "--full")


def test_a_cluster_that_is_gone(clusters: TwoClusters) -> None:
    begin_group(clusters.a)
    write(clusters.a, range(20))
    seen = take(clusters.a, 5)
    clusters.done("run", "--once")
    clusters.a.kill()
    refused = clusters.mirror("failover", "A", "B")
    assert refused.exit_code == 1 and "A does not answer" in refused.output
    assert "are shut out" in clusters.done("failover", "A", "B", "--force")
    seen += take(clusters.b, 15)
    assert sorted(seen) == list(range(20))


def test_there_and_back_where_topics_are_renamed(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Clients read the topic and its copy at each cluster; positions in a copy count in the topic when they return."""
    clusters = TwoClusters(start_broker, tmp_path, renamed=True)
    a, b = clusters.a, clusters.b
    begin_group(a)
    write(a, range(40), transactional="writer")
    wanted = kept(range(40))
    seen = take(a, 10)
    clusters.done("run", "--once")
    assert "have ended" not in clusters.done("failover", "A", "B"), "nobody went on in copies of B's topics"
    seen += take(b, 10, "A.orders")

    begin_group(b)
    write(b, range(100, 120))
    wanted += range(100, 120)
    seen += take(b, 8, "A.orders", TOPIC)
    text = clusters.file.read_text()
    clusters.file.write_text(text.replace("B->A.enabled = true", "B->A.enabled = false"))
    refused = clusters.mirror("failback", "B", "A")
    assert refused.exit_code == 1 and "does not enable B->A" in refused.output
    clusters.file.write_text(text)
    said = clusters.done("failback", "B", "A")
    assert "B->A: 20 last records" in said and "positions in the copies of A->B are at A" in said, said
    seen += take(a, 9, TOPIC, "B.orders")

    # And there again, in the middle of the copy of B's records.
    said = clusters.done("failover", "A", "B")
    assert "positions in the copies of B->A are at B" in said and "B->A has ended, too" in said, said
    seen += take(b, len(wanted) - len(seen), "A.orders", TOPIC)
    assert sorted(seen) == wanted, "each record once, on both clusters together"
