"""A service on asyncio: requests come in one topic, responses go to another, many at once.

ottla start &                                  # a broker on localhost:9092
python examples/asyncio_echo.py
"""

from __future__ import annotations

import asyncio
import sys

from ottla import AsyncKafkaConsumer, AsyncKafkaProducer, KafkaAdminClient, NewTopic

NAMES = ["Ada", "Grace", "Katherine"]


def make_topics(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, 1, 1) for name in ("requests", "responses")])
    admin.close()


async def serve(bootstrap: str, count: int) -> None:
    """Answer so many requests."""
    async with (
        AsyncKafkaConsumer(
            "requests", bootstrap_servers=bootstrap, group_id="service", auto_offset_reset="earliest"
        ) as consumer,
        AsyncKafkaProducer(bootstrap_servers=bootstrap) as producer,
    ):
        for _ in range(count):
            record = await consumer.getone()
            await producer.send_and_wait("responses", b"Hello, " + record.value, key=record.key)


async def ask(bootstrap: str) -> list[str]:
    """Send all requests side by side, then collect the responses."""
    async with AsyncKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await asyncio.gather(
            *(producer.send_and_wait("requests", name.encode(), key=name.encode()) for name in NAMES)
        )
    async with AsyncKafkaConsumer(
        "responses", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        return sorted([(await consumer.getone()).value.decode() for _ in NAMES])


async def main(bootstrap: str) -> None:
    await asyncio.to_thread(make_topics, bootstrap)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(bootstrap, len(NAMES)))
        answers = tasks.create_task(ask(bootstrap))
    for answer in answers.result():
        print(answer)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
