"""KafkaConsumer: kafka-python's interface, librdkafka's engine.

The engine fetches ahead, keeps the membership of the group and finds leaders; positions and commits are kept
here, so that what counts as consumed is what the program was given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ottla.client import consumer_engine, metadata
from ottla.client.assignments import Assignments
from ottla.client.consumer_engine import Committer, Offsets
from ottla.client.consumer_lookups import ConsumerLookups, checked
from ottla.client.consumer_records import record_maker
from ottla.client.consumer_settings import DEFAULTS, consumer_engine_settings, consumer_settings
from ottla.client.consumer_state import ConsumerState
from ottla.client.errors import (
    IllegalStateError,
    KafkaError,
    RetriableError,
    from_engine,
)
from ottla.client.futures import Future
from ottla.client.serializers import deserialize_function
from ottla.client.statistics import INTERVAL_MS, Statistics
from ottla.client.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    MemberState,
    OffsetAndMetadata,
    TopicPartition,
)
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as EnginePartition

    from ottla.client.engine_types import EngineMessage
    from ottla.client.listeners import ConsumerRebalanceListener

_logger = logging.getLogger(__name__)

_SLICE_S = 0.25
_PASSING = {"_MAX_POLL_EXCEEDED", "_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class KafkaConsumer(ConsumerLookups):
    """Reads records of topics, alone or as a member of a group. For one thread at a time.

    Settings have kafka-python's names, as in `bootstrap_servers`, `group_id` and `auto_offset_reset`.

    >>> from ottla import KafkaConsumer
    >>> with KafkaConsumer(
    ...     "orders",
    ...     bootstrap_servers=bootstrap_servers,
    ...     auto_offset_reset="earliest",
    ...     value_deserializer=bytes.decode,
    ... ) as consumer:
    ...     record = next(consumer)
    >>> record.topic, record.offset, record.value
    ('orders', 0, 'three apples')
    """

    DEFAULT_CONFIG = DEFAULTS

    def __init__(self, *topics: str, **configs: object) -> None:
        self.config = consumer_settings(configs)
        self._make = record_maker(
            deserialize_function(self.config["key_deserializer"], "key_deserializer"),
            deserialize_function(self.config["value_deserializer"], "value_deserializer"),
        )
        self._statistics = Statistics()
        self._closed = False
        self._several_topics = True
        self._state = ConsumerState()
        self._timeout_s = self.config["request_timeout_ms"] / 1000
        engine_settings = consumer_engine_settings(self.config)
        # The engine reports the end of a partition, so that positions pass the markers of transactions.
        engine_settings["enable.partition.eof"] = True
        if self.config["metrics_enabled"]:
            engine_settings["statistics.interval.ms"] = INTERVAL_MS
            engine_settings["stats_cb"] = self._statistics.receive
        self._committer = Committer(self._pump)
        engine_settings["on_commit"] = self._committer.committed
        self._engine = consumer_engine.open_consumer(engine_settings)
        self._assignments = Assignments(self._engine, self._state, self.config, self._commit_before_rebalance)
        self._auto_commit = self.config["enable_auto_commit"] and self.config["group_id"] is not None
        self._commit_interval_s = self.config["auto_commit_interval_ms"] / 1000
        self._commit_at = time.monotonic() + self._commit_interval_s
        try:
            metadata.wait_for_cluster(self._engine, self.config, engine_settings["logger"])
            if topics:
                self.subscribe(topics)
        except BaseException:
            self._closed = True
            self._engine.close()
            raise

    # -- what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose names match the pattern. A group shares their partitions among its members;
        without a group this consumer reads them all.

        >>> from ottla import KafkaConsumer
        >>> with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        ...     consumer.subscribe(pattern="^order.*")
        """
        self._open()
        for topic in [topics] if isinstance(topics, str) else topics:
            metadata.check_topic_name(topic)
        if listener is not None and not hasattr(listener, "on_partitions_assigned"):
            raise TypeError(f"listener must be a ConsumerRebalanceListener, not {listener!r}")
        self._assignments.subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """The topics of the subscription; with a pattern, those that have matched so far.

        >>> from ottla import KafkaConsumer
        >>> with KafkaConsumer("orders", bootstrap_servers=bootstrap_servers) as consumer:
        ...     consumer.subscription()
        {'orders'}
        """
        return None if self._state.subscribed is None else set(self._state.subscribed)

    def unsubscribe(self) -> None:
        """Give up all topics and partitions.

        >>> from ottla import KafkaConsumer
        >>> with KafkaConsumer("orders", bootstrap_servers=bootstrap_servers) as consumer:
        ...     consumer.unsubscribe()
        """
        self._commit_consumed()
        self._assignments.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever a group does.

        >>> consumer.assign([TopicPartition("orders", 0)])
        """
        self._open()
        wanted = [checked(tp) for tp in partitions]
        if not wanted:
            self.unsubscribe()
            return
        self._commit_consumed()
        self._state.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now.

        >>> consumer.assignment()
        {TopicPartition(topic='orders', partition=0)}
        """
        return set(self._state.assigned)

    # -- reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records by partition. Returns as soon as there are any, or when the time is over.

        >>> consumer.seek_to_beginning()
        >>> [records] = consumer.poll(timeout_ms=30_000, max_records=1).values()
        >>> records[0].value
        b'three apples'
        """
        if timeout_ms < 0:
            raise ValueError("timeout_ms must not be negative")
        if max_records is None:
            max_records = self.config["max_poll_records"]
        if not isinstance(max_records, int):
            raise TypeError("max_records must be an integer")
        if max_records <= 0:
            raise ValueError("max_records must be positive")
        self._open()
        deadline = time.monotonic() + timeout_ms / 1000
        self._fill(max_records, deadline)
        return self._take(max_records)

    def _take(self, count: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Hand out fetched records, by partition."""
        state, make = self._state, self._make
        several = self._several_topics
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        into: list[ConsumerRecord] = []
        partition, topic = -1, ""
        for _ in range(min(count, len(state.buffer))):
            if not state.buffer:
                break
            message = state.buffer.popleft()
            if message.error() is not None:
                self._take_note(message)
                continue
            if message.partition() != partition or (several and message.topic() != topic):
                state.settle()
                topic, partition = message.topic(), message.partition()
                into = records.setdefault(TopicPartition(topic, partition), [])
            into.append(make(message))
            state.latest = message
        return records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """All records as they come; the end comes after `consumer_timeout_ms` without one."""
        state, make = self._state, self._make
        while True:
            partition, topic = -1, ""
            while state.buffer:
                message = state.buffer.popleft()
                if message.error() is not None:
                    self._take_note(message)
                    continue
                if message.partition() != partition or (self._several_topics and message.topic() != topic):
                    state.settle()
                    topic, partition = message.topic(), message.partition()
                record = make(message)
                state.latest = message
                yield record
            if not self._await_records():
                return

    def __next__(self) -> ConsumerRecord:
        """The next record; the end comes after `consumer_timeout_ms` without one."""
        return next(iter(self))

    def _await_records(self) -> bool:
        """Whether there are records within `consumer_timeout_ms`."""
        if self._closed:
            return False
        deadline = time.monotonic() + self.config["consumer_timeout_ms"] / 1000
        while not self._closed:
            self._fill(self.config["max_poll_records"], deadline)
            if self._state.buffer:
                return True
            if time.monotonic() >= deadline:
                break
        return False

    def _fill(self, count: int, deadline: float) -> None:
        """Wait until the buffer has a record, or the time is over."""
        while True:
            self._keep_up()
            if self._state.buffer:
                return
            assigned = self._state.assigned
            messages = self._consume(count, 0)
            if not messages:
                left = min(_SLICE_S, deadline - time.monotonic())
                if left > 0:
                    first = self._engine.poll(left)
                    messages = (
                        [] if first is None else [cast("EngineMessage", first), *self._consume(count - 1, 0)]
                    )
            state = self._state
            if state.assigned is not assigned:
                messages = [one for one in messages if one.error() is not None or state.reads(one)]
            self._several_topics = len({tp.topic for tp in state.assigned}) > 1
            state.buffer.extend(messages)
            for tp in state.paused:
                state.pause(tp)
            while state.buffer and state.buffer[0].error() is not None:
                self._take_note(state.buffer.popleft())
            if state.buffer or time.monotonic() >= deadline or self._closed:
                return

    def _pump(self, timeout_s: float) -> None:
        """Let the engine deliver its events; records that arrive with them are kept."""
        message = self._engine.poll(timeout_s)
        if message is not None:
            self._state.buffer.append(cast("EngineMessage", message))

    def _consume(self, count: int, timeout_s: float) -> list[EngineMessage]:
        return cast("list[EngineMessage]", self._engine.consume(count, timeout_s)) if count > 0 else []

    def _keep_up(self) -> None:
        """Do the work that is due between reads: assignments and automatic commits."""
        try:
            self._assignments.prepare()
        except RetriableError as error:
            _logger.warning("not ready to read yet: %s", error)
        if self._auto_commit and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._commit_interval_s
            if offsets := self._state.consumed():
                self._committer.commit(
                    self._engine, offsets, self.config["default_offset_commit_callback"] or _log_failure
                )

    def _take_note(self, message: EngineMessage) -> None:
        """Handle an event among the records: the end of a partition, a missing offset, a failure."""
        error = message.error()
        assert error is not None
        name = error.name()
        tp = None if message.topic() is None else TopicPartition(message.topic(), message.partition())
        if name == "_PARTITION_EOF":
            if tp in self._state.positions and message.offset() > self._state.positions[tp]:
                self._state.positions[tp] = message.offset()
        elif name == "_AUTO_OFFSET_RESET" and tp is not None:
            if tp not in self._state.assigned:
                return
            if self.config["auto_offset_reset"] not in ("earliest", "latest"):
                raise from_engine(error)
            _logger.info("%s-%d has no offset %d", tp.topic, tp.partition, message.offset())
            self._state.reset(tp, self.config["auto_offset_reset"])
        elif error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or name in _PASSING:
            _logger.warning("%s", error.str())
        else:
            raise from_engine(error)

    # -- positions

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the next record to be read.

        >>> consumer.seek(first, 0)
        >>> consumer.position(first)
        0
        """
        self._assigned(partition)
        self._assignments.find_positions()
        return self._state.positions.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset.

        >>> consumer.seek(first, 0)
        """
        checked(partition)
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("an offset is an integer of 0 or more")
        if partition not in self._state.assigned:
            raise ValueError(f"{partition} is not assigned")
        self._assignments.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record that exists; in all assigned partitions if none is named.

        >>> consumer.seek_to_beginning(first)
        """
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue with the next record that is written.

        >>> consumer.seek_to_end()
        """
        self._seek_to("latest", partitions)

    def _seek_to(self, place: str, partitions: tuple[TopicPartition, ...]) -> None:
        wanted = [checked(tp) for tp in partitions] or sorted(self._state.assigned)
        if not wanted:
            raise ValueError("no partitions are assigned")
        for tp in wanted:
            if tp not in self._state.assigned:
                raise ValueError(f"{tp} is not assigned")
        for tp in wanted:
            self._state.reset(tp, place)

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing of these partitions until `resume`; they stay assigned.

        >>> consumer.pause(first)
        >>> consumer.paused() == {first}
        True
        >>> consumer.resume(first)
        """
        self._switch(partitions, self._state.pause, self._engine.pause)

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again after `pause`.

        >>> consumer.pause(first)
        >>> consumer.resume(first)
        """
        self._switch(partitions, self._state.resume, self._engine.resume)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused.

        >>> consumer.paused()
        set()
        """
        return set(self._state.paused)

    def _switch(
        self,
        partitions: tuple[TopicPartition, ...],
        note: Callable[[TopicPartition], None],
        switch: Callable[[list[EnginePartition]], object],
    ) -> None:
        for tp in partitions:
            self._assigned(tp)
        for tp in partitions:
            note(tp)
        if live := [tp for tp in partitions if self._assignments.is_live(tp)]:
            switch(consumer_engine.theirs(dict.fromkeys(live, 0)))

    # -- commits

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit for the group and wait: what has been consumed, or the offsets given.

        >>> from ottla import OffsetAndMetadata
        >>> consumer.commit({first: OffsetAndMetadata(1)})
        """
        self._in_group()
        consumer_engine.commit(self._engine, self._state.consumed() if offsets is None else offsets)

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., object] | None = None
    ) -> Future[Offsets]:
        """Commit in the background; `callback(offsets, response_or_exception)` and the future report the result.

        >>> from ottla import OffsetAndMetadata
        >>> future = consumer.commit_async({first: OffsetAndMetadata(1)})
        >>> future.get(timeout=30)[first].offset
        1
        """
        self._in_group()
        wanted = self._state.consumed() if offsets is None else offsets
        return self._committer.commit(
            self._engine, wanted, callback or self.config["default_offset_commit_callback"]
        )

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """The committed offset of the group; with `metadata`, also the note that came with it.

        >>> consumer.committed(first)
        1
        """
        self._in_group()
        checked(partition)
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        found = consumer_engine.committed(self._engine, [partition], timeout_s).get(partition)
        return found if found is None or metadata else found.offset

    def _commit_consumed(self) -> None:
        if self._auto_commit and (offsets := self._state.consumed()):
            try:
                consumer_engine.commit(self._engine, offsets)
            except KafkaError as error:
                _logger.warning("the offsets consumed so far were not committed: %s", error)

    def _commit_before_rebalance(self) -> None:
        if not self._closed:
            self._commit_consumed()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership, for `KafkaProducer.send_offsets_to_transaction`.

        >>> consumer.group_metadata().group_id
        'readers'
        """
        if self.config["group_id"] is None:
            return ConsumerGroupMetadata()
        return ConsumerGroupMetadata(
            group_id=self.config["group_id"],
            member_id=self._engine.memberid() or "",
            group_instance_id=self.config["group_instance_id"],
            state=MemberState.STABLE if self._state.assigned else MemberState.UNJOINED,
            token=self._engine.consumer_group_metadata(),
        )

    # -- the end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit what was consumed, if commits are automatic, and leave the group.

        >>> from ottla import KafkaConsumer
        >>> consumer = KafkaConsumer("orders", bootstrap_servers=bootstrap_servers)
        >>> consumer.close()
        """
        if self._closed:
            return
        if autocommit:
            self._commit_consumed()
        self._committer.wait(self._timeout_s if timeout_ms is None else timeout_ms / 1000)
        self._closed = True
        self._assignments.close()
        self._engine.close()
        for one in (self.config["key_deserializer"], self.config["value_deserializer"]):
            if hasattr(one, "close"):
                one.close()

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception it is unknown whether the last record was processed.
        self.close(autocommit=kind is None)

    def _open(self) -> None:
        if self._closed:
            raise IllegalStateError("the consumer is closed")

    def _in_group(self) -> None:
        self._open()
        if self.config["group_id"] is None:
            raise IllegalStateError("commits need a group_id")


def _log_failure(offsets: Offsets, result: object) -> None:
    if isinstance(result, BaseException):
        _logger.warning("an automatic commit failed: %s", result)
