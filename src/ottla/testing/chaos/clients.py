"""The load of a run: producers, transactions, copiers and consumers. Each is a thread that records what it did and saw.

They are confluent-kafka clients with the timeouts of production and faster retries. They record and survive the
effects of faults (time-outs, fencing, aborts); only the checker decides what is wrong.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.testing.checks.history import (
    Commit,
    GroupOffsets,
    Outcome,
    Poll,
    Recorder,
    Renewal,
    Send,
    Transaction,
)

Settings = dict[str, str | int | float | bool]

QUICK: Final[Settings] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 3_000,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    # Otherwise librdkafka may wait forever for a coordinator that it knew before all brokers were down.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
_IN_FLIGHT: Final = 200
_READ_ROUND: Final = 100
_JUMP_EACH_S: Final = 20.0


def name(partition: TopicPartition | Message) -> str:
    """Return the name of a partition in the history."""
    if isinstance(partition, TopicPartition):
        return f"{partition.topic}-{partition.partition}"
    return f"{partition.topic()}-{partition.partition()}"


_NEW_EPOCH: Final = re.compile(
    r"(?P<topic>\S+) \[(?P<partition>\d+)\] changed PID\{Id:\d.*\} -> PID\{.*\} with base MsgId (?P<first>\d+)"
)
"""A log line of librdkafka about a new producer epoch. The first producer id replaces `PID{Invalid}`."""


class Worker(threading.Thread):
    """A client in its own thread: repeats `step` until the run is over, then calls `finish`."""

    def __init__(self, client: str, bootstrap: str, recorder: Recorder, seed: int) -> None:
        super().__init__(name=client, daemon=True)
        self.client = client
        self.bootstrap = bootstrap
        self.recorder = recorder
        self.rng = random.Random(f"{client}/{seed}")
        self.stopping = threading.Event()
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.step()
                except KafkaException:
                    self.again()
                    self.stopping.wait(0.2)
            self.finish()
        except BaseException as error:
            self.trouble = error
            raise

    def step(self) -> None:
        """Do a little work."""
        raise AssertionError("a worker has a step of its own")

    def again(self) -> None:
        """Recover after a failed call of the client."""

    def finish(self) -> None:
        """Wait for pending operations at the end."""


class Sender(Worker):
    """An idempotent producer that writes to any partition, many in flight."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        recorder: Recorder,
        seed: int,
        *,
        partitions: Sequence[TopicPartition],
        pause_s: float = 0.01,
    ) -> None:
        super().__init__(client, bootstrap, recorder, seed)
        self._partitions = partitions
        self._pause_s = pause_s
        self._numbers = itertools.count()
        self._under_way = threading.Semaphore(_IN_FLIGHT)
        self._given: dict[str, list[str]] = {}
        """The values given to this producer by partition; the first is its message 1."""
        self._producer = self._open()

    def _open(self) -> Producer:
        settings = {
            **QUICK,
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
            # librdkafka takes a new epoch when a batch arrived before one that was refused (NOT_ENOUGH_REPLICAS for
            # some moments, with several requests in flight). It reports that only in its log.
            "debug": "eos",
            "log_level": 7,
        }
        self._given = {}
        watcher = logging.Logger(self.client)
        watcher.addFilter(self._watch)
        return Producer(settings, logger=watcher)

    def _watch(self, record: logging.LogRecord) -> bool:
        found = _NEW_EPOCH.search(record.getMessage())
        if found is not None:
            partition = f"{found['topic']}-{found['partition']}"
            values = tuple(self._given.get(partition, [])[int(found["first"]) - 1 :])
            self.recorder.add(Renewal(self.client, time.monotonic(), partition, values))
        return False

    def again(self) -> None:
        """Create a new producer after a fatal error, and first wait for the records of the old one."""
        self._producer.flush(150)
        self._producer = self._open()

    def step(self) -> None:
        self._producer.poll(self._pause_s)
        if not self._under_way.acquire(blocking=False):
            return
        part = self.rng.choice(self._partitions)
        number, began = next(self._numbers), time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._under_way.release()
            self.recorder.add(
                Send(
                    self.client,
                    number,
                    name(part),
                    f"{self.client}/{number}",
                    Outcome.OK if error is None else Outcome.UNKNOWN,
                    -1 if error is not None else _acknowledged_offset(message),
                    began=began,
                    ended=time.monotonic(),
                )
            )

        value = f"{self.client}/{number}"
        self._producer.produce(part.topic, value.encode(), partition=part.partition, on_delivery=delivered)
        self._given.setdefault(name(part), []).append(value)

    def finish(self) -> None:
        self._producer.flush(150)


class Transactor(Worker):
    """Transactions of a few records to several partitions, some aborted; with `source` a copy of what a group reads.

    A copy's offsets are committed in its transaction, so that every record has one copy in the end.
    """

    def __init__(
        self,
        client: str,
        bootstrap: str,
        recorder: Recorder,
        seed: int,
        *,
        partitions: Sequence[TopicPartition],
        source: str | None = None,
        source_partitions: int = 0,
        aborts: float = 0.1,
    ) -> None:
        super().__init__(client, bootstrap, recorder, seed)
        self._partitions = partitions
        self._source = source
        self._source_partitions = source_partitions
        self._aborts = aborts
        self._numbers = itertools.count()
        self._transactions = itertools.count()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def step(self) -> None:
        producer = self._producer or self._open()
        taken: list[Message] = []
        if self._consumer is not None:
            taken = [each for each in self._consumer.consume(40, 0.3) if each.error() is None]
            if not taken:
                return
        elif self.stopping.wait(0.05):
            return
        self._transact(producer, taken)

    def _open(self) -> Producer:
        settings = {
            **QUICK,
            "bootstrap.servers": self.bootstrap,
            "transactional.id": self.client,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 1,
        }
        producer = Producer(settings)
        producer.init_transactions(20)
        if self._source is not None:
            self._consumer = Consumer(
                {
                    **QUICK,
                    "bootstrap.servers": self.bootstrap,
                    "group.id": self.client,
                    "group.instance.id": self.client,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 20_000,
                    "fetch.wait.max.ms": 50,
                }
            )
            self._consumer.subscribe([self._source])
        self._producer = producer
        return producer

    def again(self) -> None:
        """Create a new instance: its `init_transactions` completes an open transaction of the old one."""
        if self._consumer is not None:
            self._consumer.close()
        self._producer = self._consumer = None

    def _transact(self, producer: Producer, taken: list[Message]) -> None:
        transaction = f"{self.client}:{next(self._transactions)}"
        began = time.monotonic()
        outcome, ending = Outcome.UNKNOWN, 0.0
        try:
            producer.begin_transaction()
            self._send(producer, transaction, taken)
            if self._consumer is not None:
                reached = {each.partition() or 0: (each.offset() or 0) + 1 for each in taken}
                offsets = [TopicPartition(self._source or "", index, at) for index, at in reached.items()]
                producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), 20)
            if self.rng.random() < self._aborts:
                producer.abort_transaction(20)
                outcome = Outcome.FAILED
                # The records must be read again.
                self.again()
            else:
                ending = time.monotonic()
                producer.commit_transaction(30)
                outcome = Outcome.OK
        except KafkaException as failed:
            error = failed.args[0]
            if error.txn_requires_abort():
                # The commit was refused, and after the abort it cannot happen any more.
                producer.abort_transaction(20)
                outcome = Outcome.FAILED
            raise
        finally:
            if not ending:
                # The commit was never requested: the next instance aborts it.
                outcome = Outcome.FAILED
            reads = tuple((each.value() or b"").decode() for each in taken)
            group = self.client if self._source is not None else ""
            ended = time.monotonic()
            self.recorder.add(
                Transaction(
                    transaction, self.client, outcome, began, ending, ended, reads, group, _ranges(taken)
                )
            )

    def _send(self, producer: Producer, transaction: str, taken: list[Message]) -> None:
        values: list[tuple[TopicPartition, int, str]] = []
        """Where to, the number, and what it is a copy of."""
        if self._source is not None:
            for message in taken:
                original = (message.value() or b"").decode()
                part = self._partitions[(message.partition() or 0) % len(self._partitions)]
                values.append((part, next(self._numbers), original))
        else:
            for _ in range(self.rng.randrange(1, 7)):
                values.append((self.rng.choice(self._partitions), next(self._numbers), ""))
        outcomes: dict[int, tuple[Outcome, int]] = {}
        began = time.monotonic()
        for index, (part, number, _) in enumerate(values):

            def delivered(error: KafkaError | None, message: Message, index: int = index) -> None:
                if error is None:
                    outcomes[index] = (Outcome.OK, _acknowledged_offset(message))

            text = f"{self.client}/{number}".encode()
            producer.produce(part.topic, text, partition=part.partition, on_delivery=delivered)
        try:
            producer.flush(30)
        finally:
            for index, (part, number, original) in enumerate(values):
                outcome, offset = outcomes.get(index, (Outcome.UNKNOWN, -1))
                place, value, ended = name(part), f"{self.client}/{number}", time.monotonic()
                self.recorder.add(
                    Send(
                        self.client,
                        number,
                        place,
                        value,
                        outcome,
                        offset,
                        transaction,
                        began,
                        ended,
                        original,
                    )
                )

    def finish(self) -> None:
        self.again()
        # Complete the last transaction: readers would stop there.
        Producer(
            {**QUICK, "bootstrap.servers": self.bootstrap, "transactional.id": self.client}
        ).init_transactions(60)
        if self._source is None:
            return
        reader = Consumer({**QUICK, "bootstrap.servers": self.bootstrap, "group.id": self.client})
        wanted = [TopicPartition(self._source, index) for index in range(self._source_partitions)]
        found = reader.committed(wanted, 60)
        reader.close()
        self.recorder.add(GroupOffsets(self.client, {name(each): each.offset for each in found}))


class Reader(Worker):
    """A consumer of all partitions: assigned from the beginning, with a jump now and then, or a member of a group."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        recorder: Recorder,
        seed: int,
        *,
        partitions: Sequence[TopicPartition],
        group: str = "",
        committed: bool = True,
    ) -> None:
        super().__init__(client, bootstrap, recorder, seed)
        self._partitions = partitions
        self._group = group
        self._committed = committed
        self._sessions = itertools.count()
        self._session = next(self._sessions)
        self._since = time.monotonic()
        self._consumer: Consumer | None = None
        self._jump_at = time.monotonic() + _JUMP_EACH_S

    def _open(self) -> Consumer:
        self._next_session()
        consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": self.bootstrap,
                "group.id": self._group or "assigned",
                "isolation.level": "read_committed" if self._committed else "read_uncommitted",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1_000,
                "fetch.wait.max.ms": 100,
            }
        )
        if self._group:
            topics = sorted({part.topic for part in self._partitions})
            consumer.subscribe(topics, on_assign=self._rebalanced, on_revoke=self._rebalanced)
        else:
            consumer.assign([TopicPartition(part.topic, part.partition, 0) for part in self._partitions])
        self._consumer = consumer
        return consumer

    def _rebalanced(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._next_session()

    def _next_session(self) -> None:
        self._session = next(self._sessions)
        self._since = time.monotonic()

    def step(self) -> None:
        consumer = self._consumer or self._open()
        # A rebalance may come in between: a message belongs to the session in which it came.
        before, since = self._session, self._since
        messages = consumer.consume(_READ_ROUND, 0.2)
        session = before if before == self._session else f"{before}-{self._session}"
        records = tuple(
            (name(each), each.offset() or 0, (each.value() or b"").decode())
            for each in messages
            if each.error() is None
        )
        if not records:
            return
        ended = time.monotonic()
        self.recorder.add(
            Poll(self.client, str(session), self._committed, records, ended, self._group, since=since)
        )
        if self._group:
            self._commit(consumer, records)
        elif time.monotonic() > self._jump_at:
            self._jump(consumer)

    def _commit(self, consumer: Consumer, records: tuple[tuple[str, int, str], ...]) -> None:
        """Commit what was handed out. A commit that fails may still have taken effect."""
        reached = {partition: offset + 1 for partition, offset, _ in records}
        began, outcome = time.monotonic(), Outcome.UNKNOWN
        try:
            consumer.commit(
                offsets=[
                    TopicPartition(part.topic, part.partition, reached[name(part)])
                    for part in self._partitions
                    if name(part) in reached
                ],
                asynchronous=False,
            )
            outcome = Outcome.OK
        finally:
            for partition, offset in reached.items():
                ended = time.monotonic()
                self.recorder.add(Commit(self._group, partition, offset, outcome, began, ended))

    def _jump(self, consumer: Consumer) -> None:
        """Seek back by some records in one partition."""
        self._next_session()
        self._jump_at = time.monotonic() + _JUMP_EACH_S * (0.5 + self.rng.random())
        at = self.rng.choice(consumer.position(list(self._partitions)))
        back = max(at.offset - self.rng.randrange(500), 0)
        consumer.seek(TopicPartition(at.topic, at.partition, back))

    def finish(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def read_to_end(
    bootstrap: str,
    recorder: Recorder,
    partitions: Sequence[TopicPartition],
    *,
    committed: bool,
    timeout_s: float = 120.0,
) -> None:
    """Read every partition from its beginning to its end, at the end of a run."""
    consumer = Consumer(
        {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": "last",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    left = {name(part) for part in partitions}
    consumer.assign([TopicPartition(part.topic, part.partition, 0) for part in partitions])
    deadline = time.monotonic() + timeout_s
    try:
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(left)} could not be read to the end in {timeout_s} s")
            records = []
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    records.append((name(message), message.offset() or 0, (message.value() or b"").decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(name(message))
            if records:
                client = "last-committed" if committed else "last"
                recorder.add(
                    Poll(client, "0", committed, tuple(records), time.monotonic(), "last", final=True)
                )
    finally:
        consumer.close()


def _ranges(taken: Sequence[Message]) -> dict[str, tuple[int, int]]:
    """The offsets by partition that a copy takes in: first and next."""
    ranges: dict[str, tuple[int, int]] = {}
    for message in taken:
        offset = message.offset() or 0
        first, end = ranges.get(name(message), (offset, offset + 1))
        ranges[name(message)] = (min(first, offset), max(end, offset + 1))
    return ranges


def _acknowledged_offset(message: Message) -> int:
    """Return the offset of a record; -1 if librdkafka only knows from a later acknowledgement that it was written."""
    offset = message.offset()
    return -1 if offset is None else offset
