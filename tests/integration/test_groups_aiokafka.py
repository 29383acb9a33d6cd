"""aiokafka in groups: shared partitions, cooperative and eager, commits, and a successor that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import NoOffsetForPartitionError

from integration.group_members import BROKER_SETTINGS, make_topic
from ottla.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def broker_settings() -> Mapping[str, object]:
    return BROKER_SETTINGS


def member(broker: BrokerProcess, topic: str, group: str, **options: object) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset=options.pop("auto_offset_reset", "earliest"),
        session_timeout_ms=30_000,
        heartbeat_interval_ms=100,
        enable_auto_commit=options.pop("enable_auto_commit", False),
        **options,
    )


async def shared_out(members: list[AIOKafkaConsumer], *shares: int) -> None:
    """Wait until every partition has one owner, and the members own so many each."""
    async with asyncio.timeout(60):
        while True:
            owned = sorted(each.partition for one in members for each in one.assignment())
            counts = sorted(len(one.assignment()) for one in members)
            if owned == list(range(sum(shares))) and counts == sorted(shares):
                return
            # Nothing is there to be read: it only lets the members do their work for a moment.
            await asyncio.gather(*(one.getmany(timeout_ms=50) for one in members))


def test_members_share_join_and_leave(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 6)

    async def story() -> None:
        members = [member(broker, topic, f"g-{topic}") for _ in range(8)]
        await asyncio.gather(*(one.start() for one in members))
        try:
            await shared_out(members, 0, 0, 1, 1, 1, 1, 1, 1)
            await asyncio.gather(*(one.stop() for one in members[3:]))
            await shared_out(members[:3], 2, 2, 2)
        finally:
            await asyncio.gather(*(one.stop() for one in members))

    asyncio.run(story())


def test_a_successor_starts_where_the_other_committed(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(20)])

    async def story() -> None:
        first = member(broker, topic, f"g-{topic}")
        await first.start()
        got = [(await asyncio.wait_for(first.getone(), 60)).value for _ in range(12)]
        assert got == [b"%d" % i for i in range(12)]
        await first.commit({TopicPartition(topic, 0): (8, "eight")})
        await first.stop()
        second = member(broker, topic, f"g-{topic}")
        await second.start()
        assert await second.committed(TopicPartition(topic, 0)) == 8
        got = [(await asyncio.wait_for(second.getone(), 60)).value for _ in range(12)]
        assert got == [b"%d" % i for i in range(8, 20)]
        await second.stop()

    asyncio.run(story())


def test_auto_commit_and_reset_to_none(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, [b"%d" % i for i in range(5)])

    async def story() -> None:
        first = member(broker, topic, f"g-{topic}", enable_auto_commit=True, auto_commit_interval_ms=50)
        await first.start()
        for _ in range(5):
            await asyncio.wait_for(first.getone(), 60)
        await first.stop()
        second = member(broker, topic, f"g-{topic}", auto_offset_reset="none")
        await second.start()
        assert await second.position(TopicPartition(topic, 0)) == 5
        await second.stop()
        lost = member(broker, topic, f"other-{topic}", auto_offset_reset="none")
        await lost.start()
        with pytest.raises(NoOffsetForPartitionError):
            await asyncio.wait_for(lost.getone(), 60)
        await lost.stop()

    asyncio.run(story())
