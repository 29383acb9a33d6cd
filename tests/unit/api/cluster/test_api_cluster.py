"""The cluster as clients see it, from an image of real metadata records."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.api.base import PARKED, RequestContext
from ottla.api.cluster import (
    api_versions,
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from ottla.broker.recently_fenced import LISTED_FOR_S, RecentlyFencedBrokers
from ottla.config.broker import BrokerConfig
from ottla.coordinator.runtime import partition_for
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.raft.types import QuorumInfo, ReplicaKey, ReplicaState
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from ottla.wire.codec import encode
from ottla.wire.uuid import ZERO_UUID

TOPIC_ID = bytes(range(16))
DIRECTORY = bytes(range(1, 17))


class Context(RequestContext):
    def __init__(self, version: int, *, listener: str = "PLAINTEXT", controller: bool = False) -> None:
        self.version = version
        self.listener_name = listener
        self.on_controller_listener = controller
        self.local_host, self.local_port = "10.1.2.3", 19092

    def respond(self, response: Any) -> None:
        raise AssertionError("these answer at once")

    def abort(self) -> None:
        raise AssertionError

    @property
    def closed(self) -> bool:
        return False

    def on_close(self, callback: Callable[[], None]) -> None:
        raise AssertionError

    def on_disconnect(self, key: Hashable, callback: Callable[[], None]) -> None:
        raise AssertionError


def image(*more: Any) -> MetadataImage:
    register = messages.RegisterBrokerRecord
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(
        [
            messages.FeatureLevelRecord(name="metadata.version", feature_level=30),
            register(
                broker_id=1,
                broker_epoch=5,
                end_points=[register.BrokerEndpoint(name="PLAINTEXT", host="one", port=9092)],
                log_dirs=[DIRECTORY],
                rack="r1",
                fenced=False,
            ),
            register(
                broker_id=2,
                broker_epoch=6,
                end_points=[register.BrokerEndpoint(name="PLAINTEXT", host="two", port=9092)],
                fenced=True,
            ),
            messages.TopicRecord(name="orders", topic_id=TOPIC_ID),
            *(
                messages.PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition_id=index,
                    replicas=[1, 2],
                    isr=[1],
                    leader=1,
                    leader_epoch=3,
                    directories=[DIRECTORY, DIRECTORY],
                    eligible_leader_replicas=[2],
                )
                for index in range(5)
            ),
            *more,
        ]
    )
    return delta.apply(77, 2)


def make_broker(found: MetadataImage | None = None, **settings: str) -> Any:
    config = BrokerConfig.single_node(
        {"log.dirs": "data", "listeners": "PLAINTEXT://:9092", "auto.create.topics.enable": "false"}
        | settings
    )
    state = ReplicaState(ReplicaKey(1, DIRECTORY), 78, 1000, 1000)
    quorum = QuorumInfo(1, 2, 78, (state,), (), ((1, (("CONTROLLER", "c", 9093),)),))
    clock = VirtualClock()
    return SimpleNamespace(
        node_id=1,
        cluster_id="the-cluster",
        clock=clock,
        peers=SimpleNamespace(gone=lambda: ()),
        authorizer=None,
        audit=None,
        departures=RecentlyFencedBrokers(clock),
        config=config,
        image=found or image(),
        raft=SimpleNamespace(kraft_version=1, leader_id=1, describe_quorum=lambda: quorum),
    )


def ask(name: str, handle: Any, broker: Any, version: int, ctx: Context | None = None, **fields: Any) -> Any:
    """The answer, which must also be one that can be written in that version."""
    response = handle(broker, ctx or Context(version), getattr(messages, name)(**fields))
    encode(response, version)
    return response


def ask_metadata(broker: Any, version: int, topics: Any, **fields: Any) -> Any:
    return ask("MetadataRequest", metadata.handle, broker, version, topics=topics, **fields)


def named(*names: str | None, topic_id: bytes = ZERO_UUID) -> list[Any]:
    return [messages.MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id) for name in names]


def test_api_versions_tells_what_is_served_and_the_finalized_features() -> None:
    answer = ask(
        "ApiVersionsRequest",
        api_versions.handle,
        make_broker(),
        4,
        client_software_name="a-client",
        client_software_version="1.0",
    )
    versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert versions[18] == (0, 4) and versions[3] == (0, 13) and versions[0] == (0, 13)
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    assert finalized == {"metadata.version": 30, "kraft.version": 1}
    assert answer.finalized_features_epoch == 77
    assert {f.name for f in answer.supported_features if f.min_version == 0}


def test_features_from_level_0_are_kept_from_older_clients() -> None:
    answer = ask(
        "ApiVersionsRequest",
        api_versions.handle,
        make_broker(),
        3,
        client_software_name="a",
        client_software_version="1",
    )
    assert [f.name for f in answer.supported_features] == ["metadata.version"]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n"])
def test_a_client_with_a_strange_name_is_refused(name: str) -> None:
    with pytest.raises(ApiException) as refused:
        ask(
            "ApiVersionsRequest",
            api_versions.handle,
            make_broker(),
            3,
            client_software_name=name,
            client_software_version="1",
        )
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_controller_listener_serves_other_apis() -> None:
    ctx = Context(0, controller=True)
    answer = ask("ApiVersionsRequest", api_versions.handle, make_broker(), 0, ctx)
    keys = {api.api_key for api in answer.api_keys}
    # Fetch is there for the metadata log.
    assert {1, 18, 52, 55, 58, 60, 62} <= keys and not keys & {0, 3}
    served = ask("ApiVersionsRequest", api_versions.handle, make_broker(), 0)
    assert not {api.api_key for api in served.api_keys} & {52, 58, 62}


@pytest.mark.parametrize("version", range(14))
def test_all_topics_in_every_version(version: int) -> None:
    answer = ask_metadata(make_broker(), version, [] if version == 0 else None)
    assert [topic.name for topic in answer.topics] == ["orders"]
    assert [p.partition_index for p in answer.topics[0].partitions] == [0, 1, 2, 3, 4]
    assert answer.controller_id == 1
    partition = answer.topics[0].partitions[0]
    assert partition.leader_id == 1
    if version == 0:
        assert (partition.replica_nodes, partition.error_code) == ([1], ErrorCode.REPLICA_NOT_AVAILABLE)
    else:
        assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2], [2])


def test_no_topics_from_version_1_on() -> None:
    assert ask_metadata(make_broker(), 1, []).topics == []


def test_a_client_is_told_the_address_by_which_it_came() -> None:
    [node] = ask_metadata(make_broker(), 12, []).brokers
    assert (node.node_id, node.host, node.port, node.rack) == (1, "10.1.2.3", 19092, "r1")


def test_an_advertised_address_is_told_as_it_is() -> None:
    broker = make_broker(**{"advertised.listeners": "PLAINTEXT://one:9092"})
    [node] = ask_metadata(broker, 12, []).brokers
    assert (node.host, node.port) == ("one", 9092)


def test_unknown_and_invalid_names_and_ids() -> None:
    broker = make_broker()
    answer = ask_metadata(broker, 12, named("nothing", "not/valid", "orders"))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "orders": ErrorCode.NONE,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    [known] = ask_metadata(broker, 12, named(None, topic_id=TOPIC_ID)).topics
    assert known.name == "orders"
    [unknown] = ask_metadata(broker, 12, named(None, topic_id=DIRECTORY)).topics
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        DIRECTORY,
    )


def test_topic_ids_before_version_12_are_refused() -> None:
    with pytest.raises(ApiException) as refused:
        ask_metadata(make_broker(), 10, named(None, topic_id=TOPIC_ID))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(14))
def test_an_error_of_the_whole_request_can_be_told_in_every_version(version: int) -> None:
    request = messages.MetadataRequest(topics=named("a"))
    answer = metadata.on_error(Context(version), request, ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, "no"))
    encode(answer, version)


def test_what_a_client_may_do_is_told_when_asked() -> None:
    broker = make_broker()
    asked = ask_metadata(
        broker,
        8,
        None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert asked.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert asked.cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask_metadata(broker, 8, None).topics[0].topic_authorized_operations == -(2**31)


def test_a_leader_without_the_clients_listener() -> None:
    ctx = Context(6, listener="OTHER")
    request = messages.MetadataRequest(topics=None)
    partition = metadata.handle(make_broker(), ctx, request).topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    ctx.version = 5
    partition = metadata.handle(make_broker(), ctx, request).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def describe_topics(
    broker: Any, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = messages.DescribeTopicPartitionsRequest
    return ask(
        "DescribeTopicPartitionsRequest",
        describe_topic_partitions.handle,
        broker,
        0,
        topics=[request.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def test_topics_page_by_page() -> None:
    broker = make_broker(
        image(
            messages.TopicRecord(name="payments", topic_id=DIRECTORY),
            messages.PartitionRecord(topic_id=DIRECTORY, partition_id=0, replicas=[1], isr=[1], leader=1),
        )
    )
    seen, cursor, pages = [], None, 0
    while True:
        answer = describe_topics(broker, limit=2, cursor=cursor)
        pages += 1
        seen += [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [*(("orders", index) for index in range(5)), ("payments", 0)]
    assert pages == 3


def test_the_broker_bounds_a_page_too() -> None:
    broker = make_broker(**{"max.request.partition.size.limit": "3"})
    answer = describe_topics(broker)
    assert len(answer.topics[0].partitions) == 3
    assert answer.topics[0].partitions[0].eligible_leader_replicas == [2]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("orders", 3)


def test_a_cursor_must_fit() -> None:
    for names, cursor in [(("orders",), ("payments", 0)), ((), ("orders", -1))]:
        with pytest.raises(ApiException) as refused:
            describe_topics(make_broker(), *names, cursor=cursor)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_topics_that_are_not_there() -> None:
    answer = describe_topics(make_broker(), "nothing", "not/valid")
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("not/valid", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_describe_cluster_shows_fenced_brokers_only_when_asked() -> None:
    plain = ask("DescribeClusterRequest", describe_cluster.handle, make_broker(), 2)
    assert [node.broker_id for node in plain.brokers] == [1]
    assert (plain.cluster_id, plain.controller_id) == ("the-cluster", 1)
    everything = ask(
        "DescribeClusterRequest", describe_cluster.handle, make_broker(), 2, include_fenced_brokers=True
    )
    assert [(node.broker_id, node.is_fenced) for node in everything.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_describe_cluster_of_another_kind_of_endpoint(version: int, kind: int, code: ErrorCode) -> None:
    with pytest.raises(ApiException) as refused:
        ask("DescribeClusterRequest", describe_cluster.handle, make_broker(), version, endpoint_type=kind)
    assert refused.value.code is code


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum(version: int) -> None:
    request = messages.DescribeQuorumRequest
    topic = request.TopicData(
        topic_name="__cluster_metadata", partitions=[request.PartitionData(partition_index=0)]
    )
    answer = ask("DescribeQuorumRequest", describe_quorum.handle, make_broker(), version, topics=[topic])
    [partition] = answer.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 2, 78)
    assert [voter.replica_id for voter in partition.current_voters] == [1]


def test_describe_quorum_of_another_topic() -> None:
    request = messages.DescribeQuorumRequest
    topic = request.TopicData(topic_name="orders", partitions=[request.PartitionData(partition_index=0)])
    answer = ask("DescribeQuorumRequest", describe_quorum.handle, make_broker(), 2, topics=[topic])
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


COORDINATORS = (
    messages.TopicRecord(name="__consumer_offsets", topic_id=DIRECTORY),
    *(
        messages.PartitionRecord(
            topic_id=DIRECTORY, partition_id=index, replicas=[1], isr=[1], leader=1 if index != 3 else -1
        )
        for index in range(50)
    ),
)


@pytest.mark.parametrize("version", range(7))
def test_a_groups_coordinator_in_every_version(version: int) -> None:
    broker = make_broker(image(*COORDINATORS))
    fields: dict[str, Any] = {"key": "group"} if version < 4 else {"coordinator_keys": ["group", "other"]}
    answer = ask("FindCoordinatorRequest", find_coordinator.handle, broker, version, **fields)
    for found in [answer] if version < 4 else answer.coordinators:
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "10.1.2.3", 19092)


@pytest.mark.parametrize(
    ("key_type", "key", "version"), [(9, "x", 1), (2, "g:not-an-id:0", 6), (2, "only", 6), (2, "g:t:0", 5)]
)
def test_coordinators_that_there_are_none_of(key_type: int, key: str, version: int) -> None:
    fields: dict[str, Any] = {"key": key} if version < 4 else {"coordinator_keys": [key]}
    answer = ask(
        "FindCoordinatorRequest", find_coordinator.handle, make_broker(), version, key_type=key_type, **fields
    )
    found = answer if version < 4 else answer.coordinators[0]
    assert found.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("hello world", 1_794_106_052),
        ("polygenelubricants", 0),  # its hash is the one number that has no positive twin
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_the_partition_of_a_key_is_by_javas_hash(key: str, java_hash: int) -> None:
    assert partition_for(key, 50) == java_hash % 50


class LaterContext(Context):
    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.answers: list[Any] = []

    def respond(self, response: Any) -> None:
        self.answers.append(response)


def test_an_answer_waits_for_the_successor_of_a_leader_that_is_gone() -> None:
    broker, ctx = make_broker(), LaterContext(12)
    broker.peers.gone = lambda: {1}
    assert metadata.handle(broker, ctx, messages.MetadataRequest(topics=named("orders"))) is PARKED
    broker.clock.advance(0.05)
    assert not ctx.answers
    change = messages.PartitionChangeRecord
    broker.image = image(
        messages.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=6, fenced=-1),
        *(change(topic_id=TOPIC_ID, partition_id=index, isr=[2], leader=2) for index in range(5)),
    )
    broker.clock.advance(0.02)
    (answer,) = ctx.answers
    assert {partition.leader_id for partition in answer.topics[0].partitions} == {2}


def test_nobody_is_sent_to_a_leader_that_is_gone_for_long() -> None:
    broker, ctx = make_broker(), LaterContext(12)
    broker.peers.gone = lambda: {1}
    metadata.handle(broker, ctx, messages.MetadataRequest(topics=named("orders")))
    broker.clock.advance(1)
    (answer,) = ctx.answers
    assert {(p.leader_id, p.error_code) for p in answer.topics[0].partitions} == {
        (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    }


def test_a_broker_that_has_just_left_is_listed_a_little_longer() -> None:
    broker = make_broker()
    change = messages.BrokerRegistrationChangeRecord
    fenced = image(
        change(broker_id=2, broker_epoch=6, fenced=-1), change(broker_id=1, broker_epoch=5, fenced=1)
    )
    broker.departures.note(broker.image, fenced)
    broker.image = fenced
    assert [node.node_id for node in ask_metadata(broker, 12, []).brokers] == [1, 2]
    broker.clock.advance(LISTED_FOR_S + 0.1)
    assert [node.node_id for node in ask_metadata(broker, 12, []).brokers] == [2]


def test_a_client_that_asks_while_a_whole_cluster_starts_keeps_its_brokers() -> None:
    """librdkafka forgets brokers that are not listed: with none it would ask nobody ever after."""
    broker = make_broker()
    broker.image = image(messages.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1))
    assert all(each.fenced for each in broker.image.brokers.values())
    assert [node.node_id for node in ask_metadata(broker, 12, []).brokers] == [1, 2]
