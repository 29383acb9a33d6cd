"""A running group changes its protocol and back, one consumer after the other, and no record is lost on the way."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from integration.consumer_protocol import NewProtocol
from integration.group_members import Confluent, Member, Team, make_topic, shared_out
from ottla.testing.process import BrokerProcess

PARTITIONS = 6
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 30_000}


def group_type(broker: BrokerProcess, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return {each.group_id: each.type for each in admin.list_consumer_groups().result(60).valid}[group]


@pytest.mark.slow
def test_a_group_moves_to_the_new_protocol_and_back(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, PARTITIONS, [b"%d" % number for number in range(60)])
    words = (broker.bootstrap, topic, topic)
    with Team() as team:

        def reached(*members: Member) -> None:
            team.until(lambda: shared_out(members, PARTITIONS) and all(m.owned for m in members))

        classic = [team.add(Confluent, *words, **COOPERATIVE) for _ in range(2)]
        reached(*classic)
        assert group_type(broker, topic) is ConsumerGroupType.CLASSIC

        # Up: the first of the new protocol takes the group along.
        new = team.add(NewProtocol, *words)
        reached(*classic, new)
        assert group_type(broker, topic) is ConsumerGroupType.CONSUMER
        classic[0].stop()
        reached(classic[1], new)

        # And down again with the last.
        back = team.add(Confluent, *words, **COOPERATIVE)
        reached(classic[1], new, back)
        new.stop()
        reached(classic[1], back)
        assert group_type(broker, topic) is ConsumerGroupType.CLASSIC

        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(PARTITIONS):
            producer.produce(topic, b"after %d" % partition, partition=partition)
        assert producer.flush(60) == 0
        everyone = [*classic, new, back]
        expected = {b"%d" % number for number in range(60)} | {b"after %d" % n for n in range(PARTITIONS)}
        team.until(lambda: {value for member in everyone for _, _, value in member.got} == expected)


def test_an_eager_classic_member_gets_on_with_a_new_one(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, PARTITIONS)
    words = (broker.bootstrap, topic, topic)
    with Team() as team:
        new = team.add(NewProtocol, *words)
        team.until(lambda: shared_out([new], PARTITIONS))
        eager = team.add(Confluent, *words)
        team.until(lambda: shared_out([new, eager], PARTITIONS) and len(eager.owned) == 3)
