"""Members of a group as a user runs them: each in a thread of its own, polling, with what it owns and got in view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

TIMINGS = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 100}
"""They hear of a rebalance soon, and no busy machine makes one of them miss its session."""

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}
"""With these a test may have a member whose session ends soon."""


class Client(Protocol):
    """What the tests need of a consumer, whatever library it is of."""

    def poll(self) -> list[tuple[int, int, bytes]]:
        """Records as (partition, offset, value); serves the library's callbacks too."""

    def close(self) -> None: ...

    owned: frozenset[int]
    """Partitions, as of the last poll or callback."""


class Confluent:
    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **TIMINGS,
                **{key.replace("_", "."): value for key, value in options.items()},
            }
        )
        self.consumer.subscribe([topic])
        self.owned: frozenset[int] = frozenset()

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = []
        for message in self.consumer.consume(100, 0.05):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset(), message.value()))
        self.owned = frozenset(each.partition for each in self.consumer.assignment())
        return found

    def close(self) -> None:
        self.consumer.close()


class KafkaPython(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Polls long: where a poll ends just as a rebalance does, kafka-python 3.0 loses track of its assignment."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.owned: frozenset[int] = frozenset()
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=TIMINGS["session.timeout.ms"],
            heartbeat_interval_ms=TIMINGS["heartbeat.interval.ms"],
            **options,
        )
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned = frozenset()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.owned = frozenset(each.partition for each in assigned)

    def poll(self) -> list[tuple[int, int, bytes]]:
        polled = self.consumer.poll(timeout_ms=1500)
        return [(r.partition, r.offset, r.value) for records in polled.values() for r in records]

    def close(self) -> None:
        self.consumer.close()


CLIENTS: dict[str, Callable[..., Client]] = {"confluent": Confluent, "kafka-python": KafkaPython}


class Member:
    """A consumer in a thread, with what it got so far."""

    def __init__(self, make: Callable[[], Client], changed: threading.Condition) -> None:
        self.got: list[tuple[int, int, bytes]] = []
        self.error: Exception | None = None
        self.stopping = False
        self._make = make
        self._client: Client | None = None
        self._changed = changed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def owned(self) -> frozenset[int]:
        client = self._client
        return frozenset() if client is None else client.owned

    def _run(self) -> None:
        try:
            client = self._client = self._make()
            try:
                while not self.stopping:
                    records = client.poll()
                    with self._changed:
                        self.got += records
                        self._changed.notify_all()
            finally:
                client.close()
        except Exception as error:  # noqa: BLE001 - reported to the test by `stop`
            self.error = error
        finally:
            self._client = None

    def stop(self) -> None:
        self.stopping = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


class Team:
    """Members of one or more groups; `until` waits for what they come to."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._members: list[Member] = []

    def add(self, client: Callable[..., Client], *words: Any, **options: Any) -> Member:
        member = Member(lambda: client(*words, **options), self._changed)
        self._members.append(member)
        return member

    def until(self, reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not reached():
                for member in self._members:
                    if member.error is not None:
                        raise AssertionError("a member failed") from member.error
                if time.monotonic() > deadline:
                    raise AssertionError(f"not reached: {[(m.owned, len(m.got)) for m in self._members]}")
                # Assignments change without a word.
                self._changed.wait(0.02)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:
            member.stopping = True
        for member in self._members:
            member.stop()


def shared_out(members: Iterable[Member], partitions: int) -> bool:
    """Whether every partition has exactly one owner."""
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == list(range(partitions))


def make_topic(bootstrap: str, topic: str, partitions: int, values: Iterable[bytes] = ()) -> None:
    """A topic with these values, spread over the partitions in turn."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % partitions)
    assert producer.flush(60) == 0
