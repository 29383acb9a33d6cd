"""KafkaProducer: kafka-python's interface, librdkafka's engine.

Records are queued, batched, sent and retried by the engine's own threads; here are the words around it:
serializers, partitioners, futures, transactions.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException, Producer

from ottla.client import metadata
from ottla.client.errors import BrokerResponseError, IllegalStateError, KafkaTimeoutError, from_engine
from ottla.client.futures import FutureRecordMetadata, failed_send
from ottla.client.partitioners import Cluster, choose_function
from ottla.client.producer_settings import DEFAULTS, producer_engine_settings, producer_settings
from ottla.client.serializers import serialize_function
from ottla.client.statistics import INTERVAL_MS, Statistics
from ottla.client.structs import ConsumerGroupMetadata, Headers, OffsetAndMetadata, TopicPartition
from ottla.client.transactions import Transactions

_logger = logging.getLogger(__name__)

_SERVE_S = 0.1
_GOODBYE_S = 1.0
_ids = itertools.count(1)
_BYTES = (bytes, type(None))


class KafkaProducer:
    """Writes records to topics. One producer may be shared by all threads of a program."""

    DEFAULT_CONFIG = DEFAULTS

    def __init__(self, **configs: Any) -> None:
        self.config = producer_settings(configs)
        if "client_id" not in configs:
            self.config["client_id"] = f"ottla-producer-{next(_ids)}"
        self._serialize_key = serialize_function(self.config["key_serializer"], "key_serializer")
        self._serialize_value = serialize_function(self.config["value_serializer"], "value_serializer")
        self._choose = choose_function(self.config["partitioner"])
        self._statistics = Statistics()
        self._plain = self._serialize_key is None and self._serialize_value is None and self._choose is None
        self._leaders: dict[str, dict[int, int]] = {}
        self._cluster = Cluster(self._leaders)
        self._asked_at: dict[str, float] = {}
        self._closed = False

        engine_settings = producer_engine_settings(self.config)
        if self.config["metrics_enabled"]:
            engine_settings["statistics.interval.ms"] = INTERVAL_MS
            engine_settings["stats_cb"] = self._statistics.receive
        self._engine = _engine(engine_settings)
        self._produce = self._engine.produce
        self._flush = functools.partial(_flush, self._engine)
        stop, self._progress = threading.Event(), threading.Event()
        server = threading.Thread(
            target=_serve, args=(self._engine, stop, self._progress), name="ottla-producer", daemon=True
        )
        server.start()
        # Whoever forgets to close a producer still gets a second for what is on its way.
        self._goodbye = weakref.finalize(self, _say_goodbye, self._engine, stop, server)
        self._transactions = Transactions(self._engine, self.config)
        try:
            metadata.wait_for_cluster(self._engine, self.config, engine_settings["logger"])
        except BaseException:
            self._closed = True
            self._engine.purge()
            self._goodbye()
            raise

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record. The future tells where it went, or why it did not.

        A `value` of None with a key deletes the key from a compacted topic. Blocks, up to `max_block_ms`, only
        for a topic's first record or while the buffer is full.
        """
        if (
            self._plain
            and type(value) is bytes
            and (key is None or type(key) is bytes)
            and topic in self._leaders
            and headers is None
            and partition is None
            and not self._closed
        ):
            # Nothing to turn into bytes, nothing to choose: most records take this way, and in line.
            future = FutureRecordMetadata()
            future._hurry = self._flush
            try:
                self._produce(topic, value, key, -1, future.delivered, None, timestamp_ms or 0)
            except BufferError:
                self._produce_when_there_is_room(topic, value, key, -1, future, timestamp_ms, None)
            except KafkaException as problem:
                raise from_engine(problem.args[0]) from None
            return future
        return self._send(topic, value, key, headers, partition, timestamp_ms)

    def _queue(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int | None,
        headers: Headers | None,
        header_size: int = -1,
    ) -> FutureRecordMetadata:
        """Hand a record to the engine."""
        future = FutureRecordMetadata()
        future._hurry = self._flush
        if header_size >= 0:
            future._header_size = header_size
        try:
            self._produce(
                topic,
                value,
                key,
                partition,
                future.delivered,
                None,
                timestamp_ms or 0,
                headers or None,  # type: ignore[arg-type]
            )
        except BufferError:
            self._produce_when_there_is_room(topic, value, key, partition, future, timestamp_ms, headers)
        except KafkaException as problem:
            raise from_engine(problem.args[0]) from None
        return future

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata:
        """Check and serialize a record, find its partition, and queue it."""
        if self._closed:
            raise IllegalStateError("the producer is closed")
        if value is None and key is None:
            raise ValueError("a record needs a key or a value")
        header_size = -1
        if headers:
            header_size = _header_size(headers)
        elif headers is not None and not isinstance(headers, list):
            raise TypeError("headers must be a list of (str, bytes) tuples")
        key_bytes, value_bytes = key, value
        if self._serialize_key is not None:
            key_bytes = self._serialize_key(topic, headers or [], key)
        if self._serialize_value is not None:
            value_bytes = self._serialize_value(topic, headers or [], value)
        if type(key_bytes) not in _BYTES:
            key_bytes = _to_bytes(key_bytes, "key")
        if type(value_bytes) not in _BYTES:
            value_bytes = _to_bytes(value_bytes, "value")
        if topic not in self._leaders:
            try:
                self._learn(topic)
            except BrokerResponseError as error:
                return failed_send(error)
        if partition is not None:
            self._check_partition(topic, partition)
        elif self._choose is not None:
            partition = self._chosen(topic, key, key_bytes, value, value_bytes)

        number = -1 if partition is None else partition
        return self._queue(topic, value_bytes, key_bytes, number, timestamp_ms, headers, header_size)

    def _produce_when_there_is_room(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        future: FutureRecordMetadata,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> None:
        max_block_s = self.config["max_block_ms"] / 1000
        deadline = time.monotonic() + max_block_s
        while time.monotonic() < deadline:
            self._progress.clear()
            try:
                given: Any = headers or None
                self._produce(topic, value, key, partition, future.delivered, None, timestamp_ms or 0, given)
                return
            except BufferError:
                self._progress.wait(0.01)
            except KafkaException as problem:
                raise from_engine(problem.args[0]) from None
        raise KafkaTimeoutError(
            f"the buffer of {self.config['buffer_memory']} bytes stayed full for {max_block_s:g} s"
        )

    def _learn(self, topic: str) -> dict[int, int]:
        metadata.check_topic_name(topic)
        max_block_s = self.config["max_block_ms"] / 1000
        found = metadata.wait_for_topic(self._engine, topic, self.config, max_block_s)
        self._leaders[topic] = found
        self._asked_at[topic] = time.monotonic()
        return found

    def _check_partition(self, topic: str, partition: int) -> None:
        if partition < 0:
            raise ValueError("a partition is 0 or more")
        if partition not in self._leaders[topic] and partition not in self._learn(topic):
            raise ValueError(f"topic {topic} has no partition {partition}")

    def _chosen(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None
    ) -> int:
        assert self._choose is not None
        if time.monotonic() - self._asked_at[topic] > self.config["metadata_max_age_ms"] / 1000:
            self._learn(topic)
        partition = self._choose(topic, key, key_bytes, value, value_bytes, self._cluster)
        if partition is None:
            raise ValueError(f"the partitioner chose no partition for topic {topic}")
        self._check_partition(topic, partition)
        return partition

    def knows(self, topic: str) -> bool:
        """Whether a record for this topic can be queued without asking the cluster first."""
        return topic in self._leaders

    def flush(self, timeout: float | None = None) -> None:
        """Send what is queued, and wait until every record sent before has its result."""
        left = self._flush(-1 if timeout is None else timeout)
        if left:
            raise KafkaTimeoutError(f"{left} records were not acknowledged within {timeout} s")

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        return set(self._learn(topic))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster can be reached."""
        try:
            return bool(self._engine.list_topics("", timeout=1).brokers)
        except KafkaException:
            return False

    def init_transactions(self) -> None:
        """Take over the transactional id: unfinished work of an earlier producer with it is ended first."""
        self._transactions.init()

    def begin_transaction(self) -> None:
        self._transactions.begin()

    def commit_transaction(self) -> None:
        """Flush, and make all records of the transaction visible at once."""
        self._transactions.commit()

    def abort_transaction(self) -> None:
        """Drop what is still queued, and have readers of committed records skip the rest."""
        self._transactions.abort()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer's offsets with the transaction, or not at all."""
        self._transactions.send_offsets(offsets, group_metadata)

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Counters by group; `raw` gives the engine's whole report. None if they are switched off."""
        if not self.config["metrics_enabled"]:
            return None
        return self._statistics.raw() if raw else self._statistics.producer_metrics({})

    def close(self, timeout: float | None = None) -> None:
        """Wait for what is on its way, `timeout` seconds at most; what is not sent by then fails."""
        if self._closed:
            return
        if timeout is not None and timeout < 0:
            raise ValueError(f"a timeout is 0 or more, not {timeout}")
        self._closed = True
        if self._flush(-1 if timeout is None else timeout):
            self._engine.purge()
        self._goodbye()
        for serializer in (self.config["key_serializer"], self.config["value_serializer"]):
            if hasattr(serializer, "close"):
                serializer.close()

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<KafkaProducer client_id={self.config['client_id']}>"


def _engine(settings: dict[str, Any]) -> Producer:
    try:
        return Producer(settings)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None


def _flush(engine: Producer, timeout_s: float = -1) -> int:
    """Wait for what is on its way: how many records are still.

    The engine raises what is fatal to it in whoever comes by first. The records fail with it, and their futures
    tell of it; that is the place where it belongs.
    """
    try:
        return engine.flush(timeout_s)
    except KafkaException as problem:
        _logger.debug("the engine gives up: %s", problem)
        return len(engine)


def _serve(engine: Producer, stop: threading.Event, progress: threading.Event) -> None:
    """Run the callbacks of a producer; it holds the engine only, so that a forgotten producer can go."""
    while not stop.is_set():
        try:
            if engine.poll(_SERVE_S):
                progress.set()
        except KafkaException as problem:
            # Fatal to the engine, and told once; the reports about its records come after it.
            _logger.debug("the engine gives up: %s", problem)
            progress.set()


def _say_goodbye(engine: Producer, stop: threading.Event, server: threading.Thread) -> None:
    _flush(engine, _GOODBYE_S)
    stop.set()
    if server is not threading.current_thread():
        server.join()
    engine.close()


def _to_bytes(data: Any, what: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a {what} is sent as bytes, not as {type(data).__name__}; give a {what}_serializer")


def _header_size(headers: Headers) -> int:
    if not isinstance(headers, list):
        raise TypeError("headers must be a list of (str, bytes) tuples")
    size = 0
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2):
            raise TypeError(f"a header is a tuple of str and bytes, not {item!r}")
        name, data = item
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise TypeError(f"a header is a tuple of str and bytes, not {item!r}")
        size += len(name.encode()) + len(data)
    return size
