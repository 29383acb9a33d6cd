"""The same admin requests to Apache Kafka and to Ottla: the same codes, the same configs, the same metadata records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.testing.apache import ApacheKafka, java_is_here
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.skipif(not java_is_here(), reason="needs Java and Maven"),
]

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Both:
    """A connection to each of the two."""

    def __init__(self, kafka: RawClient, ottla: RawClient) -> None:
        self.kafka, self.ottla = kafka, ottla

    def ask(self, request: Any, version: int) -> tuple[Any, Any]:
        return self.kafka.ask(request, version), self.ottla.ask(request, version)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"))
    node.format()
    try:
        yield node.start()
    finally:
        node.kill()


@pytest.fixture(scope="module")
def both(kafka: ApacheKafka, broker: BrokerProcess) -> Iterator[Both]:
    with RawClient("127.0.0.1", kafka.port) as one, RawClient(broker.host, broker.port) as other:
        pair = Both(one, other)
        for name in ("there", "there.too"):
            for answer in pair.ask(
                creation(new_topic(name, configs={"retention.ms": "5000"}), validate_only=False), 7
            ):
                assert answer.topics[0].error_code == 0, answer
        for client in (one, other):
            wait_for_topics(client, "there", "there.too")
        yield pair


def wait_for_topics(client: RawClient, *names: str) -> None:
    """Return when the broker knows the topics: the controller answers a creation before it does."""
    asked = m.MetadataRequest
    request = asked(topics=[asked.MetadataRequestTopic(name=name) for name in names])
    deadline = time.monotonic() + 60
    while any(topic.error_code for topic in client.ask(request, 12).topics):
        assert time.monotonic() < deadline


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Any:
    cls = m.CreateTopicsRequest
    return cls.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[cls.CreatableTopicConfig(name=k, value=v) for k, v in more.get("configs", {}).items()],
        assignments=[
            cls.CreatableReplicaAssignment(partition_index=i, broker_ids=ids)
            for i, ids in more.get("assignments", [])
        ],
    )


def creation(*topics: Any, validate_only: bool = True) -> Any:
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


NEW_TOPICS = [
    new_topic("fine"),
    new_topic("fine", 5, -1),
    new_topic("fine", -1, 1, configs={"cleanup.policy": "compact", "segment.bytes": "2000000"}),
    new_topic("there"),
    new_topic("there_too"),
    new_topic("bad name"),
    new_topic(""),
    new_topic("."),
    new_topic("x" * 250),
    new_topic("__cluster_metadata"),
    new_topic("a", 0),
    new_topic("a", -7),
    new_topic("a", 1, 0),
    new_topic("a", 1, 3),
    new_topic("a", 1, -3),
    new_topic("a", configs={"no.such.key": "1"}),
    new_topic("a", configs={"retention.ms": None}),
    new_topic("a", configs={"retention.ms": "long"}),
    new_topic("a", configs={"cleanup.policy": "shred"}),
    new_topic("a", configs={"compression.type": "rar"}),
    new_topic("a", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
    new_topic("a", configs={"remote.storage.enable": "true"}),
    new_topic("a", configs={"segment.bytes": "10"}),
    new_topic("a", -1, -1, assignments=[(0, [1]), (1, [1])]),
    new_topic("a", -1, -1, assignments=[(0, [1]), (0, [1])]),
    new_topic("a", -1, -1, assignments=[(1, [1])]),
    new_topic("a", -1, -1, assignments=[(0, [2])]),
    new_topic("a", -1, -1, assignments=[(0, [1, 1])]),
    new_topic("a", -1, -1, assignments=[(0, [])]),
    new_topic("a", 1, -1, assignments=[(0, [1])]),
    new_topic("a", -1, 1, assignments=[(0, [1])]),
]


@pytest.mark.parametrize("topic", NEW_TOPICS, ids=lambda topic: f"{topic.name[:12]!r}")
def test_create_topics(both: Both, topic: Any) -> None:
    kafka, ottla = both.ask(creation(topic), 7)
    assert [codes(t) for t in ottla.topics] == [codes(t) for t in kafka.topics], (kafka, ottla)


def codes(topic: Any) -> tuple[Any, ...]:
    return topic.name, ErrorCode(topic.error_code), topic.num_partitions, topic.replication_factor


def test_the_configs_of_a_new_topic(both: Both) -> None:
    kafka, ottla = both.ask(creation(new_topic("a", configs={"retention.ms": "5000"})), 7)
    expected, found = (
        {(c.name, c.value, c.config_source, c.read_only, c.is_sensitive) for c in answer.topics[0].configs}
        for answer in (kafka, ottla)
    )
    assert found == expected


def test_a_topic_twice_in_one_request(both: Both) -> None:
    kafka, ottla = both.ask(creation(new_topic("a"), new_topic("a", 2), new_topic("b")), 7)
    assert {codes(topic) for topic in ottla.topics} == {codes(topic) for topic in kafka.topics}


PARTITIONS = [
    ("there", 3, None),
    ("there", 1, None),
    ("there", 0, None),
    ("never", 3, None),
    ("there", 2, [[1]]),
    ("there", 3, [[1]]),
    ("there", 2, [[2]]),
    ("there", 2, [[]]),
    ("there", 2, [[1, 1]]),
]


@pytest.mark.parametrize(("name", "count", "assignments"), PARTITIONS)
def test_create_partitions(both: Both, name: str, count: int, assignments: Any) -> None:
    cls = m.CreatePartitionsRequest
    topic = cls.CreatePartitionsTopic(name=name, count=count, assignments=None)
    if assignments is not None:
        topic.assignments = [cls.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    kafka, ottla = both.ask(cls(topics=[topic], timeout_ms=10_000, validate_only=True), 3)
    assert ErrorCode(ottla.results[0].error_code) is ErrorCode(kafka.results[0].error_code), (kafka, ottla)


CHANGES = [
    (TOPIC, "there", "retention.ms", SET, "1"),
    (TOPIC, "there", "retention.ms", DELETE, None),
    (TOPIC, "there", "retention.ms", SET, None),
    (TOPIC, "there", "retention.ms", SET, "x"),
    (TOPIC, "there", "retention.ms", APPEND, "1"),
    (TOPIC, "there", "cleanup.policy", APPEND, "compact"),
    (TOPIC, "there", "cleanup.policy", SUBTRACT, "delete"),
    (TOPIC, "there", "cleanup.policy", APPEND, "shred"),
    (TOPIC, "there", "no.such.key", SET, "1"),
    (TOPIC, "there", "no.such.key", DELETE, None),
    (TOPIC, "there", "no.such.key", APPEND, "1"),
    (TOPIC, "there", "min.insync.replicas", SET, "2"),
    (TOPIC, "never", "retention.ms", SET, "1"),
    (TOPIC, "", "retention.ms", SET, "1"),
    (TOPIC, "bad name", "retention.ms", SET, "1"),
    (BROKER, "1", "log.retention.ms", SET, "100000"),
    (BROKER, "1", "log.retention.ms", SET, "x"),
    (BROKER, "1", "node.id", SET, "3"),
    (BROKER, "1", "no.such.key", SET, "3"),
    (BROKER, "1", "min.insync.replicas", SET, "1"),
    (BROKER, "", "min.insync.replicas", DELETE, None),
    (BROKER, "", "min.insync.replicas", SET, "2"),
    (BROKER, "", "log.retention.ms", SET, "100000"),
    (BROKER, "", "listeners", SET, "PLAINTEXT://:1"),
    (BROKER, "", "log.cleanup.policy", APPEND, "compact"),
    (BROKER, "2", "log.retention.ms", SET, "1"),
    (BROKER, "x", "log.retention.ms", SET, "1"),
    (LOGGER, "1", "root", SET, "INFO"),
    (LOGGER, "1", "root", SET, "LOUD"),
    (LOGGER, "1", "root", DELETE, None),
    (LOGGER, "1", "root", APPEND, "INFO"),
    (LOGGER, "1", "no.such.logger", SET, "INFO"),
    (LOGGER, "2", "root", SET, "INFO"),
    (GROUP, "g", "consumer.session.timeout.ms", SET, "50000"),
    (GROUP, "g", "consumer.session.timeout.ms", SET, "1"),
    (GROUP, "g", "share.auto.offset.reset", SET, "earliest"),
    (GROUP, "g", "share.auto.offset.reset", SET, "never"),
    (GROUP, "g", "share.isolation.level", SET, "read_all"),
    (GROUP, "g", "streams.num.standby.replicas", SET, "100"),
    (GROUP, "g", "no.such.key", SET, "1"),
    (GROUP, "", "consumer.session.timeout.ms", SET, "50000"),
    (METRICS, "m", "interval.ms", SET, "1000"),
    (METRICS, "m", "interval.ms", SET, "1"),
    (METRICS, "m", "match", SET, "client_id=a.*"),
    (METRICS, "m", "match", SET, "shoe_size=9"),
    (METRICS, "m", "no.such.key", SET, "1"),
    (1, "a", "b", SET, "1"),
]


@pytest.mark.parametrize(("kind", "name", "key", "operation", "value"), CHANGES)
def test_incremental_alter_configs(
    both: Both, kind: int, name: str, key: str, operation: int, value: str | None
) -> None:
    cls = m.IncrementalAlterConfigsRequest
    config = cls.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = cls.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    kafka, ottla = both.ask(cls(resources=[resource], validate_only=True), 1)
    assert ErrorCode(ottla.responses[0].error_code) is ErrorCode(kafka.responses[0].error_code), (
        kafka,
        ottla,
    )


REPLACEMENTS = [
    (TOPIC, "there", {"retention.ms": "1"}),
    (TOPIC, "there", {}),
    (TOPIC, "there", {"retention.ms": None}),
    (TOPIC, "there", {"no.such.key": "1"}),
    (TOPIC, "never", {"retention.ms": "1"}),
    (BROKER, "", {"log.retention.ms": "1000"}),
    (BROKER, "1", {"log.retention.ms": "1000"}),
    (BROKER, "1", {"node.id": "4"}),
    (BROKER, "3", {"log.retention.ms": "1000"}),
    (LOGGER, "1", {"root": "INFO"}),
]


@pytest.mark.parametrize(("kind", "name", "configs"), REPLACEMENTS)
def test_alter_configs(both: Both, kind: int, name: str, configs: dict[str, str | None]) -> None:
    cls = m.AlterConfigsRequest
    entries = [cls.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = cls.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    kafka, ottla = both.ask(cls(resources=[resource], validate_only=True), 2)
    assert ErrorCode(ottla.responses[0].error_code) is ErrorCode(kafka.responses[0].error_code), (
        kafka,
        ottla,
    )


DESCRIBED = [
    (TOPIC, "there", None),
    (TOPIC, "there", ["retention.ms", "nope"]),
    (TOPIC, "there", []),
    (TOPIC, "never", None),
    (TOPIC, "bad name", None),
    (BROKER, "", None),
    (BROKER, "2", None),
    (BROKER, "x", None),
    (LOGGER, "2", None),
    (LOGGER, "", None),
    (GROUP, "g", None),
    (GROUP, "", None),
    (METRICS, "m", None),
    (METRICS, "", None),
]


@pytest.mark.parametrize(("kind", "name", "keys"), DESCRIBED)
def test_describe_configs(both: Both, kind: int, name: str, keys: list[str] | None) -> None:
    cls = m.DescribeConfigsRequest
    resource = cls.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    kafka, ottla = both.ask(cls(resources=[resource], include_synonyms=True), 4)
    assert ErrorCode(ottla.results[0].error_code) is ErrorCode(kafka.results[0].error_code), (kafka, ottla)
    assert entries(ottla) == entries(kafka)


def entries(answer: Any) -> dict[str, tuple[Any, ...]]:
    return {
        config.name: (
            config.value,
            config.config_source,
            config.read_only,
            config.is_sensitive,
            config.config_type,
            [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in answer.results[0].configs
    }


def test_describe_broker_configs(both: Both) -> None:
    cls = m.DescribeConfigsRequest
    resource = cls.DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    kafka, ottla = both.ask(cls(resources=[resource]), 4)
    expected, found = entries(kafka), entries(ottla)
    assert set(found) == set(expected)
    for name, (_, _, read_only, sensitive, type_, _) in expected.items():
        assert found[name][2:5] == (read_only, sensitive, type_), name


FEATURES = [
    ("group.version", 0, 2),
    ("group.version", 0, 1),
    ("group.version", 1, 1),
    ("group.version", 1, 2),
    ("group.version", 2, 1),
    ("group.version", -1, 1),
    ("group.version", 1, 0),
    ("transaction.version", 1, 2),
    ("metadata.version", 29, 2),
    ("metadata.version", 29, 3),
    ("metadata.version", 30, 1),
    ("metadata.version", 31, 1),
    ("metadata.version", 3, 2),
    ("no.such.feature", 1, 1),
]


@pytest.mark.parametrize(("feature", "level", "kind"), FEATURES)
def test_update_features(both: Both, feature: str, level: int, kind: int) -> None:
    cls = m.UpdateFeaturesRequest
    key = cls.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    kafka, ottla = both.ask(cls(feature_updates=[key], validate_only=True), 2)
    assert ErrorCode(ottla.error_code) is ErrorCode(kafka.error_code), (kafka, ottla)


def test_deletion_and_unregistration(both: Both) -> None:
    cls = m.DeleteTopicsRequest
    for state in (
        cls.DeleteTopicState(name="never"),
        cls.DeleteTopicState(topic_id=b"0123456789abcdef"),
        cls.DeleteTopicState(),
        cls.DeleteTopicState(name="there", topic_id=b"0123456789abcdef"),
    ):
        kafka, ottla = both.ask(cls(topics=[state], timeout_ms=10_000), 6)
        expected, found = (
            [(r.name, r.topic_id, ErrorCode(r.error_code)) for r in answer.responses]
            for answer in (kafka, ottla)
        )
        assert found == expected
    kafka, ottla = both.ask(m.UnregisterBrokerRequest(broker_id=9), 0)
    assert ottla.error_code == kafka.error_code


def test_the_metadata_records_of_the_same_story(tmp_path: Path) -> None:
    """Both write the same records, but for ids and times, from the first one on."""
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.format()
    ottla = BrokerProcess(tmp_path / "ottla")
    try:
        kafka.start()
        with RawClient("127.0.0.1", kafka.port) as client:
            tell_story(client)
        kafka.stop()
        kafka.start()
        with RawClient("127.0.0.1", kafka.port) as client:
            wait_for_leaders(client)
        kafka.stop()
        ottla.start()
        with RawClient(ottla.host, ottla.port) as client:
            tell_story(client)
        assert ottla.stop() == 0
        ottla.start()
        with RawClient(ottla.host, ottla.port) as client:
            wait_for_leaders(client)
        assert ottla.stop() == 0
    finally:
        kafka.kill()
        ottla.kill()
    expected, found = metadata_records(kafka.data), metadata_records(ottla.data)
    # A node's two parts register side by side, so the controller's records come at any place among the broker's.
    for is_controller in (True, False):
        shapes = [
            [
                shape(record)
                for record in records
                if (record.NAME == "RegisterControllerRecord") == is_controller
            ]
            for records in (found, expected)
        ]
        assert shapes[0] == shapes[1]


def tell_story(client: RawClient) -> None:
    created = client.ask(
        creation(new_topic("a", 2, configs={"min.insync.replicas": "1"}), validate_only=False), 7
    )
    assert created.topics[0].error_code == 0, created
    cls = m.IncrementalAlterConfigsRequest
    for kind, name, key, operation, value in (
        (TOPIC, "a", "retention.ms", SET, "1000"),
        (TOPIC, "a", "retention.ms", DELETE, None),
        (BROKER, "1", "log.cleaner.threads", SET, "1"),
        (TOPIC, "a", "min.insync.replicas", DELETE, None),
    ):
        config = cls.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = cls.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        answer = client.ask(cls(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0, answer
    init = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    while client.ask(init, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Kafka asks its controller for ids only now.
        pass
    client.ask(creation(new_topic("b"), validate_only=False), 7)
    deletion = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name="b")], timeout_ms=10_000
    )
    assert client.ask(deletion, 6).responses[0].error_code == 0


def wait_for_leaders(client: RawClient) -> None:
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="a")])
    while True:
        (topic,) = client.ask(request, 12).topics
        if topic.partitions and all(partition.leader_id == 1 for partition in topic.partitions):
            return


def metadata_records(data: Path) -> list[Any]:
    from ottla.metadata.records import decode_record
    from ottla.records.batch import iter_batches, iter_records

    log = (data / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()
    found = []
    for position, header in iter_batches(memoryview(log)):
        if not header.is_control:
            batch = memoryview(log)[position : position + header.size_in_bytes]
            found += [decode_record(record.value) for record in iter_records(batch)]
    return [record for record in found if not says_nothing(record)]


def says_nothing(record: Any) -> bool:
    """Kafka marks time, and notes in a broker's first heartbeat that none of its directories are cordoned."""
    return record.NAME == "NoOpRecord" or (
        record.NAME == "BrokerRegistrationChangeRecord"
        and (record.fenced, record.in_controlled_shutdown, record.cordoned_log_dirs) == (0, 0, [])
    )


IDS = {
    "topic_id",
    "incarnation_id",
    "broker_epoch",
    "log_dirs",
    "directories",
    "end_points",
    "unknown_tagged_fields",
}


def shape(record: Any) -> tuple[Any, ...]:
    fields = [
        (name, repr(getattr(record, name))) for name in type(record).__struct_fields__ if name not in IDS
    ]
    if record.NAME == "RegisterControllerRecord" or record.NAME == "RegisterBrokerRecord":
        features = {(f.name, f.min_supported_version, f.max_supported_version) for f in record.features}
        fields = [(name, value) for name, value in fields if name != "features"] + [
            ("features", str(sorted(features)))
        ]
    return (record.NAME, *fields)


def elections(*named: tuple[str, list[int]], election: int = 0) -> Any:
    cls = m.ElectLeadersRequest
    return cls(
        election_type=election,
        timeout_ms=10_000,
        topic_partitions=[cls.TopicPartitions(topic=name, partitions=indexes) for name, indexes in named],
    )


ELECTIONS = [
    (elections(("there", [0])), 0),
    (elections(("there", [0, 9]), ("nowhere", [0])), 1),
    (elections(("there", [0, 9]), ("nowhere", [0]), election=1), 2),
    (elections(("there", [0]), election=5), 2),
    (elections(), 2),
]


@pytest.mark.parametrize(("request_", "version"), ELECTIONS)
def test_elect_leaders(both: Both, request_: Any, version: int) -> None:
    kafka, ottla = both.ask(request_, version)
    assert ottla.error_code == kafka.error_code

    def reported(answer: Any) -> list[Any]:
        return [
            (topic.topic, [(p.partition_id, p.error_code, p.error_message) for p in topic.partition_result])
            for topic in answer.replica_election_results
        ]

    assert reported(ottla) == reported(kafka)


def reassignment(*wanted: tuple[str, int, list[int] | None], may_change_factor: bool = True) -> Any:
    cls = m.AlterPartitionReassignmentsRequest
    return cls(
        timeout_ms=10_000,
        allow_replication_factor_change=may_change_factor,
        topics=[
            cls.ReassignableTopic(
                name=name, partitions=[cls.ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            for name, index, replicas in wanted
        ],
    )


@pytest.mark.parametrize("version", [0, 1])
def test_partition_reassignments(both: Both, version: int) -> None:
    wanted = [
        ("there", 0, [1]),
        ("there", 0, None),
        ("there", 0, []),
        ("there", 0, [1, 1]),
        ("there", 0, [1, 7]),
        ("there", 5, [1]),
        ("nowhere", 0, [1]),
    ]
    kafka, ottla = both.ask(reassignment(*wanted), version)
    assert (ottla.error_code, ottla.error_message) == (kafka.error_code, kafka.error_message)

    def reported(answer: Any) -> list[Any]:
        return [
            (t.name, [(p.partition_index, ErrorCode(p.error_code)) for p in t.partitions])
            for t in answer.responses
        ]

    assert reported(ottla) == reported(kafka)


def test_a_replication_factor_that_may_not_change(both: Both) -> None:
    kafka, ottla = both.ask(reassignment(("there", 0, [1]), may_change_factor=False), 1)
    assert ottla.responses == kafka.responses


def test_list_partition_reassignments(both: Both) -> None:
    cls = m.ListPartitionReassignmentsRequest
    named = cls(topics=[cls.ListPartitionReassignmentsTopics(name="there", partition_indexes=[0, 9])])
    for request in (cls(topics=None), named):
        kafka, ottla = both.ask(request, 0)
        assert ottla == kafka
