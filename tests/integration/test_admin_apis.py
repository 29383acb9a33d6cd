"""What administrators do, with the admin clients of confluent-kafka and kafka-python, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource as PyConfigResource
from kafka.admin import ConfigResourceType as PyConfigResourceType
from kafka.admin import NewPartitions as PyNewPartitions
from kafka.admin import NewTopic as PyNewTopic

from ottla.testing.process import BrokerProcess

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(scope="module")
def py_admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=[broker.bootstrap], client_id="admin-tests")
    yield client
    client.close()


def result(futures: dict[Any, Any]) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(timeout=TIMEOUT_S)


def error_of(futures: dict[Any, Any]) -> KafkaError:
    with pytest.raises(KafkaException) as failed:
        result(futures)
    error: KafkaError = failed.value.args[0]
    return error


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    found: dict[str, Any] = result(admin.describe_configs([ConfigResource(kind, name)]))
    return found


def alter(admin: AdminClient, kind: ResourceType, name: str, *entries: Any, **options: Any) -> dict[Any, Any]:
    resource = ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in entries
        ],
    )
    changes: dict[Any, Any] = admin.incremental_alter_configs([resource], **options)
    return changes


def test_create_list_describe_and_delete_a_topic(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "1234567"})]))
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2]
    leader = next(iter(metadata.brokers))
    assert {partition.leader for partition in metadata.topics[topic].partitions.values()} == {leader}
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "1234567"
    result(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_topic_without_counts_gets_the_defaults(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic)]))
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 1


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("a-b-c", 1, 7), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("a-b-c", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("a-b-c", 1, 1, config={"segment.bytes": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic("a-b-c", 1, replica_assignment=[[99]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_topics_that_are_refused(admin: AdminClient, new: NewTopic, code: int) -> None:
    error = error_of(admin.create_topics([new]))
    assert error.code() == code
    assert error.str()


def test_a_topic_is_created_once(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    assert error_of(admin.create_topics([NewTopic(topic, 1, 1)])).code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_deleting_what_is_not_there(admin: AdminClient) -> None:
    error = error_of(admin.delete_topics(["never-created"]))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_more_partitions(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    result(admin.create_partitions([NewPartitions(topic, 4)]))
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 4
    assert (
        error_of(admin.create_partitions([NewPartitions(topic, 2)])).code() == KafkaError.INVALID_PARTITIONS
    )


def test_topic_configs_have_values_sources_and_synonyms(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})]))
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    policy = configs["cleanup.policy"]
    assert (policy.value, policy.source) == ("compact", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert [synonym.name for synonym in policy.synonyms.values()] == ["cleanup.policy", "log.cleanup.policy"]
    assert configs["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    missing = error_of(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "never-created")]))
    assert missing.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_changing_single_configs_of_a_topic(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    set_, append = AlterConfigOpType.SET, AlterConfigOpType.APPEND
    result(
        alter(
            admin,
            ResourceType.TOPIC,
            topic,
            ("retention.ms", "5000", set_),
            ("cleanup.policy", "compact", append),
        )
    )
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    assert configs["retention.ms"].value == "5000"
    assert configs["cleanup.policy"].value == "delete,compact"
    result(alter(admin, ResourceType.TOPIC, topic, ("retention.ms", None, AlterConfigOpType.DELETE)))
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"
    error = error_of(alter(admin, ResourceType.TOPIC, topic, ("retention.ms", "soon", set_)))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in error.str()


def test_replacing_all_configs_of_a_topic(admin: AdminClient, topic: str) -> None:
    result(admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "5000"})]))
    with pytest.deprecated_call():
        changes = admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"segment.ms": "60000"})])
    result(changes)
    configs = configs_of(admin, ResourceType.TOPIC, topic)
    assert configs["segment.ms"].value == "60000"
    assert configs["retention.ms"].value == "604800000"


def test_broker_configs(admin: AdminClient) -> None:
    (broker_id,) = admin.list_topics(timeout=TIMEOUT_S).brokers
    name = str(broker_id)
    configs = configs_of(admin, ResourceType.BROKER, name)
    assert configs["node.id"].is_read_only
    assert not configs["log.retention.ms"].is_read_only
    assert configs["ssl.keystore.password"].value is None
    assert configs["ssl.keystore.password"].is_sensitive
    key, set_ = "log.cleaner.backoff.ms", AlterConfigOpType.SET
    result(alter(admin, ResourceType.BROKER, name, (key, "4321", set_)))
    entry = configs_of(admin, ResourceType.BROKER, name)[key]
    assert (entry.value, entry.source) == ("4321", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    result(alter(admin, ResourceType.BROKER, name, (key, None, AlterConfigOpType.DELETE)))
    assert configs_of(admin, ResourceType.BROKER, name)[key].value == "15000"
    for bad_key, value in (("node.id", "7"), ("log.retention.ms", "soon")):
        error = error_of(alter(admin, ResourceType.BROKER, name, (bad_key, value, set_)))
        assert error.code() == KafkaError.INVALID_REQUEST, bad_key
        assert bad_key in error.str()


def test_kafka_python_creates_and_describes_topics(py_admin: KafkaAdminClient, topic: str) -> None:
    py_admin.create_topics([PyNewTopic(topic, 2, 1, topic_configs={"retention.ms": "777"})])
    assert topic in py_admin.list_topics()
    (described,) = py_admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    py_admin.create_partitions({topic: PyNewPartitions(3)})
    (described,) = py_admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    with pytest.raises(errors.TopicAlreadyExistsError):
        py_admin.create_topics([PyNewTopic(topic, 2, 1)])
    py_admin.delete_topics([topic])
    assert topic not in py_admin.list_topics()


def test_kafka_python_describes_configs(py_admin: KafkaAdminClient, topic: str) -> None:
    py_admin.create_topics([PyNewTopic(topic, 1, 1, topic_configs={"retention.ms": "777"})])
    found = py_admin.describe_configs([PyConfigResource(PyConfigResourceType.TOPIC, topic)])
    assert "777" in str(found)


def test_topics_are_created_automatically(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(TIMEOUT_S) == 0
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 1


def test_changes_survive_a_restart(start_broker: Any, topic: str) -> None:
    process = start_broker()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    result(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "99"})]))
    before = result(admin.describe_topics(_names(topic)))
    node = before.partitions[0].leader.id
    set_ = AlterConfigOpType.SET
    result(alter(admin, ResourceType.BROKER, str(node), ("log.retention.bytes", "5000000", set_)))
    assert process.stop() == 0
    process.start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    after = result(admin.describe_topics(_names(topic)))
    assert _text(after.topic_id) == _text(before.topic_id)
    assert [partition.leader.id for partition in after.partitions] == [
        partition.leader.id for partition in before.partitions
    ]
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "99"
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.bytes"].value == "5000000"


def _names(*names: str) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection(list(names))


def _text(topic_id: Any) -> str:
    return f"{topic_id.get_most_significant_bits()}-{topic_id.get_least_significant_bits()}"
