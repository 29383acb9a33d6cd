"""Groups of the next-generation protocol (KIP-848) as librdkafka speaks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from integration.consumer_protocol import NewProtocol
from integration.group_members import Member, Team, make_topic, shared_out
from ottla.testing.process import BrokerProcess

COMING_UP = (
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_COORDINATOR,
)


@pytest.fixture
def team() -> Iterator[Team]:
    with Team() as team:
        yield team


def evenly(members: list[Member], partitions: int) -> bool:
    sizes = [len(member.owned) for member in members]
    return shared_out(members, partitions) and max(sizes) - min(sizes) <= 1


def describe(admin: AdminClient, group: str) -> Any:
    """The group, once its coordinator has read all there is of it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return admin.describe_consumer_groups([group])[group].result(60)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in COMING_UP or time.monotonic() > deadline:
                raise


def test_eight_members_of_six_partitions_leave_two_idle(
    broker: BrokerProcess, topic: str, team: Team
) -> None:
    make_topic(broker.bootstrap, topic, 6, [b"%d" % number for number in range(60)])
    members = [team.add(NewProtocol, broker.bootstrap, topic, topic) for _ in range(8)]
    team.until(lambda: evenly(members, 6))
    team.until(lambda: {value for m in members for _, _, value in m.got} == {b"%d" % n for n in range(60)})
    assert sorted(len(member.owned) for member in members) == [0, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.slow
def test_partitions_move_when_members_come_and_go(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 6)
    first = team.add(NewProtocol, broker.bootstrap, topic, topic)
    team.until(lambda: shared_out([first], 6))
    second, third = (team.add(NewProtocol, broker.bootstrap, topic, topic) for _ in range(2))
    team.until(lambda: evenly([first, second, third], 6))
    kept = set(first.owned)
    second.stop()
    team.until(lambda: evenly([first, third], 6))
    # Sticky: the first only gains.
    assert kept <= first.owned


def test_committed_offsets_are_where_the_next_member_begins(
    broker: BrokerProcess, topic: str, team: Team
) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"a", b"b", b"c"])
    first = team.add(NewProtocol, broker.bootstrap, topic, topic, commits=True)
    team.until(lambda: len(first.got) == 3)
    first.stop()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"d")
    assert producer.flush(60) == 0
    second = team.add(NewProtocol, broker.bootstrap, topic, topic)
    team.until(lambda: bool(second.got))
    assert second.got == [(0, 3, b"d")]


def test_new_partitions_are_found(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 2)
    member = team.add(NewProtocol, broker.bootstrap, topic, topic)
    team.until(lambda: shared_out([member], 2))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    team.until(lambda: shared_out([member], 5))


def test_a_regular_expression_is_matched_by_the_broker(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, f"{topic}.one", 1, [b"1"])
    make_topic(broker.bootstrap, f"{topic}.two", 1, [b"2"])
    make_topic(broker.bootstrap, f"not.{topic}.one", 1, [b"3"])
    member = team.add(NewProtocol, broker.bootstrap, topic, f"^{topic}\\.(one|two)")
    team.until(lambda: len(member.got) == 2)
    assert sorted(value for _, _, value in member.got) == [b"1", b"2"]


def test_a_static_member_returns_to_its_partitions(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 4)
    static = team.add(NewProtocol, broker.bootstrap, topic, topic, group_instance_id="i-1")
    other = team.add(NewProtocol, broker.bootstrap, topic, topic, group_instance_id="i-2")
    team.until(lambda: evenly([static, other], 4))
    had, others = set(static.owned), set(other.owned)
    static.stop()
    again = team.add(NewProtocol, broker.bootstrap, topic, topic, group_instance_id="i-1")
    team.until(lambda: evenly([again, other], 4))
    assert (again.owned, other.owned) == (had, others)


def test_the_assignor_can_be_chosen(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 4)
    members = [
        team.add(NewProtocol, broker.bootstrap, topic, topic, group_remote_assignor="range") for _ in range(2)
    ]
    team.until(lambda: evenly(members, 4))
    assert sorted(sorted(member.owned) for member in members) == [[0, 1], [2, 3]]


def test_the_group_is_listed_and_described(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 2)
    member = team.add(NewProtocol, broker.bootstrap, topic, topic, client_id="me")
    team.until(lambda: shared_out([member], 2))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(60).valid}
    assert listed[topic].type is ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups([topic])[topic].result(60)
    assert described.state is ConsumerGroupState.STABLE
    assert described.type is ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    (one,) = described.members
    assert one.client_id == "me"
    assert {part.partition for part in one.assignment.topic_partitions} == {0, 1}
    assert {part.partition for part in one.target_assignment.topic_partitions} == {0, 1}


def test_an_empty_group_is_deleted_with_its_offsets(broker: BrokerProcess, topic: str, team: Team) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"a"])
    member = team.add(NewProtocol, broker.bootstrap, topic, topic, commits=True)
    team.until(lambda: bool(member.got))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(60)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.stop()
    admin.delete_consumer_groups([topic])[topic].result(60)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    consumer.close()
    assert committed.offset < 0


@pytest.mark.slow
def test_the_group_lives_through_a_restart(start_broker: Callable[[], BrokerProcess], topic: str) -> None:
    broker = start_broker()
    make_topic(broker.bootstrap, topic, 4)
    with Team() as team:
        members = [team.add(NewProtocol, broker.bootstrap, topic, topic) for _ in range(2)]
        team.until(lambda: evenly(members, 4))
        before = [set(member.owned) for member in members]
        broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert len(describe(admin, topic).members) == 2
        late = team.add(NewProtocol, broker.bootstrap, topic, topic)
        team.until(lambda: evenly([*members, late], 4))
        assert all(member.owned <= had for member, had in zip(members, before, strict=True))
