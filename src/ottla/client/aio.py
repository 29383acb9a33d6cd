"""Producer and consumer for asyncio: the same methods, to be awaited.

librdkafka works in threads of its own. A call that waits for it does so in a thread, so that the event loop does not
block. A consumer has one thread, because it must not be used by two threads at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

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

if TYPE_CHECKING:
    from ottla.client.listeners import ConsumerRebalanceListener
    from ottla.client.statistics import Metrics, Report

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

_POLL_MS = 250


class AsyncKafkaProducer:
    """KafkaProducer for asyncio. Start it with `async with` or `start`.

    >>> from ottla import AsyncKafkaProducer
    >>> async def main() -> str:
    ...     async with AsyncKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
    ...         place = await producer.send_and_wait("greetings", b"hello")
    ...     return place.topic
    >>> await main()
    'greetings'
    """

    def __init__(self, **configs: object) -> None:
        self._configs = configs
        self._producer: KafkaProducer | None = None

    async def start(self) -> None:
        """Connect to the cluster.

        >>> from ottla import AsyncKafkaProducer
        >>> producer = AsyncKafkaProducer(bootstrap_servers=bootstrap_servers)
        >>> await producer.start()
        >>> await producer.stop()
        """
        if self._producer is None:
            self._producer = await asyncio.to_thread(lambda: KafkaProducer(**self._configs))

    async def stop(self, timeout_s: float | None = None) -> None:
        """Wait for records in flight, and close.

        >>> from ottla import AsyncKafkaProducer
        >>> producer = AsyncKafkaProducer(bootstrap_servers=bootstrap_servers)
        >>> await producer.start()
        >>> await producer.stop(timeout_s=30)
        """
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close, timeout_s)

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record. Await the future that it returns for the record's place.

        >>> future = await producer.send("orders", b"five apples")
        >>> (await future).topic
        'orders'
        """
        send = functools.partial(self._started.send, topic, value, key, headers, partition, timestamp_ms)
        # Only a topic's first record waits for metadata. A full buffer blocks the loop on purpose: it is back-pressure.
        return send() if self._started.knows(topic) else await asyncio.to_thread(send)

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        >>> (await producer.send_and_wait("orders", b"five apples", key=b"alice")).partition
        0
        """
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is queued, and wait until every record sent before has its result.

        >>> await producer.flush()
        """
        await asyncio.to_thread(self._started.flush, timeout_s)

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic.

        >>> await producer.partitions_for("orders")
        {0}
        """
        return await asyncio.to_thread(self._started.partitions_for, topic)

    async def init_transactions(self) -> None:
        """Take over the transactional id, once before the first transaction.

        >>> from ottla import AsyncKafkaProducer
        >>> async def main() -> None:
        ...     async with AsyncKafkaProducer(
        ...         bootstrap_servers=bootstrap_servers, transactional_id="async-billing"
        ...     ) as producer:
        ...         await producer.init_transactions()
        >>> await main()
        """
        await asyncio.to_thread(self._started.init_transactions)

    async def begin_transaction(self) -> None:
        """Start a transaction.

        >>> from ottla import AsyncKafkaProducer
        >>> async def main() -> None:
        ...     async with AsyncKafkaProducer(
        ...         bootstrap_servers=bootstrap_servers, transactional_id="async-billing"
        ...     ) as producer:
        ...         await producer.init_transactions()
        ...         await producer.begin_transaction()
        ...         await producer.send("ledger", b"alice pays bob 5")
        ...         await producer.commit_transaction()
        >>> await main()
        """
        self._started.begin_transaction()

    async def commit_transaction(self) -> None:
        """Flush, and make all records of the transaction visible at once; see `begin_transaction`.

        >>> from ottla import AsyncKafkaProducer
        >>> async def main() -> None:
        ...     async with AsyncKafkaProducer(
        ...         bootstrap_servers=bootstrap_servers, transactional_id="async-billing"
        ...     ) as producer:
        ...         await producer.init_transactions()
        ...         await producer.begin_transaction()
        ...         await producer.commit_transaction()
        >>> await main()
        """
        await asyncio.to_thread(self._started.commit_transaction)

    async def abort_transaction(self) -> None:
        """Drop what is still queued. Readers of committed records skip what was already sent.

        >>> from ottla import AsyncKafkaProducer
        >>> async def main() -> None:
        ...     async with AsyncKafkaProducer(
        ...         bootstrap_servers=bootstrap_servers, transactional_id="async-billing"
        ...     ) as producer:
        ...         await producer.init_transactions()
        ...         await producer.begin_transaction()
        ...         await producer.abort_transaction()
        >>> await main()
        """
        await asyncio.to_thread(self._started.abort_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer's offsets with the transaction, or not at all.

        >>> from ottla import AsyncKafkaProducer, OffsetAndMetadata, TopicPartition
        >>> async def main() -> None:
        ...     async with AsyncKafkaProducer(
        ...         bootstrap_servers=bootstrap_servers, transactional_id="async-billing"
        ...     ) as producer:
        ...         await producer.init_transactions()
        ...         await producer.begin_transaction()
        ...         offsets = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
        ...         await producer.send_offsets_to_transaction(offsets, "billing")
        ...         await producer.commit_transaction()
        >>> await main()
        """
        await asyncio.to_thread(self._started.send_offsets_to_transaction, offsets, group_metadata)

    def metrics(self, raw: bool = False) -> Report | Metrics | None:
        """Counters by group; `raw` returns librdkafka's whole report.

        >>> "producer-metrics" in producer.metrics()
        True
        """
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
    """KafkaConsumer for asyncio. Start it with `async with` or `start`.

    >>> from ottla import AsyncKafkaConsumer
    >>> async def main() -> bytes:
    ...     async with AsyncKafkaConsumer(
    ...         "orders", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ...     ) as consumer:
    ...         async for record in consumer:
    ...             return record.value
    >>> await main()
    b'three apples'
    """

    def __init__(self, *topics: str, **configs: object) -> None:
        self._topics, self._configs = topics, configs
        self._consumer: KafkaConsumer | None = None
        self._thread = ThreadPoolExecutor(1, "ottla-consumer")

    async def start(self) -> None:
        """Connect to the cluster.

        >>> from ottla import AsyncKafkaConsumer
        >>> consumer = AsyncKafkaConsumer("orders", bootstrap_servers=bootstrap_servers)
        >>> await consumer.start()
        >>> await consumer.stop()
        """
        if self._consumer is None:
            self._consumer = await self._run(lambda: KafkaConsumer(*self._topics, **self._configs))

    async def stop(self, autocommit: bool = True) -> None:
        """Commit, if commits are automatic, and leave the group.

        >>> from ottla import AsyncKafkaConsumer
        >>> consumer = AsyncKafkaConsumer("orders", bootstrap_servers=bootstrap_servers)
        >>> await consumer.start()
        >>> await consumer.stop(autocommit=False)
        """
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
        """The next record, however long it takes.

        >>> await consumer.seek_to_beginning()
        >>> (await consumer.getone()).value
        b'three apples'
        """
        while True:
            for records in (await self.poll(_POLL_MS, 1)).values():
                return records[0]

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records by partition. Returns as soon as there are any, or when the time is over.

        >>> await consumer.seek_to_beginning()
        >>> batch = await consumer.poll(timeout_ms=30_000, max_records=1)
        >>> batch[first][0].offset
        0
        """
        return await self._run(self._started.poll, timeout_ms, max_records)

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose names match the pattern.

        >>> from ottla import AsyncKafkaConsumer
        >>> consumer = AsyncKafkaConsumer(bootstrap_servers=bootstrap_servers)
        >>> await consumer.start()
        >>> await consumer.subscribe(["orders"])
        >>> await consumer.stop()
        """
        await self._run(self._started.subscribe, topics, pattern, listener)

    async def unsubscribe(self) -> None:
        """Give up all topics and partitions.

        >>> from ottla import AsyncKafkaConsumer
        >>> consumer = AsyncKafkaConsumer("orders", bootstrap_servers=bootstrap_servers)
        >>> await consumer.start()
        >>> await consumer.unsubscribe()
        >>> await consumer.stop()
        """
        await self._run(self._started.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever a group does.

        >>> await consumer.assign([TopicPartition("orders", 0)])
        """
        await self._run(self._started.assign, partitions)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now.

        >>> consumer.assignment()
        {TopicPartition(topic='orders', partition=0)}
        """
        return self._started.assignment()

    def subscription(self) -> set[str] | None:
        """The topics of the subscription; None for partitions that were assigned.

        >>> consumer.subscription()
        """
        return self._started.subscription()

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset.

        >>> await consumer.seek(first, 0)
        """
        await self._run(self._started.seek, partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record that exists; in all assigned partitions if none is named.

        >>> await consumer.seek_to_beginning(first)
        """
        await self._run(self._started.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue with the next record that is written.

        >>> await consumer.seek_to_end()
        """
        await self._run(self._started.seek_to_end, *partitions)

    async def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record to be read.

        >>> await consumer.seek(first, 0)
        >>> await consumer.position(first)
        0
        """
        return await self._run(self._started.position, partition)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing of these partitions until `resume`; they stay assigned.

        >>> await consumer.pause(first)
        >>> await consumer.resume(first)
        """
        await self._run(self._started.pause, *partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again after `pause`.

        >>> await consumer.pause(first)
        >>> await consumer.resume(first)
        """
        await self._run(self._started.resume, *partitions)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused.

        >>> consumer.paused()
        set()
        """
        return self._started.paused()

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit for the group and wait: what has been consumed, or the offsets given.

        >>> from ottla import OffsetAndMetadata
        >>> await consumer.commit({first: OffsetAndMetadata(1)})
        """
        await self._run(self._started.commit, offsets)

    async def committed(
        self, partition: TopicPartition, metadata: bool = False
    ) -> int | OffsetAndMetadata | None:
        """The committed offset of the group; with `metadata`, also the note that came with it.

        >>> await consumer.committed(first)
        1
        """
        return await self._run(self._started.committed, partition, metadata)

    async def topics(self) -> set[str]:
        """All topics that this client may see, except internal ones.

        >>> "orders" in await consumer.topics()
        True
        """
        return await self._run(self._started.topics)

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """The topic's partitions; none if there is no such topic.

        >>> await consumer.partitions_for_topic("orders")
        {0}
        """
        return await self._run(self._started.partitions_for_topic, topic)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition.

        >>> (await consumer.beginning_offsets([first]))[first]
        0
        """
        return await self._run(self._started.beginning_offsets, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have.

        >>> (await consumer.end_offsets([first]))[first] >= 1
        True
        """
        return await self._run(self._started.end_offsets, partitions)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if there is none.

        >>> (await consumer.offsets_for_times({first: 0}))[first].offset
        0
        """
        return await self._run(self._started.offsets_for_times, timestamps)

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership, for `send_offsets_to_transaction`.

        >>> (await consumer.group_metadata()).group_id
        'readers'
        """
        return await self._run(self._started.group_metadata)

    def metrics(self, raw: bool = False) -> Report | Metrics | None:
        """Counters by group; `raw` returns librdkafka's whole report.

        >>> "consumer-metrics" in consumer.metrics()
        True
        """
        return self._started.metrics(raw)

    async def _run(
        self, call: Callable[Parameters, T], *args: Parameters.args, **named: Parameters.kwargs
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, functools.partial(call, *args, **named)
        )

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
