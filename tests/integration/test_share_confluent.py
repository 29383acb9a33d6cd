"""Queues with librdkafka's share consumer (a preview there), as a Python user meets them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ottla.testing.process import BrokerProcess

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this confluent-kafka has no share consumer", allow_module_level=True)


def make(broker: BrokerProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    # A lock that ends while a busy machine keeps a consumer waiting would deliver its record again.
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    group = ConfigResource(ResourceType.GROUP, topic, incremental_configs=changes)
    admin.incremental_alter_configs([group])[group].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(500):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(60) == 0


def consumer(broker: BrokerProcess, topic: str) -> Any:
    made = confluent_kafka.ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    made.subscribe([topic])
    return made


def poll_until(consumers: list[Any], enough: Callable[[list[Message]], bool]) -> list[Message]:
    got: list[Message] = []
    end = time.monotonic() + 60
    while not enough(got) and time.monotonic() < end:
        for each in consumers:
            got += each.poll(0.2) or []
    return got


@pytest.mark.slow
def test_each_message_goes_to_one_consumer(broker: BrokerProcess, topic: str) -> None:
    make(broker, topic, partitions=2)
    consumers = [consumer(broker, topic) for _ in range(3)]
    got = poll_until(consumers, lambda got: len(got) >= 500)
    for each in consumers:
        each.commit_sync()
        each.close()
    assert sorted(int(message.value()) for message in got) == list(range(500))
    another = consumer(broker, topic)
    end = time.monotonic() + 1.5
    assert poll_until([another], lambda got: bool(got) or time.monotonic() > end) == []
    another.close()
