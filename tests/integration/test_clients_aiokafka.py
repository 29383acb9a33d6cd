"""aiokafka, the asyncio client, against a broker."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from ottla.testing.process import BrokerProcess


def test_produce_and_consume(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            sent = [
                await producer.send_and_wait(
                    topic, b"%d" % i, key=b"k%d" % (i % 3), headers=[("n", b"%d" % i)]
                )
                for i in range(50)
            ]
        finally:
            await producer.stop()
        assert [metadata.offset for metadata in sent] == list(range(50))

        consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            got = [await asyncio.wait_for(consumer.getone(), 60) for _ in range(50)]
            assert [message.value for message in got] == [b"%d" % i for i in range(50)]
            assert got[7].headers == (("n", b"7"),)
            partition = TopicPartition(topic, 0)
            assert await consumer.end_offsets([partition]) == {partition: 50}
        finally:
            await consumer.stop()

    asyncio.run(story())


def test_admin(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 4, 1)])
            (described,) = await admin.describe_topics([topic])
            assert len(described["partitions"]) == 4
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(story())
