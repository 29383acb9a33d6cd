"""What we say about configuration is what Apache Kafka says: value, source and synonyms of every key."""

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from oracle.kafka_tools import needs_java
from ottla.config.broker import BrokerConfig
from ottla.config.definitions import OWN_DEFAULTS
from ottla.config.describe import describe_broker, describe_topic
from ottla.testing.apache import ApacheKafka

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

SETTINGS = {
    "log.retention.hours": "5",
    "log.cleaner.io.max.bytes.per.second": "12345678.5",
    "message.max.bytes": "2000000",
    "listener.name.controller.ssl.keystore.password": "secret",
    "super.users": "User:admin",
}
OVERRIDES = {"segment.bytes": "3000000", "cleanup.policy": "compact,delete", "retention.ms": "77"}
# A fresh cluster with eligible leader replicas has this from its controller.
CLUSTER_WIDE = {"min.insync.replicas": "1"}


def theirs(admin, kind, name):
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    # confluent-kafka keeps synonyms by name: of several with one name the last.
    return {
        entry.name: (
            entry.value,
            entry.source,
            entry.is_read_only,
            entry.is_sensitive,
            {synonym.name: (synonym.value, synonym.source) for synonym in entry.synonyms.values()},
        )
        for entry in future.result(60).values()
    }


def ours(entries):
    return {
        entry.name: (
            entry.value,
            entry.source,
            entry.read_only,
            entry.sensitive,
            {synonym.name: (synonym.value, synonym.source) for synonym in entry.synonyms},
        )
        for entry in entries
    }


def test_brokers_and_topics_are_described_alike(tmp_path):
    kafka = ApacheKafka(tmp_path / "kafka", SETTINGS)
    kafka.format()
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        (created,) = admin.create_topics([NewTopic("t", 1, 1, config=OVERRIDES)]).values()
        created.result(60)
        broker, topic = theirs(admin, ResourceType.BROKER, "1"), theirs(admin, ResourceType.TOPIC, "t")
    finally:
        kafka.kill()
    static = {key: str(value) for key, value in kafka.settings.items()}
    config = BrokerConfig(static).with_dynamic(CLUSTER_WIDE, {})
    assert ours(describe_topic(config, OVERRIDES)) == topic
    described = ours(describe_broker(config))
    for key in OWN_DEFAULTS:
        del described[key], broker[key]
    assert described == broker
