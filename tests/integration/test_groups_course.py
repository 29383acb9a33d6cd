"""The picture of every Kafka course: groups share partitions, each gets everything, offsets are remembered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from integration.group_members import BROKER_SETTINGS, CLIENTS, Member, Team, make_topic, shared_out
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import DescribeGroupsRequest


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return BROKER_SETTINGS


@pytest.fixture
def team() -> Iterator[Team]:
    with Team() as members:
        yield members


def values(member: Member) -> list[bytes]:
    return [value for _, _, value in member.got]


def size_of(broker: BrokerProcess, group: str) -> int:
    """How many members a group has, as the broker says."""
    request = DescribeGroupsRequest(groups=[group])
    with RawClient(broker.host, broker.port) as client:
        return len(client.ask(request, 5).groups[0].members)


@pytest.mark.parametrize("client", CLIENTS)
def test_eight_consumers_of_six_partitions_leave_two_idle(
    broker: BrokerProcess, topic: str, team: Team, client: str
) -> None:
    make_topic(broker.bootstrap, topic, 6, [b"%d" % i for i in range(60)])
    group = f"g-{topic}"
    members = [team.add(CLIENTS[client], broker.bootstrap, group, topic) for _ in range(8)]

    def settled() -> bool:
        shares = sorted(len(member.owned) for member in members)
        return shares == [0, 0, 1, 1, 1, 1, 1, 1] and size_of(broker, group) == 8

    team.until(lambda: settled() and sum(len(m.got) for m in members) >= 60)
    assert shared_out(members, 6)


@pytest.mark.parametrize("client", CLIENTS)
def test_two_groups_each_get_every_record(broker: BrokerProcess, topic: str, team: Team, client: str) -> None:
    sent = [b"%d" % i for i in range(60)]
    make_topic(broker.bootstrap, topic, 6, sent)
    first = [team.add(CLIENTS[client], broker.bootstrap, f"a-{topic}", topic) for _ in range(2)]
    second = [team.add(CLIENTS[client], broker.bootstrap, f"b-{topic}", topic)]
    for group in (first, second):
        team.until(lambda group=group: {v for m in group for v in values(m)} == set(sent))  # type: ignore[misc]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_fourth_consumer_takes_partitions_over(
    broker: BrokerProcess, topic: str, team: Team, client: str
) -> None:
    make_topic(broker.bootstrap, topic, 6)
    members = [team.add(CLIENTS[client], broker.bootstrap, f"g-{topic}", topic) for _ in range(3)]
    team.until(lambda: shared_out(members, 6) and all(len(m.owned) == 2 for m in members))
    fourth = team.add(CLIENTS[client], broker.bootstrap, f"g-{topic}", topic)
    team.until(lambda: shared_out([*members, fourth], 6) and len(fourth.owned) >= 1)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_member_leaves_the_others_take(
    broker: BrokerProcess, topic: str, team: Team, client: str
) -> None:
    make_topic(broker.bootstrap, topic, 6)
    members = [team.add(CLIENTS[client], broker.bootstrap, f"g-{topic}", topic) for _ in range(3)]
    team.until(lambda: shared_out(members, 6))
    members[0].stop()
    team.until(lambda: shared_out(members[1:], 6))


_DOOMED = """
import sys
import confluent_kafka
bootstrap, group, topic = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "session.timeout.ms": 5000, "heartbeat.interval.ms": 100,
})
consumer.subscribe([topic])
read = 0
while True:
    message = consumer.poll(1.0)
    if message is not None:
        assert message.error() is None, message.error()
        read += 1
        if read == 30:
            consumer.commit(asynchronous=False)
        if read == 45:
            print("far enough", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_the_successor_of_a_killed_consumer_starts_at_the_committed_offset(
    broker: BrokerProcess, topic: str, team: Team, client: str
) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(60)])
    doomed = subprocess.Popen(
        [sys.executable, "-c", _DOOMED, broker.bootstrap, f"g-{topic}", topic], stdout=subprocess.PIPE
    )
    assert doomed.stdout is not None
    with doomed:
        assert doomed.stdout.readline().strip() == b"far enough"
        successor = team.add(CLIENTS[client], broker.bootstrap, f"g-{topic}", topic)
        doomed.kill()
    team.until(lambda: len(successor.got) >= 30)
    assert values(successor) == [b"%d" % i for i in range(30, 60)]
