"""Kafka's files: its own tool finds nothing wrong with ours, and a directory moves between the two and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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

from oracle.kafka_tools import dump_log, needs_java
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]


def value_of(i: int) -> bytes:
    return b"value-%d" % i


def write(bootstrap: str, topic: str, first: int, count: int, padding: int = 0, **options: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **options})
    for i in range(first, first + count):
        producer.produce(
            topic,
            value_of(i).ljust(padding),
            key=b"key-%d" % (i % 50),
            partition=0,
            timestamp=1_700_000_000_000 + i,
        )
        if i % 100 == 99:
            producer.flush(60)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), timeout=60)
        assert messages, f"only {len(values)} of {count} records came"
        values += [message.value() for message in messages]
    consumer.close()
    return values


def topic_config(bootstrap: str, topic: str, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.describe_configs([resource]).values()
    value: str = future.result(60)[key].value
    return value


def files(data: Path, pattern: str) -> list[Path]:
    found = sorted(data.glob(pattern))
    assert found, f"no {pattern} under {data}"
    return found


def test_dump_log_segments_finds_nothing_wrong(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    small = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1024"}
    admin.create_topics([NewTopic("plain", 2, 1, config=small)])["plain"].result(60)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        write(
            broker.bootstrap, "plain", 0, 5000, 500, **{"compression.type": codec, "enable.idempotence": True}
        )
    resource = ConfigResource(
        ResourceType.TOPIC,
        "plain",
        incremental_configs=[ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)],
    )
    next(iter(admin.incremental_alter_configs([resource]).values())).result(60)
    assert broker.stop() == 0, broker.log

    logs = files(broker.data, "plain-0/*.log")
    assert len(logs) > 1, "the topic was to roll its segments"
    said = dump_log(*logs)
    assert "isvalid: true" in said and "compresscodec: zstd" in said
    dump_log(*files(broker.data, "plain-0/*index"), index_check=True)
    dump_log(*files(broker.data, "plain-0/*.snapshot"))
    decoded = dump_log(*files(broker.data, "__cluster_metadata-0/*.log"), cluster_metadata=True)
    for record in (
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "REGISTER_BROKER_RECORD",
        "LeaderChange",
    ):
        assert record in decoded, decoded


@pytest.mark.parametrize("standalone", [False, True], ids=["static-voters", "standalone"])
def test_a_directory_moves_from_kafka_to_ottla_and_back(tmp_path: Path, standalone: bool) -> None:
    kafka = ApacheKafka(tmp_path / "kafka")
    if standalone:
        voters = str(kafka.settings.pop("controller.quorum.voters"))
        kafka.settings["controller.quorum.bootstrap.servers"] = voters.partition("@")[2]
        kafka.format("--standalone")
    else:
        kafka.format()
    kafka.start()
    ottla = BrokerProcess(kafka.data, listen=kafka.bootstrap, arguments=["--config", str(kafka.properties)])
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("moved", 2, 1, config={"retention.ms": "987654321"})])["moved"].result(
            20
        )
        write(kafka.bootstrap, "moved", 0, 500, **{"enable.idempotence": True, "compression.type": "lz4"})
        kafka.stop()

        ottla.start()
        assert read(ottla.bootstrap, "moved", 500) == [value_of(i) for i in range(500)]
        assert topic_config(ottla.bootstrap, "moved", "retention.ms") == "987654321"
        write(ottla.bootstrap, "moved", 500, 500, **{"enable.idempotence": True})
        admin = AdminClient({"bootstrap.servers": ottla.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("ours", 3, 1, config={"cleanup.policy": "compact"})])["ours"].result(60)
        write(ottla.bootstrap, "ours", 0, 100)
        assert ottla.stop() == 0, ottla.log

        kafka.start()
        assert read(kafka.bootstrap, "moved", 1000) == [value_of(i) for i in range(1000)]
        assert read(kafka.bootstrap, "ours", 100) == [value_of(i) for i in range(100)]
        assert topic_config(kafka.bootstrap, "ours", "cleanup.policy") == "compact"
        write(kafka.bootstrap, "moved", 1000, 10)
        assert read(kafka.bootstrap, "moved", 1010)[-1] == b"value-1009"
    finally:
        ottla.kill()
        kafka.kill()
