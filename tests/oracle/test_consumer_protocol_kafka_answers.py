"""The same heartbeats to Apache Kafka and to Ottla: the same answers, and the same records in `__consumer_offsets`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oracle.kafka_tools import needs_java
from ottla.coordinator.group.metadata_hash import group_hash, topic_hash
from ottla.coordinator.group.shard import SERDE
from ottla.coordinator.records import CoordinatorRecord
from ottla.metadata.image import PartitionRegistration, TopicImage
from ottla.records.batch import iter_batches, iter_records
from ottla.testing.apache import ApacheKafka
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m
from ottla.wire.codec import encode

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

SETTINGS = {
    # A target for every change of the group: nothing hangs on the time between two heartbeats.
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.heartbeat.interval.ms": 5000,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
TOPICS = {"foo": 4, "bar": 2}


class Side:
    """One of the two brokers, its topics' ids, and the way to its log."""

    def __init__(self, client: RawClient, data: Path) -> None:
        self.client = client
        self.data = data
        cls = m.CreateTopicsRequest
        topics = [
            cls.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ]
        created = self.client.ask(cls(topics=topics, timeout_ms=10_000), 7)
        self.names = {topic.topic_id: topic.name for topic in created.topics}
        self.ids = {name: topic_id for topic_id, name in self.names.items()}
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        while self.client.ask(find, 4).coordinators[0].error_code:
            pass
        probe = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="probe", member_epoch=1)
        while self.client.ask(probe, 1).error_code != 69:  # GROUP_ID_NOT_FOUND: the coordinator is there
            pass

    def heartbeat(self, version: int = 1, **fields: Any) -> Any:
        owned = fields.pop("owned", None)
        if owned is not None:
            kind = m.ConsumerGroupHeartbeatRequest.TopicPartitions
            fields["topic_partitions"] = [
                kind(topic_id=self.ids[topic], partitions=sorted(numbers)) for topic, numbers in owned.items()
            ]
        return self.client.ask(m.ConsumerGroupHeartbeatRequest(**{"group_id": "g", **fields}), version)

    def answer(self, response: Any) -> Any:
        """The parts of an answer that both must agree on."""
        assignment = None
        if response.assignment is not None:
            assignment = {
                self.names[topic.topic_id]: len(topic.partitions)
                for topic in response.assignment.topic_partitions
            }
        return response.error_code, response.member_epoch, assignment

    def decoded(self) -> Iterator[CoordinatorRecord]:
        """The records in the log."""
        log = (self.data / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()
        for position, header in iter_batches(log):
            if header.is_control:
                continue
            for record in iter_records(log, position, header):
                assert record.key is not None
                yield SERDE.decode(bytes(record.key), record.value and bytes(record.value))

    def records(self) -> list[tuple[str, str, Any]]:
        """What the group left in the log: key, member or expression, and value."""
        found = []
        for record in self.decoded():
            which = getattr(record.key, "member_id", getattr(record.key, "regular_expression", ""))
            found.append((record.key.NAME, which, self._readable(record.value)))
        assert found
        return found

    def _readable(self, value: Any) -> Any:
        """A value without what differs from run to run: ids, times, and which partitions of a topic."""
        if value is None:
            return None
        answered_with: dict[str, Any] = {}
        for name in type(value).__slots__:
            field = getattr(value, name, None)
            if name in ("assignment_timestamp", "timestamp", "version", "metadata_hash"):
                field = bool(field)
            elif name in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
                field = sorted(
                    (self.names[topic.topic_id], len(topic.partitions), self._epochs(topic))
                    for topic in field
                )
            answered_with[name] = str(field)
        return answered_with

    def _epochs(self, topic: Any) -> list[int] | None:
        return sorted(epochs) if (epochs := getattr(topic, "assignment_epochs", None)) else None


class Both:
    def __init__(self, kafka: Side, ottla: Side) -> None:
        self.kafka, self.ottla = kafka, ottla
        self.owned: dict[str, tuple[dict[str, set[int]], dict[str, set[int]]]] = {}

    def beat(self, member_id: str, *, report: bool = True, **fields: Any) -> Any:
        """A heartbeat of the same member to both; it owns there what it was given there."""
        answers = []
        for number, side in enumerate((self.kafka, self.ottla)):
            owned = self.owned.setdefault(member_id, ({}, {}))[number]
            if fields["member_epoch"] == 0:
                owned.clear()
            reported = {"owned": owned} if report and fields["member_epoch"] >= 0 else {}
            response = side.heartbeat(member_id=member_id, **reported, **fields)
            if response.assignment is not None:
                owned.clear()
                for topic in response.assignment.topic_partitions:
                    owned[side.names[topic.topic_id]] = set(topic.partitions)
            answers.append(side.answer(response))
        assert answers[0] == answers[1], (member_id, fields)
        return answers[1]

    def ask(self, request: Any, version: int) -> tuple[Any, Any]:
        return self.kafka.client.ask(request, version), self.ottla.client.ask(request, version)

    def same_records(self) -> None:
        kafka, ottla = self.kafka.records(), self.ottla.records()
        # Targets of several members come in no particular order.
        assert sorted(map(repr, ottla)) == sorted(map(repr, kafka))
        order = [key for key, _, _ in kafka]
        assert [key for key, _, _ in ottla] == order


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    kafka = ApacheKafka(tmp_path / "kafka", SETTINGS)
    kafka.format()
    ottla = BrokerProcess(tmp_path / "ottla", settings=SETTINGS)
    try:
        kafka.start()
        ottla.start()
        with RawClient("127.0.0.1", kafka.port) as one, RawClient(ottla.host, ottla.port) as other:
            yield Both(Side(one, kafka.data), Side(other, ottla.data))
    finally:
        kafka.kill()
        ottla.kill()


def test_the_hash_of_the_topics_is_kafkas(both: Both) -> None:
    both.beat("a", **join(["foo", "bar", "nowhere"]))
    for side in (both.kafka, both.ottla):
        hashes = {}
        for name, count in TOPICS.items():
            registration = PartitionRegistration((1,), (b"",), (1,), 1, 0, 0)
            topic = TopicImage(side.ids[name], name, dict.fromkeys(range(count), registration))
            hashes[name] = topic_hash(topic, {})
        written: list[Any] = [
            record.value for record in side.decoded() if record.key.NAME == "ConsumerGroupMetadataKey"
        ]
        assert [value.metadata_hash for value in written] == [group_hash(hashes)]


def join(topics: list[str] | None, **more: Any) -> dict[str, Any]:
    return {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, **more}


def test_a_group_forms_changes_and_ends_alike(both: Both) -> None:
    _, epoch, given = both.beat("a", **join(["foo"]))
    assert given == {"foo": 4}
    both.beat("a", member_epoch=epoch)
    # A second member, and the steps until it has its half.
    _, second, given = both.beat("b", **join(["foo"], instance_id="i", rack_id="r"))
    assert given == {}
    code, epoch, given = both.beat("a", member_epoch=epoch)
    assert (code, given) == (0, {"foo": 2})
    _, second, given = both.beat("b", member_epoch=second, instance_id="i")
    assert given is None
    _, epoch, _ = both.beat("a", member_epoch=epoch)
    _, second, given = both.beat("b", member_epoch=second, instance_id="i")
    assert given == {"foo": 2}
    # Another subscription, another assignor.
    _, epoch, _ = both.beat("a", member_epoch=epoch, subscribed_topic_names=["foo", "bar"])
    _, second, _ = both.beat("b", member_epoch=second, instance_id="i", server_assignor="range")
    _, epoch, _ = both.beat("a", member_epoch=epoch)
    # The static member goes and comes back under another id; a look without news; wrong epochs.
    both.beat("b", member_epoch=-2, instance_id="i")
    _, second, given = both.beat("b2", **join(["foo"], instance_id="i"))
    both.beat("a", member_epoch=epoch, report=False)
    assert both.beat("a", member_epoch=epoch + 7)[0] == 110
    assert both.beat("a", member_epoch=1)[0] == 110
    assert both.beat("b", member_epoch=second, instance_id="i")[0] == 82
    assert both.beat("c", **join(["foo"], instance_id="i"))[0] == 111
    assert both.beat("c", member_epoch=4)[0] == 25
    assert both.beat("c", **join(None))[0] == 42
    assert both.beat("c", **join([], server_assignor="best"))[0] == 112
    assert both.beat("c", **join(None, subscribed_topic_regex="(?=a)"))[0] == 128
    both.beat("b2", member_epoch=-1, instance_id="i")
    both.beat("a", member_epoch=epoch)
    both.beat("a", member_epoch=-1)
    both.same_records()
    # Deleted, nothing is left of it.
    for answer in both.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2):
        assert answer.results[0].error_code == 0
    both.same_records()


def classic_join(member_id: str, topics: list[str], owned: dict[str, list[int]]) -> Any:
    kind = m.ConsumerProtocolSubscription
    metadata = struct.pack(">h", 1) + encode(
        kind(
            topics=topics,
            owned_partitions=[
                kind.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in owned.items()
            ],
        ),
        1,
    )
    request = m.JoinGroupRequest
    return request(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
    )


def test_a_classic_member_joins_a_consumer_group_and_outlives_it_alike(both: Both) -> None:
    _, epoch, _ = both.beat("a", **join(["foo"]))
    answers = both.ask(classic_join("old", ["foo"], {}), 9)
    assert [(each.error_code, each.generation_id, each.leader) for each in answers] == [
        (0, 3, ""),
        (0, 3, ""),
    ]
    sync = m.SyncGroupRequest(
        group_id="g",
        generation_id=3,
        member_id="old",
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
    )
    empty, other = both.ask(sync, 5)
    assert (empty.error_code, empty.assignment) == (other.error_code, other.assignment)
    _, epoch, given = both.beat("a", member_epoch=epoch)
    assert given == {"foo": 2}
    heartbeat = m.HeartbeatRequest(group_id="g", generation_id=3, member_id="old")
    assert [each.error_code for each in both.ask(heartbeat, 4)] == [0, 0]
    _, epoch, _ = both.beat("a", member_epoch=epoch)
    assert [each.error_code for each in both.ask(heartbeat, 4)] == [27, 27]
    for answer in both.ask(classic_join("old", ["foo"], {}), 9):
        assert (answer.error_code, answer.generation_id) == (0, 3)
    synced = [len(each.assignment) for each in both.ask(sync, 5)]
    assert synced[0] == synced[1] > len(empty.assignment)
    described = [each.groups[0] for each in both.ask(m.ConsumerGroupDescribeRequest(group_ids=["g"]), 1)]
    assert [
        (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
        for group in described
    ] == [("Stable", 3, 3, "uniform")] * 2
    assert [sorted((each.member_id, each.member_type) for each in group.members) for group in described] == [
        [("a", 1), ("old", 0)]
    ] * 2
    # The last of the new protocol goes: the group is a classic one that rebalances.
    both.beat("a", member_epoch=-1)
    assert [each.error_code for each in both.ask(heartbeat, 4)] == [27, 27]
    consumer, groups = m.ListGroupsRequest(), []
    for answer in both.ask(consumer, 5):
        groups.append([(each.group_id, each.group_type, each.group_state) for each in answer.groups])
    assert groups[0] == groups[1]
    names = [[key for key, _, _ in side.records()] for side in (both.kafka, both.ottla)]
    assert names[0] == names[1]
