"""The admin APIs in every version, and what the usual clients cannot say, over a plain connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
NODE = 1


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port) as connected:
        yield connected


def create(client: RawClient, name: str, version: int = 7, **more: Any) -> Any:
    new = m.CreateTopicsRequest.CreatableTopic(
        name=name, **{"num_partitions": 1, "replication_factor": 1, **more}
    )
    (answer,) = client.ask(m.CreateTopicsRequest(topics=[new], timeout_ms=60_000), version).topics
    return answer


def change(
    client: RawClient, kind: int, name: str, *configs: tuple[str, int, str | None], version: int = 1
) -> Any:
    cls = m.IncrementalAlterConfigsRequest
    resource = cls.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[cls.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in configs],
    )
    (answer,) = client.ask(cls(resources=[resource]), version).responses
    return answer


def describe(client: RawClient, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    cls = m.DescribeConfigsRequest
    resource = cls.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (answer,) = client.ask(cls(resources=[resource], include_synonyms=True), version).results
    return answer


@pytest.mark.parametrize("version", (3, 4))
@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [
        (BROKER, "1", "num.partitions"),
        (TOPIC, "", "retention.ms"),
        (GROUP, "readers", "consumer.session.timeout.ms"),
        (METRICS, "pushes", "interval.ms"),
    ],
)
def test_every_key_is_described_with_a_sentence_when_asked(
    client: RawClient, topic: str, kind: int, name: str, key: str, version: int
) -> None:
    cls = m.DescribeConfigsRequest
    if kind == TOPIC:
        create(client, topic)
    resource = cls.DescribeConfigsResource(
        resource_type=kind, resource_name=name or topic, configuration_keys=None
    )
    for wanted in (True, False):
        (answer,) = client.ask(cls(resources=[resource], include_documentation=wanted), version).results
        assert answer.error_code == 0, answer.error_message
        described = {config.name: config.documentation for config in answer.configs}
        assert key in described
        assert {bool(text) for text in described.values()} == {wanted}


def values(answer: Any) -> dict[str, str | None]:
    assert answer.error_code == 0, answer
    return {config.name: config.value for config in answer.configs}


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(client: RawClient, topic: str, version: int) -> None:
    answer = create(client, topic, version)
    assert (answer.name, answer.error_code) == (topic, 0)
    assert answer.num_partitions == (1 if version >= 5 else -1)
    assert (answer.topic_id != bytes(16)) == (version >= 7)
    again = create(client, topic, version)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic in again.error_message


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(client: RawClient, topic: str, version: int) -> None:
    create(client, topic)
    cls = m.DeleteTopicsRequest
    request = (
        cls(topic_names=[topic], timeout_ms=60_000)
        if version < 6
        else cls(topics=[cls.DeleteTopicState(name=topic)], timeout_ms=60_000)
    )
    (answer,) = client.ask(request, version).responses
    assert (answer.name, answer.error_code) == (topic, 0)
    (answer,) = client.ask(request, version).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_a_topic_by_its_id(client: RawClient, topic: str) -> None:
    topic_id = create(client, topic).topic_id
    request = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)], timeout_ms=60_000
    )
    (answer,) = client.ask(request, 6).responses
    assert (answer.name, answer.error_code) == (topic, 0)
    (answer,) = client.ask(request, 6).responses
    assert (answer.name, answer.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    # The name is free again.
    assert create(client, topic).topic_id != topic_id


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(client: RawClient, topic: str, version: int) -> None:
    create(client, topic)
    cls = m.CreatePartitionsRequest
    request = cls(
        topics=[cls.CreatePartitionsTopic(name=topic, count=3, assignments=None)], timeout_ms=60_000
    )
    (answer,) = client.ask(request, version).results
    assert (answer.name, answer.error_code) == (topic, 0)
    (answer,) = client.ask(request, version).results
    assert answer.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_topic_configs(client: RawClient, topic: str, version: int) -> None:
    create(client, topic)
    answer = describe(client, TOPIC, topic, ["segment.bytes", "no.such.key"], version)
    (config,) = answer.configs
    assert (config.name, config.value, config.config_source) == ("segment.bytes", "1073741824", 5)
    assert config.config_type == (3 if version >= 3 else 0)
    assert [(synonym.name, synonym.source) for synonym in config.synonyms] == [("log.segment.bytes", 5)]
    missing = describe(client, TOPIC, "never-created", None, version)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_alter_configs(client: RawClient, topic: str, version: int) -> None:
    create(client, topic)
    cls = m.AlterConfigsRequest
    resource = cls.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[cls.AlterableConfig(name="retention.ms", value="7")],
    )
    (answer,) = client.ask(cls(resources=[resource], validate_only=True), version).responses
    assert answer.error_code == 0
    assert values(describe(client, TOPIC, topic, ["retention.ms"])) == {"retention.ms": "604800000"}
    (answer,) = client.ask(cls(resources=[resource]), version).responses
    assert (answer.resource_type, answer.resource_name, answer.error_code) == (TOPIC, topic, 0)
    assert values(describe(client, TOPIC, topic, ["retention.ms"])) == {"retention.ms": "7"}


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs(client: RawClient, topic: str, version: int) -> None:
    create(client, topic)
    assert change(client, TOPIC, topic, ("retention.ms", SET, "7"), version=version).error_code == 0
    assert values(describe(client, TOPIC, topic, ["retention.ms"])) == {"retention.ms": "7"}


def test_a_default_of_all_brokers_reaches_topics_at_once(client: RawClient, topic: str) -> None:
    create(client, topic)
    key = "log.segment.delete.delay.ms"
    assert change(client, BROKER, "", (key, SET, "4321")).error_code == 0
    (config,) = describe(client, TOPIC, topic, ["file.delete.delay.ms"]).configs
    assert (config.value, config.config_source) == ("4321", 3)
    assert values(describe(client, BROKER, ""))[key] == "4321"
    assert values(describe(client, BROKER, str(NODE), [key])) == {key: "4321"}
    assert change(client, BROKER, "", (key, DELETE, None)).error_code == 0
    assert values(describe(client, TOPIC, topic, ["file.delete.delay.ms"])) == {
        "file.delete.delay.ms": "60000"
    }


@pytest.mark.parametrize(
    ("kind", "name", "config", "code"),
    [
        (BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("process.roles", SET, "broker"), ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE), ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (LOGGER, str(NODE), ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (LOGGER, str(NODE), ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE), ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "5", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        (3, "a", ("b", SET, "c"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_are_refused(
    client: RawClient, kind: int, name: str, config: Any, code: ErrorCode
) -> None:
    answer = change(client, kind, name, config)
    assert (answer.resource_type, answer.resource_name, answer.error_code) == (kind, name, code)
    assert answer.error_message


def test_log_levels_change_while_the_broker_runs(client: RawClient) -> None:
    name = "ottla.controller.controller"
    assert values(describe(client, LOGGER, str(NODE)))["root"]
    assert change(client, LOGGER, str(NODE), (name, SET, "DEBUG")).error_code == 0
    (config,) = describe(client, LOGGER, str(NODE), [name]).configs
    assert (config.value, config.config_source, config.read_only) == ("DEBUG", 6, False)
    assert change(client, LOGGER, str(NODE), (name, DELETE, None)).error_code == 0
    levels = values(describe(client, LOGGER, str(NODE)))
    assert levels[name] == levels["root"]


def test_answers_keep_the_order_of_the_request(client: RawClient, topic: str) -> None:
    create(client, topic)
    cls = m.IncrementalAlterConfigsRequest

    def resource(kind: int, name: str, key: str, value: str) -> Any:
        config = cls.AlterableConfig(name=key, config_operation=SET, value=value)
        return cls.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    request = cls(
        resources=[
            resource(LOGGER, str(NODE), "root", "WARN"),
            resource(TOPIC, topic, "retention.ms", "5"),
            resource(BROKER, "9", "log.retention.ms", "5"),
            resource(TOPIC, "never-created", "retention.ms", "5"),
        ]
    )
    answers = client.ask(request, 1).responses
    assert [(answer.resource_type, answer.resource_name) for answer in answers] == [
        (LOGGER, str(NODE)),
        (TOPIC, topic),
        (BROKER, "9"),
        (TOPIC, "never-created"),
    ]
    assert [answer.error_code for answer in answers] == [
        0,
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_groups_and_client_metrics(client: RawClient, topic: str) -> None:
    assert change(client, GROUP, topic, ("consumer.session.timeout.ms", SET, "50000")).error_code == 0
    assert change(client, METRICS, topic, ("interval.ms", SET, "1000")).error_code == 0
    group = values(describe(client, GROUP, topic))
    assert group["consumer.session.timeout.ms"] == "50000"
    assert group["consumer.heartbeat.interval.ms"] == "5000"
    assert values(describe(client, METRICS, topic))["interval.ms"] == "1000"
    create(client, topic)
    listed = client.ask(m.ListConfigResourcesRequest(), 0).config_resources
    assert topic in [resource.resource_name for resource in listed]
    listed = client.ask(m.ListConfigResourcesRequest(), 1).config_resources
    found = {(resource.resource_type, resource.resource_name) for resource in listed}
    assert {(GROUP, topic), (METRICS, topic), (TOPIC, topic), (BROKER, "1"), (LOGGER, "1")} <= found
    only = client.ask(m.ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
    assert {resource.resource_type for resource in only} == {GROUP}
    assert (
        client.ask(m.ListConfigResourcesRequest(resource_types=[3]), 1).error_code
        == ErrorCode.UNSUPPORTED_VERSION
    )


@pytest.mark.parametrize("version", range(3))
def test_update_features(client: RawClient, version: int) -> None:
    cls = m.UpdateFeaturesRequest

    def ask(level: int, downgrade: bool) -> Any:
        key = cls.FeatureUpdateKey(feature="streams.version", max_version_level=level)
        if version == 0:
            key.allow_downgrade = downgrade
        else:
            key.upgrade_type = 2 if downgrade else 1
        return client.ask(cls(feature_updates=[key]), version)

    refused = ask(9, False)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "streams.version" in refused.error_message
    assert ask(0, True).error_code == 0
    assert ask(1, False).error_code == 0


def test_unregistering_a_broker_that_is_not_there(client: RawClient) -> None:
    answer = client.ask(m.UnregisterBrokerRequest(broker_id=77), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "77" in answer.error_message


def test_many_topics_pipelined(client: RawClient, topic: str) -> None:
    for number in range(50):
        new = m.CreateTopicsRequest.CreatableTopic(
            name=f"{topic}-{number}", num_partitions=2, replication_factor=1
        )
        client.send(m.CreateTopicsRequest(topics=[new], timeout_ms=60_000), 7)
    for number in range(50):
        (answer,) = client.receive().topics
        assert (answer.name, answer.error_code) == (f"{topic}-{number}", 0)


@pytest.mark.parametrize(
    ("key_type", "name", "partitions", "configs"),
    [
        (0, "__consumer_offsets", 50, {"cleanup.policy": "compact", "segment.bytes": "104857600"}),
        (1, "__transaction_state", 50, {"cleanup.policy": "compact", "compression.type": "uncompressed"}),
        (2, "__share_group_state", 50, {"cleanup.policy": "delete", "retention.ms": "-1"}),
    ],
)
def test_internal_topics_are_created_when_they_are_needed(
    client: RawClient, key_type: int, name: str, partitions: int, configs: dict[str, str]
) -> None:
    key = "group:AAAAAAAAAAAAAAAAAAAAAQ:0" if key_type == 2 else "some-key"
    found = ErrorCode.COORDINATOR_NOT_AVAILABLE
    while found == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found = client.ask(request, 6).coordinators[0].error_code
    (topic,) = client.ask(
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)]), 12
    ).topics
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, partitions)
    assert configs.items() <= values(describe(client, TOPIC, name)).items()


def test_metadata_creates_topics_but_not_with_bad_names(client: RawClient, topic: str) -> None:
    names = [topic, "bad name"]
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=True,
    )
    codes = {answer.name: answer.error_code for answer in client.ask(request, 12).topics}
    assert codes == {
        topic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    while codes[topic]:
        codes = {answer.name: answer.error_code for answer in client.ask(request, 12).topics}
    assert create(client, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
