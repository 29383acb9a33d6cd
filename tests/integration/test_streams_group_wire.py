"""Streams groups over the wire: a member without its internal topics, and what is said when they cannot be made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.coordinator.group.streams.status import StatusCode
from ottla.errors import ErrorCode
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

PATIENCE_S = 60.0
GROUPS = ["both", "consumers", "counts", "refused"]
"""Each may be in a partition of its own, which is loaded in its own time."""
heartbeat = m.StreamsGroupHeartbeatRequest


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with connect(broker) as connected:
        yield connected


def connect(broker: BrokerProcess) -> RawClient:
    """A connection to a broker whose group coordinator is there."""
    client = RawClient(broker.host, broker.port)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS), 4)
        asked = client.ask(m.StreamsGroupDescribeRequest(group_ids=GROUPS), 0)
        if all(group.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND) for group in asked.groups):
            return client
        assert time.monotonic() < deadline, asked


def create_topic(client: RawClient, name: str, partitions: int) -> None:
    creation = m.CreateTopicsRequest
    topic = creation.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert client.ask(creation(topics=[topic], timeout_ms=60_000), 7).topics[0].error_code == 0


def configure_group(client: RawClient, group: str, key: str, value: str) -> None:
    alter = m.IncrementalAlterConfigsRequest
    config = alter.AlterableConfig(name=key, config_operation=0, value=value)
    resource = alter.AlterConfigsResource(resource_type=32, resource_name=group, configs=[config])
    assert client.ask(alter(resources=[resource]), 1).responses[0].error_code == 0


def join(group: str, source: str, **changelog: str) -> Any:
    configs = [heartbeat.KeyValue(key=key.replace("_", "."), value=value) for key, value in changelog.items()]
    log = heartbeat.TopicInfo(name=f"{group}-changelog", topic_configs=configs)
    return heartbeat(
        group_id=group,
        member_id="m1",
        member_epoch=0,
        process_id="p1",
        rebalance_timeout_ms=1000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        topology=heartbeat.Topology(
            epoch=0,
            subtopologies=[
                heartbeat.Subtopology(
                    subtopology_id="0", source_topics=[source], state_changelog_topics=[log]
                )
            ],
        ),
    )


def beat_until(client: RawClient, request: Any, done: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.ask(request, 0)
        assert answer.error_code == 0, answer
        request = heartbeat(
            group_id=request.group_id, member_id=answer.member_id, member_epoch=answer.member_epoch
        )
        if done(answer):
            return answer
        assert time.monotonic() < deadline, answer


def test_a_member_gets_its_changelog_and_then_its_tasks(client: RawClient, topic: str) -> None:
    create_topic(client, topic, 3)
    configure_group(client, "counts", "streams.initial.rebalance.delay.ms", "300")
    answer = client.ask(join("counts", topic, cleanup_policy="compact"), 0)
    codes = [status.status_code for status in answer.status]
    assert codes == [StatusCode.ASSIGNMENT_DELAYED, StatusCode.MISSING_INTERNAL_TOPICS]
    assert answer.heartbeat_interval_ms == 100, "it is asked back soon"
    rest = heartbeat(group_id="counts", member_id="m1", member_epoch=answer.member_epoch)
    answer = beat_until(client, rest, lambda answer: answer.active_tasks)
    assert [(one.subtopology_id, one.partitions) for one in answer.active_tasks] == [("0", [0, 1, 2])]
    wanted = m.MetadataRequest.MetadataRequestTopic(name="counts-changelog")
    (changelog,) = client.ask(m.MetadataRequest(topics=[wanted]), 12).topics
    assert len(changelog.partitions) == 3
    (group,) = client.ask(m.StreamsGroupDescribeRequest(group_ids=["counts"]), 0).groups
    assert group.topology.subtopologies[0].state_changelog_topics[0].partitions == 3


def test_a_member_is_told_why_its_topics_cannot_be_created(client: RawClient, topic: str) -> None:
    create_topic(client, topic, 1)
    answer = beat_until(
        client,
        join("refused", topic, cleanup_policy="shred"),
        lambda answer: any("Creation failed" in status.status_detail for status in answer.status),
    )
    assert "refused-changelog" in answer.status[-1].status_detail


def test_a_group_of_another_kind_is_not_a_streams_group(client: RawClient, topic: str) -> None:
    (described,) = client.ask(m.StreamsGroupDescribeRequest(group_ids=[""]), 0).groups
    assert described.error_code == ErrorCode.INVALID_GROUP_ID
    create_topic(client, topic, 1)
    consumer = m.ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="c1",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert client.ask(consumer, 1).error_code == 0
    assert client.ask(join("consumers", topic), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (described,) = client.ask(m.StreamsGroupDescribeRequest(group_ids=["consumers"]), 0).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    at_once = {"group.streams.initial.rebalance.delay.ms": 0, "group.initial.rebalance.delay.ms": 0}
    broker = start_broker(settings=at_once)
    with connect(broker) as client:
        create_topic(client, topic, 1)
        commit(client, "both", topic, 7)
        answer = client.ask(join("both", topic), 0)
        assert answer.error_code == 0, "a group that only has offsets becomes a streams group"
        assert kind_of(client, "both") == "streams"
        assert client.ask(classic_join("both"), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        leave = heartbeat(group_id="both", member_id="m1", member_epoch=-1)
        assert client.ask(leave, 0).error_code == 0
        required = client.ask(classic_join("both"), 9)
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = client.ask(classic_join("both", required.member_id), 9)
        assert joined.error_code == 0, "an empty streams group becomes a classic one"
        assert kind_of(client, "both") == "classic"
        assert client.ask(join("both", topic), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        gone = m.LeaveGroupRequest(
            group_id="both", members=[m.LeaveGroupRequest.MemberIdentity(member_id=required.member_id)]
        )
        assert client.ask(gone, 5).error_code == 0
        assert client.ask(join("both", topic), 0).error_code == 0
        before = described(client, "both")
    broker.kill()
    broker.start()
    with connect(broker) as client:
        after = described(client, "both")
        assert (after.group_epoch, after.members) == (before.group_epoch, before.members)
        assert committed(client, "both", topic) == 7


def classic_join(group: str, member_id: str = "") -> Any:
    join = m.JoinGroupRequest
    return join(
        group_id=group,
        member_id=member_id,
        protocol_type="consumer",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocols=[join.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    message = m.OffsetCommitRequest
    partition = message.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [message.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    answer = client.ask(message(group_id=group, generation_id_or_member_epoch=-1, topics=topics), 9)
    assert answer.topics[0].partitions[0].error_code == 0


def committed(client: RawClient, group: str, topic: str) -> int:
    message = m.OffsetFetchRequest
    asked = message.OffsetFetchRequestGroup(
        group_id=group, topics=[message.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = client.ask(message(groups=[asked]), 9)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def kind_of(client: RawClient, group: str) -> str:
    listed = client.ask(m.ListGroupsRequest(), 5).groups
    kind: str = next(one.group_type for one in listed if one.group_id == group)
    return kind


def described(client: RawClient, group: str) -> Any:
    (answer,) = client.ask(m.StreamsGroupDescribeRequest(group_ids=[group]), 0).groups
    assert answer.error_code == 0, answer
    return answer
