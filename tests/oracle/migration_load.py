"""Clients that go on while a cluster's nodes are replaced: records, transactions, a consumer group and a queue.

Each keeps what the brokers have promised, so that a test can hold them to it at the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.records.batch import iter_batches

ORDERS, LEFT, RIGHT, JOBS = "orders", "left", "right", "jobs"
PARTITIONS = 3
GROUP, QUEUE = "readers", "workers"
_PAUSE_S = 0.02
_PATIENCE_S = 180.0
_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class _Worker:
    """A thread that repeats a step until it is asked to end. A failure ends it, and the test hears of it."""

    def __init__(self, name: str) -> None:
        self.steps = 0
        self.failure: BaseException | None = None
        self.ending = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self.ending.is_set():
                self.step()
            self.finish()
        except BaseException as error:  # noqa: BLE001 - reported to the test by `join`
            self.failure = error
        with self._news:
            self._news.notify_all()

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """What is left to do when the load ends."""

    def done(self, count: int = 1) -> None:
        with self._news:
            self.steps += count
            self._news.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Until so many more steps have succeeded: the load's own measure of time."""
        with self._news:
            goal = self.steps + count
            reached = self._news.wait_for(lambda: self.failure or self.steps >= goal, timeout=_PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        assert reached, f"{self._thread.name}: no {count} more steps within {_PATIENCE_S} s"

    def join(self) -> None:
        self.ending.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        if self.failure is not None:
            raise self.failure


class Writer(_Worker):
    """An idempotent producer with acks=all on two topics; it keeps what was acknowledged.

    librdkafka begins a new producer epoch when one partition reports a gap in its sequences, and then sends again what
    other partitions have taken without an answer (confluentinc/librdkafka#4953). `ProducerBatch` shows such records.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__("writer")
        self.acknowledged: dict[str, list[int]] = {ORDERS: [], JOBS: []}
        self._number = 0
        self._refused: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **_QUICK}
        )

    def step(self) -> None:
        for topic in (ORDERS, JOBS):
            self._producer.produce(
                topic, b"%d" % self._number, partition=self._number % PARTITIONS, on_delivery=self._delivered
            )
        self._number += 1
        self._producer.poll(_PAUSE_S)
        assert not self._refused, self._refused

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
            return
        self.acknowledged[message.topic() or ""].append(int(message.value() or b""))
        self.done()

    def finish(self) -> None:
        assert self._producer.flush(_PATIENCE_S) == 0
        assert not self._refused, self._refused


class Transactor(_Worker):
    """Writes one record to each of two topics in a transaction; every fifth transaction is aborted on purpose."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("transactor")
        self.committed: list[int] = []
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "mover",
                "transaction.timeout.ms": 60_000,
                **_QUICK,
            }
        )
        self._repeat(lambda: self._producer.init_transactions(_PATIENCE_S))

    def step(self) -> None:
        number, self._number = self._number, self._number + 1
        self._producer.begin_transaction()
        try:
            for topic in (LEFT, RIGHT):
                self._producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
            if number % 5 == 4:
                self._repeat(lambda: self._producer.abort_transaction(_PATIENCE_S))
            else:
                self._repeat(lambda: self._producer.commit_transaction(_PATIENCE_S))
                self.committed.append(number)
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise
            self._repeat(lambda: self._producer.abort_transaction(_PATIENCE_S))
        else:
            self.done()
        self.ending.wait(_PAUSE_S)

    @staticmethod
    def _repeat(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    raise


class Reader(_Worker):
    """A member of a consumer group. What it has committed must never come again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("reader")
        self.seen: Counter[int] = Counter()
        self.committed: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **_QUICK,
            }
        )
        self._consumer.subscribe([ORDERS])

    def step(self) -> None:
        self.read()

    def read(self) -> int:
        came = [each for each in self._consumer.consume(200, 0.2) if each.error() is None]
        for each in came:
            partition, offset = each.partition() or 0, each.offset() or 0
            place = f"offset {offset} of {partition} came after {self.committed.get(partition)} was committed"
            assert offset >= self.committed.get(partition, 0), place
            self.seen[int(each.value() or b"")] += 1
        if came:
            self._commit()
            self.done(len(came))
        return len(came)

    def _commit(self) -> None:
        try:
            for place in self._consumer.commit(asynchronous=False) or ():
                # A partition of which nothing was read since the last rebalance has no offset to commit.
                if place.error is None and place.offset >= 0:
                    self.committed[place.partition] = place.offset
        except KafkaException:
            # The coordinator moves. What was not committed may come again, and the next commit covers it.
            return

    def drain(self, wanted: set[int]) -> None:
        """Read until everything wanted was seen and committed."""
        for _ in range(500):
            self.read()
            if self.seen.keys() >= wanted:
                self._commit()
                return
        raise AssertionError(f"{len(wanted - self.seen.keys())} records did not come")

    def close(self) -> None:
        self._consumer.close()


class QueueMember(_Worker):
    """A member of a share group. What it has acknowledged must never come again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("queue member")
        self.seen: Counter[int] = Counter()
        self.accepted: set[tuple[int, int]] = set()
        """Partition and offset of what was acknowledged."""
        self._consumer: Any = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": QUEUE, **_QUICK}
        )
        self._consumer.subscribe([JOBS])

    def step(self) -> None:
        self.work()

    def work(self) -> None:
        came = [each for each in self._consumer.poll(0.2) or [] if each.error() is None]
        places = {(each.partition(), each.offset()) for each in came}
        again = places & self.accepted
        assert not again, f"{sorted(again)[:5]} came after they were acknowledged"
        self.seen.update({int(each.value()) for each in came})
        if not came:
            return
        refused = {place.partition for place in _failed(self._consumer)}
        self.accepted |= {place for place in places if place[0] not in refused}
        self.done(len(came))

    def drain(self, wanted: set[int]) -> None:
        """Work until everything wanted came. What was acknowledged without an answer may come again, or not."""
        for _ in range(500):
            self.work()
            if self.seen.keys() >= wanted:
                return
        lost = wanted - self.seen.keys()
        raise AssertionError(f"{len(lost)} jobs did not come: {sorted(lost)[:10]}")

    def close(self) -> None:
        self._consumer.close()


def _failed(consumer: Any) -> list[TopicPartition]:
    """Acknowledge what was delivered; the partitions where that failed."""
    try:
        results = consumer.commit_sync() or {}
    except KafkaException:
        return [TopicPartition(JOBS, partition) for partition in range(PARTITIONS)]
    return [place for place, error in results.items() if error is not None]


@contextmanager
def running(*workers: _Worker) -> Iterator[None]:
    """Run the workers while the block runs; they are asked to end even if it fails."""
    for worker in workers:
        worker.start()
    try:
        yield
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.ending.set()


def read_committed(bootstrap: str, topic: str) -> dict[int, set[str]]:
    """Every record of a topic that a reader of committed records sees, with the places where it stands."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            **_QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, set[str]] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, f"{topic} does not end: {len(found)} records came"
        error = message.error()
        if error is None:
            place = f"{message.partition()}@{message.offset()}"
            found.setdefault(int(message.value() or b""), set()).add(place)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
    consumer.close()
    return found


class ProducerBatch(NamedTuple):
    """How a record came into a log: the producer, its epoch, and the record's sequence number."""

    producer_id: int
    epoch: int
    sequence: int


def producer_batches(data: Path, topic: str) -> dict[str, ProducerBatch]:
    """The `ProducerBatch` of each place in a node's files. An epoch's sequences must have no gap and no repetition."""
    found: dict[str, ProducerBatch] = {}
    for partition in range(PARTITIONS):
        following: Counter[tuple[int, int]] = Counter()
        for segment in sorted((data / f"{topic}-{partition}").glob("*.log")):
            for _, header in iter_batches(segment.read_bytes()):
                producer = header.producer_id, header.producer_epoch
                where = f"{topic}-{partition}@{header.base_offset}"
                assert header.base_sequence == following[producer], (
                    f"{where}: a gap or repetition of {producer}"
                )
                following[producer] += header.last_offset_delta + 1
                for delta in range(header.last_offset_delta + 1):
                    place = f"{partition}@{header.base_offset + delta}"
                    found[place] = ProducerBatch(*producer, header.base_sequence + delta)
    return found
