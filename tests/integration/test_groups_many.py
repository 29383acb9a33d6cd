"""A classic group of 500 members over 1,000 partitions: it forms, shrinks and settles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire import messages as m
from ottla.wire.codec import encode

MEMBERS, PARTITIONS = 500, 1_000


class Member:
    """One connection and what it was given."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.client = RawClient(broker.host, broker.port)
        self.member_id = ""
        self.generation = -1
        self.listed: list[str] = []

    def ask_to_join(self) -> None:
        request = m.JoinGroupRequest
        metadata = b"\0\0" + encode(m.ConsumerProtocolSubscription(topics=["t"]), 0)
        self.client.send(
            request(
                group_id="many",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[request.JoinGroupRequestProtocol(name="range", metadata=metadata)],
            ),
            9,
        )

    def hear_of_join(self) -> int:
        response = self.client.receive()
        self.member_id, self.generation = response.member_id, response.generation_id
        self.listed = [member.member_id for member in response.members]
        return int(response.error_code)

    def ask_for_part(self) -> None:
        request = m.SyncGroupRequest
        parts: dict[str, list[int]] = {member: [] for member in self.listed}
        for partition in range(PARTITIONS if self.listed else 0):
            parts[self.listed[partition % len(self.listed)]].append(partition)
        self.client.send(
            request(
                group_id="many",
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    request.SyncGroupRequestAssignment(member_id=member, assignment=_assignment(part))
                    for member, part in parts.items()
                ],
            ),
            5,
        )

    def hear_of_part(self) -> bytes:
        response = self.client.receive()
        assert response.error_code == 0
        return bytes(response.assignment)


def _assignment(partitions: list[int]) -> bytes:
    given = m.ConsumerProtocolAssignment
    return b"\0\0" + encode(
        given(assigned_partitions=[given.TopicPartition(topic="t", partitions=partitions)]), 0
    )


@pytest.fixture
def members(start_broker) -> Iterator[list[Member]]:  # type: ignore[no-untyped-def]
    # Without a delay the group forms once, when all members that were given an id have joined.
    broker = start_broker(settings={"group.initial.rebalance.delay.ms": 0})
    found = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["many"])
    with RawClient(broker.host, broker.port) as client:
        while client.ask(found, 6).coordinators[0].error_code:
            pass
    everyone = [Member(broker) for _ in range(MEMBERS)]
    yield everyone
    for member in everyone:
        member.client.close()
    assert "Traceback" not in broker.log, broker.log


def settle(members: list[Member]) -> None:
    """Everyone joins and gets its part; together they have every partition once."""
    for member in members:
        member.ask_to_join()
    assert {member.hear_of_join() for member in members} == {0}
    assert len({member.generation for member in members}) == 1
    assert [len(member.listed) for member in members if member.listed] == [len(members)]
    for member in members:
        member.ask_for_part()
    given = []
    for member in members:
        part = member.hear_of_part()
        count = int.from_bytes(part[9:13], "big")
        given += [int.from_bytes(part[13 + 4 * n : 17 + 4 * n], "big") for n in range(count)]
    assert sorted(given) == list(range(PARTITIONS))


@pytest.mark.slow
def test_five_hundred_members_share_a_thousand_partitions(members: list[Member]) -> None:
    for member in members:
        member.ask_to_join()
    for member in members:
        assert member.hear_of_join() == 79, "each is given its id first"
    settle(members)
    gone, rest = members[:100], members[100:]
    for member in gone:
        leaving = m.LeaveGroupRequest.MemberIdentity(member_id=member.member_id)
        member.client.send(m.LeaveGroupRequest(group_id="many", members=[leaving]), 5)
    for member in gone:
        assert member.client.receive().members[0].error_code == 0
    settle(rest)
