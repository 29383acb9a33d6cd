"""KafkaConsumer: kafka-python's interface, librdkafka's engine.

The engine fetches ahead, keeps the membership of the group and finds leaders; positions and commits are kept
here, so that what counts as consumed is what the program was given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException

from ottla.client import consumer_engine, metadata
from ottla.client.assignments import Assignments
from ottla.client.consumer_engine import EARLIEST, LATEST, Committer, Offsets
from ottla.client.consumer_records import record_maker
from ottla.client.consumer_settings import DEFAULTS, consumer_engine_settings, consumer_settings
from ottla.client.consumer_state import ConsumerState
from ottla.client.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    from_engine,
)
from ottla.client.futures import Future
from ottla.client.serializers import deserialize_function
from ottla.client.settings import common_engine_settings, with_engine_config
from ottla.client.statistics import INTERVAL_MS, Statistics
from ottla.client.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from ottla.errors import ErrorCode

_logger = logging.getLogger(__name__)

_SLICE_S = 0.25
_PASSING = {"_MAX_POLL_EXCEEDED", "_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class KafkaConsumer:
    """Reads records of topics, alone or as a member of a group. For one thread at a time."""

    DEFAULT_CONFIG = DEFAULTS

    def __init__(self, *topics: str, **configs: Any) -> None:
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
        # The end of a partition is told, so that positions pass the markers of transactions.
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

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Read these topics, or all whose names match the pattern. A group shares out their partitions; without
        one this consumer reads them all."""
        self._open()
        for topic in [topics] if isinstance(topics, str) else topics:
            metadata.check_topic_name(topic)
        if listener is not None and not hasattr(listener, "on_partitions_assigned"):
            raise TypeError(f"listener must be a ConsumerRebalanceListener, not {listener!r}")
        self._assignments.subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; those that matched so far, if by pattern."""
        return None if self._state.subscribed is None else set(self._state.subscribed)

    def unsubscribe(self) -> None:
        """Give up topics and partitions."""
        self._commit_consumed()
        self._assignments.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever a group does."""
        self._open()
        wanted = [_checked(tp) for tp in partitions]
        if not wanted:
            self.unsubscribe()
            return
        self._commit_consumed()
        self._state.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions read at present."""
        return set(self._state.assigned)

    # -- reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records by partition. Returns as soon as there are any, or when the time is over."""
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
        """Wait until there is something in the buffer, or the time is over."""
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
                    messages = [] if first is None else [first, *self._consume(count - 1, 0)]
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
        """Let the engine speak; records that come along are kept."""
        message = self._engine.poll(timeout_s)
        if message is not None:
            self._state.buffer.append(message)

    def _consume(self, count: int, timeout_s: float) -> list[Any]:
        return self._engine.consume(count, timeout_s) if count > 0 else []

    def _keep_up(self) -> None:
        """What has to be done between reads."""
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

    def _take_note(self, message: Any) -> None:
        """An event among the records: the end of a partition, an offset that is not there, a failure."""
        error = message.error()
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
        """The offset of the next record to be read."""
        self._assigned(partition)
        self._assignments.find_positions()
        return self._state.positions.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from this offset."""
        _checked(partition)
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("an offset is an integer of 0 or more")
        if partition not in self._state.assigned:
            raise ValueError(f"{partition} is not assigned")
        self._assignments.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the first record there is; of all assigned partitions, if none is named."""
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on with the next record that is written."""
        self._seek_to("latest", partitions)

    def _seek_to(self, place: str, partitions: tuple[TopicPartition, ...]) -> None:
        wanted = [_checked(tp) for tp in partitions] or sorted(self._state.assigned)
        if not wanted:
            raise ValueError("no partitions are assigned")
        for tp in wanted:
            if tp not in self._state.assigned:
                raise ValueError(f"{tp} is not assigned")
        for tp in wanted:
            self._state.reset(tp, place)

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing of these until they are resumed; they stay assigned."""
        self._switch(partitions, self._state.pause, self._engine.pause)

    def resume(self, *partitions: TopicPartition) -> None:
        self._switch(partitions, self._state.resume, self._engine.resume)

    def paused(self) -> set[TopicPartition]:
        return set(self._state.paused)

    def _switch(
        self,
        partitions: tuple[TopicPartition, ...],
        note: Callable[[TopicPartition], None],
        tell: Callable[[list[Any]], Any],
    ) -> None:
        for tp in partitions:
            self._assigned(tp)
        for tp in partitions:
            note(tp)
        if live := [tp for tp in partitions if self._assignments.is_live(tp)]:
            tell(consumer_engine.theirs(dict.fromkeys(live, 0)))

    # -- commits

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit for the group and wait: what has been consumed, or the offsets given."""
        self._in_group()
        consumer_engine.commit(self._engine, self._state.consumed() if offsets is None else offsets)

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., Any] | None = None
    ) -> Future[Offsets]:
        """Commit in the background; `callback(offsets, response_or_exception)` and the future tell how it went."""
        self._in_group()
        wanted = self._state.consumed() if offsets is None else offsets
        return self._committer.commit(
            self._engine, wanted, callback or self.config["default_offset_commit_callback"]
        )

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """What the group has committed, with the note that came with it if `metadata` is wanted."""
        self._in_group()
        _checked(partition)
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
        """This consumer's membership, for `KafkaProducer.send_offsets_to_transaction`."""
        if self.config["group_id"] is None:
            return ConsumerGroupMetadata()
        return ConsumerGroupMetadata(
            group_id=self.config["group_id"],
            member_id=self._engine.memberid() or "",
            group_instance_id=self.config["group_instance_id"],
            state=MemberState.STABLE if self._state.assigned else MemberState.UNJOINED,
            token=self._engine.consumer_group_metadata(),
        )

    # -- questions

    def topics(self) -> set[str]:
        """All topics that this client may see, but those of the brokers' own."""
        return set(metadata.all_topics(self._engine, self._timeout_s)) - metadata.INTERNAL_TOPICS

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The topic's partitions; none, if there is no such topic."""
        return set(metadata.leaders(self._engine, topic, self._timeout_s) or ())

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets_at(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have."""
        return self._offsets_at(partitions, LATEST, timeout_ms)

    def _offsets_at(
        self, partitions: Iterable[TopicPartition], at: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        return consumer_engine.list_offsets(self._engine, dict.fromkeys(partitions, at), timeout_s)

    def offsets_for_times(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None where there is none."""
        for tp, at in timestamps.items():
            if at < 0:
                raise ValueError(f"the time for {tp} is {at}, and a time is not negative")
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        settings = common_engine_settings(self.config)
        settings.pop("max.in.flight.requests.per.connection", None)
        return consumer_engine.records_at_times(
            with_engine_config(settings, self.config),
            {tp: int(at) for tp, at in timestamps.items()},
            self.config["isolation_level"],
            timeout_s,
        )

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as of the last fetch."""
        self._assigned(partition)
        try:
            found = self._engine.get_watermark_offsets(consumer_engine.theirs({partition: 0})[0], cached=True)
        except KafkaException:
            return None
        return found[1] if found is not None and found[1] >= 0 else None

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster has been reached; KafkaTimeoutError where it is not in time. The engine asks anew
        each time, `refresh` or not."""
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self.bootstrap_connected():
            if deadline is not None and time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"no broker was reached within {timeout_ms} ms")

    def bootstrap_connected(self) -> bool:
        """Whether the cluster can be reached."""
        try:
            return bool(self._engine.list_topics("", timeout=1).brokers)
        except KafkaException:
            return False

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Counters by group; `raw` gives the engine's whole report. None if they are switched off."""
        if not self.config["metrics_enabled"]:
            return None
        return self._statistics.raw() if raw else self._statistics.consumer_metrics({})

    # -- the end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit what was consumed, if that is done automatically, and leave the group."""
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
        # After an exception nobody knows whether the last record was dealt with.
        self.close(autocommit=kind is None)

    def _open(self) -> None:
        if self._closed:
            raise IllegalStateError("the consumer is closed")

    def _in_group(self) -> None:
        self._open()
        if self.config["group_id"] is None:
            raise IllegalStateError("commits need a group_id")

    def _assigned(self, partition: TopicPartition) -> None:
        _checked(partition)
        if partition not in self._state.assigned:
            raise IllegalStateError(f"{partition} is not assigned")


def _checked(partition: Any) -> TopicPartition:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"a partition is a TopicPartition, not {partition!r}")
    return partition


def _log_failure(offsets: Offsets, result: Any) -> None:
    if isinstance(result, BaseException):
        _logger.warning("an automatic commit failed: %s", result)
