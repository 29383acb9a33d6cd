"""The clients for programs on asyncio: the same names, to be awaited.

The engine works in threads of its own; a call that waits for it does so in a thread, so that the event loop
does not. A consumer has one thread, since it is for one at a time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from ottla.client.consumer import KafkaConsumer
from ottla.client.consumer_engine import Offsets
from ottla.client.errors import IllegalStateError
from ottla.client.futures import FutureRecordMetadata
from ottla.client.producer import KafkaProducer
from ottla.client.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    Headers,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

T = TypeVar("T")

_POLL_MS = 250


class AsyncKafkaProducer:
    """`async with AsyncKafkaProducer(...) as producer: await producer.send_and_wait(topic, value)`."""

    def __init__(self, **configs: Any) -> None:
        self._configs = configs
        self._producer: KafkaProducer | None = None

    async def start(self) -> None:
        """Connect to the cluster."""
        if self._producer is None:
            self._producer = await asyncio.to_thread(lambda: KafkaProducer(**self._configs))

    async def stop(self, timeout_s: float | None = None) -> None:
        """Wait for what is on its way, and close."""
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close, timeout_s)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record; the future that comes back can be awaited for its place."""
        send = functools.partial(self._started.send, topic, value, key, headers, partition, timestamp_ms)
        # Only a topic's first record has to wait for anything; a full buffer holds the loop, as it should.
        return send() if self._started.knows(topic) else await asyncio.to_thread(send)

    async def send_and_wait(self, topic: str, value: Any = None, **rest: Any) -> RecordMetadata:
        """Send a record and wait until it is acknowledged."""
        return await (await self.send(topic, value, **rest))

    async def flush(self, timeout_s: float | None = None) -> None:
        await asyncio.to_thread(self._started.flush, timeout_s)

    async def partitions_for(self, topic: str) -> set[int]:
        return await asyncio.to_thread(self._started.partitions_for, topic)

    async def init_transactions(self) -> None:
        await asyncio.to_thread(self._started.init_transactions)

    async def begin_transaction(self) -> None:
        self._started.begin_transaction()

    async def commit_transaction(self) -> None:
        await asyncio.to_thread(self._started.commit_transaction)

    async def abort_transaction(self) -> None:
        await asyncio.to_thread(self._started.abort_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        await asyncio.to_thread(self._started.send_offsets_to_transaction, offsets, group_metadata)

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        return self._started.metrics(raw)

    @property
    def _started(self) -> KafkaProducer:
        if self._producer is None:
            raise IllegalStateError("start the producer first: `await producer.start()` or `async with`")
        return self._producer

    async def __aenter__(self) -> AsyncKafkaProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class AsyncKafkaConsumer:
    """`async with AsyncKafkaConsumer("topic", ...) as consumer: async for record in consumer: ...`."""

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._topics, self._configs = topics, configs
        self._consumer: KafkaConsumer | None = None
        self._thread = ThreadPoolExecutor(1, "ottla-consumer")

    async def start(self) -> None:
        """Connect to the cluster."""
        if self._consumer is None:
            self._consumer = await self._run(lambda: KafkaConsumer(*self._topics, **self._configs))

    async def stop(self, autocommit: bool = True) -> None:
        """Commit, if that is done automatically, and leave the group."""
        if self._consumer is not None:
            await self._run(self._consumer.close, autocommit)
        self._thread.shutdown(wait=False)

    def __aiter__(self) -> AsyncKafkaConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; the end comes after `consumer_timeout_ms` without one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._started.config["consumer_timeout_ms"] / 1000
        while True:
            batch = await self._run(self._started.poll, min(_POLL_MS, self._left_ms(deadline)), 1)
            for records in batch.values():
                return records[0]
            if loop.time() >= deadline:
                raise StopAsyncIteration

    def _left_ms(self, deadline: float) -> float:
        return max(0.0, (deadline - asyncio.get_running_loop().time()) * 1000)

    async def getone(self) -> ConsumerRecord:
        """The next record, however long it takes."""
        while True:
            for records in (await self.poll(_POLL_MS, 1)).values():
                return records[0]

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        return await self._run(self._started.poll, timeout_ms, max_records)

    async def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None
    ) -> None:
        await self._run(self._started.subscribe, topics, pattern, listener)

    async def unsubscribe(self) -> None:
        await self._run(self._started.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        await self._run(self._started.assign, partitions)

    def assignment(self) -> set[TopicPartition]:
        return self._started.assignment()

    def subscription(self) -> set[str] | None:
        return self._started.subscription()

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        await self._run(self._started.seek, partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        await self._run(self._started.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        await self._run(self._started.seek_to_end, *partitions)

    async def position(self, partition: TopicPartition) -> int | None:
        return await self._run(self._started.position, partition)

    async def pause(self, *partitions: TopicPartition) -> None:
        await self._run(self._started.pause, *partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        await self._run(self._started.resume, *partitions)

    def paused(self) -> set[TopicPartition]:
        return self._started.paused()

    async def commit(self, offsets: Offsets | None = None) -> None:
        await self._run(self._started.commit, offsets)

    async def committed(
        self, partition: TopicPartition, metadata: bool = False
    ) -> int | OffsetAndMetadata | None:
        return await self._run(self._started.committed, partition, metadata)

    async def topics(self) -> set[str]:
        return await self._run(self._started.topics)

    async def partitions_for_topic(self, topic: str) -> set[int]:
        return await self._run(self._started.partitions_for_topic, topic)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._run(self._started.beginning_offsets, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._run(self._started.end_offsets, partitions)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._run(self._started.offsets_for_times, timestamps)

    async def group_metadata(self) -> ConsumerGroupMetadata:
        return await self._run(self._started.group_metadata)

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        return self._started.metrics(raw)

    async def _run(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(call, *args))

    @property
    def _started(self) -> KafkaConsumer:
        if self._consumer is None:
            raise IllegalStateError("start the consumer first: `await consumer.start()` or `async with`")
        return self._consumer

    async def __aenter__(self) -> AsyncKafkaConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(autocommit=kind is None)
