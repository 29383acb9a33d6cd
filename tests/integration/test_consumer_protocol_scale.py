"""A large group of the new protocol over the wire: 500 members, 1,000 partitions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m

MEMBERS, PARTITIONS = 500, 1000


class WireMember:
    """A member that only heartbeats."""

    def __init__(self, group: str, topic: str, number: int) -> None:
        self.group, self.topic = group, topic
        self.member_id = f"member-{number}"
        self.epoch = 0
        self.topic_id = b""
        self.owned: set[int] = set()

    def request(self) -> Any:
        request = m.ConsumerGroupHeartbeatRequest
        owned = [request.TopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))]
        reported: dict[str, Any] = {"topic_partitions": owned if self.owned else []}
        if self.epoch == 0:
            reported |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.topic]}
        return request(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, **reported)

    def take(self, response: Any) -> None:
        assert response.error_code == 0, response.error_message
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = set()
            for topic in response.assignment.topic_partitions:
                self.topic_id = topic.topic_id
                self.owned |= set(topic.partitions)


def beat(client: RawClient, members: list[WireMember]) -> None:
    """A heartbeat of everyone, sent ahead of the answers."""
    for member in members:
        client.send(member.request(), 1)
    for member in members:
        member.take(client.receive())


def is_shared_out(members: list[WireMember]) -> bool:
    owned = [number for member in members for number in member.owned]
    assert len(owned) == len(set(owned)), "a partition has two owners"
    sizes = {len(member.owned) for member in members}
    return len(owned) == PARTITIONS and max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_a_group_of_500_members_on_1000_partitions_converges(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.host, broker.port, timeout_s=60) as client:
        creation = m.CreateTopicsRequest
        topics = [creation.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)]
        assert client.ask(creation(topics=topics, timeout_ms=30_000), 7).topics[0].error_code == 0
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[topic])
        probe = m.ConsumerGroupHeartbeatRequest(group_id=topic, member_id="probe", member_epoch=1)
        while client.ask(find, 4).coordinators[0].error_code or client.ask(probe, 1).error_code != 69:
            pass
        members = [WireMember(topic, topic, number) for number in range(MEMBERS)]
        beat(client, members)
        while not is_shared_out(members):
            beat(client, members)

        # A fifth of them goes; those that stay take over.
        gone, staying = members[:100], members[100:]
        for member in gone:
            member.epoch = -1
            member.owned = set()
        beat(client, gone)
        while not is_shared_out(staying):
            beat(client, staying)
