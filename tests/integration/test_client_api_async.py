"""The async twins: a program on asyncio writes, reads and commits."""

import asyncio

import pytest

from ottla import AsyncKafkaConsumer, AsyncKafkaProducer, TopicPartition
from ottla.client.errors import IllegalStateError


def test_write_and_read(shared_ottla_broker, topic):
    bootstrap = shared_ottla_broker.bootstrap
    partition = TopicPartition(topic, 0)

    async def program():
        async with AsyncKafkaProducer(bootstrap_servers=bootstrap) as producer:
            first = await producer.send_and_wait(topic, b"0", key=b"k")
            futures = [await producer.send(topic, b"%d" % n) for n in range(1, 10)]
            places = [await future for future in futures]
        assert [first.offset, *(place.offset for place in places)] == list(range(10))
        async with AsyncKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        ) as consumer:
            values = [(await consumer.getone()).value]
            async for record in consumer:
                values.append(record.value)
                if len(values) == 10:
                    break
            await consumer.commit()
            assert await consumer.committed(partition) == 10
            assert await consumer.position(partition) == 10
            assert await consumer.end_offsets([partition]) == {partition: 10}
        return values

    assert asyncio.run(program()) == [b"%d" % n for n in range(10)]


def test_the_iteration_ends_when_nothing_comes(shared_ottla_broker, topic):
    async def program():
        async with AsyncKafkaConsumer(
            topic, bootstrap_servers=shared_ottla_broker.bootstrap, consumer_timeout_ms=300
        ) as consumer:
            return [record async for record in consumer]

    assert asyncio.run(program()) == []


def test_the_loop_goes_on_while_a_consumer_waits(shared_ottla_broker, topic):
    async def program():
        async with AsyncKafkaConsumer(topic, bootstrap_servers=shared_ottla_broker.bootstrap) as consumer:
            waiting = asyncio.create_task(consumer.poll(1000))
            turns = 0
            while not waiting.done():
                turns += 1
                await asyncio.wait([waiting], timeout=0.01)
            return turns

    assert asyncio.run(program()) > 3


def test_a_twin_has_to_be_started():
    async def program():
        with pytest.raises(IllegalStateError, match="start the producer"):
            await AsyncKafkaProducer().send("topic", b"value")

    asyncio.run(program())
