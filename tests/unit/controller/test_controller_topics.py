"""CreateTopics, CreatePartitions and DeleteTopics as functions of the image."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.settings import Settings
from ottla.controller.topics import create_partitions, create_topics, delete_topics
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import (
    BrokerRegistrationChangeRecord,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from unit.controller.controller_harness import (
    broker_record,
    image_with_brokers,
    replayed,
    settings_with,
    uuid,
)

ONE = image_with_brokers(1)


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Any:
    configs = more.pop("configs", {})
    assignments = more.pop("assignments", {})
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids))
            for i, ids in (assignments.items() if isinstance(assignments, dict) else assignments)
        ],
    )


def create(
    image: MetadataImage, *topics: Any, settings: Settings | None = None, validate_only: bool = False
) -> tuple[MetadataImage, dict[str, Any]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    result = create_topics(image, request, settings or settings_with(), VirtualClock(seed=1))
    return replayed(image, result.records), {topic.name: topic for topic in result.response.topics}


def test_a_new_topic_has_its_partitions_on_the_broker() -> None:
    image, results = create(ONE, new_topic("sample3", 3))
    answer = results["sample3"]
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    topic = image.topics.by_name["sample3"]
    assert topic.id == answer.topic_id
    assert list(topic.partitions) == [0, 1, 2]
    partition = topic.partitions[2]
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == ONE.brokers[1].directories


def test_minus_one_means_the_defaults() -> None:
    image, results = create(ONE, new_topic("a", -1, -1), settings=settings_with(num_partitions="4"))
    assert results["a"].error_code == 0
    assert len(image.topics.by_name["a"].partitions) == 4


def test_the_answer_tells_all_configs_with_their_sources() -> None:
    image, results = create(ONE, new_topic("a", configs={"retention.ms": "1000"}))
    configs = {config.name: config for config in results["a"].configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["min.insync.replicas"].value, configs["min.insync.replicas"].config_source) == ("1", 3)
    assert configs["segment.bytes"].config_source == 5
    assert image.configs.of(2, "a") == {"retention.ms": "1000"}


def test_records_are_topic_then_configs_then_partitions() -> None:
    request = CreateTopicsRequest(topics=[new_topic("a", 2, configs={"min.insync.replicas": "1"})])
    result = create_topics(ONE, request, settings_with(), VirtualClock())
    assert [record.NAME for record in result.records] == [
        "TopicRecord",
        "ConfigRecord",
        "ClearElrRecord",
        "PartitionRecord",
        "PartitionRecord",
    ]


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (new_topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION, "characters"),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "prohibited"),
        (new_topic("a", 0), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (new_topic("a", -2), ErrorCode.INVALID_PARTITIONS, "-2"),
        (new_topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (new_topic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "only 1 broker(s) are registered"),
        (new_topic("a", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (new_topic("a", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG, "no.such.key"),
        (new_topic("a", configs={"retention.ms": "long"}), ErrorCode.INVALID_CONFIG, "'long'"),
        (new_topic("a", configs={"retention.ms": "1" * 40_000}), ErrorCode.INVALID_CONFIG, "40000"),
        (new_topic("a", 1, -1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "number of partitions"),
        (new_topic("a", -1, 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "replication factor"),
        (new_topic("a", -1, -1, assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (new_topic("a", -1, -1, assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (
            new_topic("a", -1, -1, assignments={0: [1, 1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "more than once",
        ),
        (new_topic("a", -1, -1, assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "gap"),
        (
            new_topic("a", -1, -1, assignments=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple",
        ),
    ],
)
def test_refused_topics(topic: Any, code: ErrorCode, words: str) -> None:
    image, results = create(ONE, topic, new_topic("fine"))
    answer = results[topic.name]
    assert answer.error_code == code
    assert words in answer.error_message
    assert topic.name not in image.topics.by_name
    assert "fine" in image.topics.by_name


def test_a_topic_that_exists_is_not_created_again() -> None:
    image, _ = create(ONE, new_topic("a"))
    after, results = create(image, new_topic("a", 5))
    assert results["a"].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert after.topics.by_name == image.topics.by_name


def test_names_that_collide_are_refused_also_within_one_request() -> None:
    image, results = create(ONE, new_topic("a.b"), new_topic("a_b"))
    assert results["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    _, results = create(image, new_topic("a_b"))
    assert results["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "'a.b'" in results["a_b"].error_message


def test_a_topic_named_twice_is_not_created_at_all() -> None:
    image, results = create(ONE, new_topic("a", 1), new_topic("a", 2))
    assert results["a"].error_code == ErrorCode.INVALID_REQUEST
    assert not image.topics.by_name


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    image, results = create(ONE, new_topic("a", 3), validate_only=True)
    assert (results["a"].error_code, results["a"].num_partitions) == (0, 3)
    assert not image.topics.by_name


def test_too_many_partitions_refuse_the_whole_request() -> None:
    with pytest.raises(ApiException) as refused:
        create(ONE, new_topic("a", 6_000), new_topic("b", 6_000))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_without_live_brokers_nothing_can_be_placed() -> None:
    fenced = replayed(image_with_brokers(), [broker_record(1, fenced=True)])
    _, results = create(fenced, new_topic("a"))
    assert results["a"].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fenced" in results["a"].error_message
    _, results = create(fenced, new_topic("a", -1, -1, assignments={0: [1]}))
    assert results["a"].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    image = replayed(image_with_brokers(1, 2), [broker_record(3, fenced=True)])
    image, results = create(image, new_topic("a", -1, -1, assignments={1: [2, 1], 0: [3, 1]}))
    assert results["a"].error_code == 0
    partitions = image.topics.by_name["a"].partitions
    assert (partitions[1].replicas, partitions[1].leader) == ((2, 1), 2)
    assert (partitions[0].replicas, partitions[0].isr, partitions[0].leader) == ((3, 1), (1,), 1)


def test_a_broker_with_several_directories_chooses_by_itself() -> None:
    image = replayed(image_with_brokers(), [broker_record(1, directories=2)])
    image, _ = create(image, new_topic("a"))
    assert image.topics.by_name["a"].partitions[0].directories == (bytes(15) + b"\x01",)


names = st.text("ab._", min_size=0, max_size=4)


@given(
    st.lists(st.tuples(names, st.integers(-2, 4), st.integers(-2, 4)), max_size=6),
    st.lists(names, max_size=3),
)
def test_what_is_answered_is_what_is_replayed(wanted: list[tuple[str, int, int]], there: list[str]) -> None:
    image = image_with_brokers(1, 2, 3)
    for name in there:
        image, _ = create(image, new_topic(name))
    before = set(image.topics.by_name)
    after, results = create(image, *(new_topic(*topic) for topic in wanted))
    created = {name for name, answer in results.items() if answer.error_code == 0}
    assert set(results) == {name for name, _, _ in wanted}
    assert set(after.topics.by_name) - before == created
    for name in created:
        topic = after.topics.by_name[name]
        assert topic.id == results[name].topic_id
        assert len(topic.partitions) == results[name].num_partitions
        assert {len(p.replicas) for p in topic.partitions.values()} == {results[name].replication_factor}


def grow(image: MetadataImage, name: str, count: int, assignments: Any = None, **more: Any) -> Any:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count)
    topic.assignments = (
        None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    result = create_partitions(image, CreatePartitionsRequest(topics=[topic], **more), VirtualClock())
    return replayed(image, result.records), result.response.results[0]


def test_partitions_are_added_with_the_topics_replication_factor() -> None:
    image, _ = create(image_with_brokers(1, 2), new_topic("a", 1, 2))
    image, answer = grow(image, "a", 3)
    assert (answer.name, answer.error_code, answer.error_message) == ("a", 0, None)
    partitions = image.topics.by_name["a"].partitions
    assert {len(partition.replicas) for partition in partitions.values()} == {2}
    assert list(partitions) == [0, 1, 2]
    image, answer = grow(image, "a", 4, [[2, 1]])
    assert image.topics.by_name["a"].partitions[3].replicas == (2, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("nope", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("a", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 20_000, None, ErrorCode.POLICY_VIOLATION),
        ("a", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(name: str, count: int, assignments: Any, code: ErrorCode) -> None:
    image, _ = create(ONE, new_topic("a", 2))
    after, answer = grow(image, name, count, assignments)
    assert answer.error_code == code
    assert answer.error_message
    assert after.topics == image.topics


def test_adding_partitions_can_be_tried_first() -> None:
    image, _ = create(ONE, new_topic("a", 2))
    after, answer = grow(image, "a", 5, validate_only=True)
    assert answer.error_code == 0
    assert len(after.topics.by_name["a"].partitions) == 2


def drop(image: MetadataImage, *, names: Any = (), topics: Any = (), **more: Any) -> Any:
    request = DeleteTopicsRequest(
        topic_names=list(names),
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=id_) for name, id_ in topics],
    )
    result = delete_topics(image, request, more.pop("settings", settings_with()), more.pop("version", 6))
    return replayed(image, result.records), result.response.responses


def test_topics_are_deleted_by_name_and_by_id_with_their_configs() -> None:
    image, _ = create(ONE, new_topic("a", configs={"retention.ms": "5"}), new_topic("b"), new_topic("c"))
    b = image.topics.by_name["b"]
    image, answers = drop(image, topics=[("a", bytes(16)), (None, b.id)])
    assert [(answer.name, answer.error_code) for answer in answers] == [("a", 0), ("b", 0)]
    assert set(image.topics.by_name) == {"c"}
    assert not image.configs.of(2, "a")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (("nope", bytes(16)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((None, uuid(7)), ErrorCode.UNKNOWN_TOPIC_ID),
        ((None, bytes(16)), ErrorCode.INVALID_REQUEST),
        (("a", uuid(7)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_topics_that_cannot_be_deleted(topic: tuple[str | None, bytes], code: ErrorCode) -> None:
    image, _ = create(ONE, new_topic("a"))
    after, (answer,) = drop(image, topics=[topic])
    assert answer.error_code == code
    assert after.topics == image.topics


def test_a_topic_named_in_two_ways_is_not_deleted() -> None:
    image, _ = create(ONE, new_topic("a"))
    topic = image.topics.by_name["a"]
    after, answers = drop(image, topics=[("a", bytes(16)), (None, topic.id)])
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2
    after, answers = drop(image, names=["a", "a"])
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST]
    assert "a" in after.topics.by_name


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    with pytest.raises(ApiException) as refused:
        drop(ONE, names=["a"], settings=settings_with(delete_topic_enable="false"), version=version)
    assert refused.value.code is code


def test_a_broker_on_its_way_out_gets_no_new_replicas() -> None:
    image = image_with_brokers(1, 2, 3)
    leaving = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, in_controlled_shutdown=1)
    image = replayed(image, [leaving])
    request = CreateTopicsRequest(topics=[new_topic("t", partitions=20, factor=2)])
    after = replayed(image, create_topics(image, request, settings_with(), VirtualClock()).records)
    partitions = after.topics.by_name["t"].partitions.values()
    assert {replica for partition in partitions for replica in partition.replicas} == {1, 3}
