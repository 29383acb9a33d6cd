"""KafkaProducer: kafka-python's interface, librdkafka's engine.

Records are queued, batched, sent and retried by the engine's own threads; this module adds
serializers, partitioners, futures and transactions.
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
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from ottla.client import metadata
from ottla.client.errors import BrokerResponseError, IllegalStateError, KafkaTimeoutError, from_engine
from ottla.client.futures import FutureRecordMetadata, failed_send
from ottla.client.partitioners import Cluster, choose_function
from ottla.client.producer_settings import DEFAULTS, producer_engine_settings, producer_settings
from ottla.client.serializers import serialize_function
from ottla.client.statistics import INTERVAL_MS, Metrics, Report, Statistics
from ottla.client.structs import ConsumerGroupMetadata, Headers, OffsetAndMetadata, TopicPartition
from ottla.client.transactions import Transactions

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineSettings

_logger = logging.getLogger(__name__)

_SERVE_S = 0.1
_GOODBYE_S = 1.0
_ids = itertools.count(1)
_BYTES = (bytes, type(None))


class KafkaProducer:
    """Writes records to topics. All threads of a program may share one producer.

    Settings have kafka-python's names, as in `bootstrap_servers`, `acks`, `linger_ms` and `value_serializer`.

    >>> from ottla import KafkaProducer
    >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, value_serializer=str.encode) as producer:
    ...     place = producer.send("greetings", "hello").get(timeout=30)
    >>> place.topic, place.partition
    ('greetings', 0)
    """

    DEFAULT_CONFIG = DEFAULTS

    def __init__(self, **configs: object) -> None:
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
        # A producer that was not closed still gets a second for records in flight.
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
        value: object = None,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record. The future gets the record's place, or the reason of the failure.

        A `value` of None with a key deletes the key from a compacted topic. Blocks, up to `max_block_ms`, only
        for a topic's first record or while the buffer is full.

        >>> future = producer.send("orders", b"five apples", key=b"alice", headers=[("source", b"shop")])
        >>> future.get(timeout=30).topic
        'orders'
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
            # No serializer and no partitioner: most records take this path, which is inlined for speed.
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
        value: object,
        key: object,
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
        key_bytes: Any = key
        value_bytes: Any = value
        if self._serialize_key is not None or self._serialize_value is not None:
            # A serializer may add headers; the caller's list stays as it is.
            headers = list(headers) if headers else []
            given = len(headers)
            if self._serialize_key is not None:
                key_bytes = self._serialize_key(topic, headers, key)
            if self._serialize_value is not None:
                value_bytes = self._serialize_value(topic, headers, value)
            if len(headers) != given:
                header_size = _header_size(headers)
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
        self, topic: str, key: object, key_bytes: bytes | None, value: object, value_bytes: bytes | None
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
        """Whether `send` can queue a record for this topic without waiting for metadata.

        >>> producer.partitions_for("orders"), producer.knows("orders")
        ({0}, True)
        """
        return topic in self._leaders

    def flush(self, timeout: float | None = None) -> None:
        """Send what is queued, and wait until every record sent before has its result.

        >>> _ = producer.send("orders", b"one pear")
        >>> producer.flush(timeout=30)
        """
        left = self._flush(-1 if timeout is None else timeout)
        if left:
            raise KafkaTimeoutError(f"{left} records were not acknowledged within {timeout} s")

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic.

        >>> producer.partitions_for("orders")
        {0}
        """
        return set(self._learn(topic))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster can be reached.

        >>> producer.bootstrap_connected()
        True
        """
        try:
            return bool(self._engine.list_topics("", timeout=1).brokers)
        except KafkaException:
            return False

    def init_transactions(self) -> None:
        """Take over the transactional id: an unfinished transaction of an earlier producer with this id ends first.

        Call it once, before the first transaction. See `begin_transaction` for a whole example.

        >>> from ottla import KafkaProducer
        >>> producer = KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="billing")
        >>> producer.init_transactions()
        >>> producer.close()
        """
        self._transactions.init()

    def begin_transaction(self) -> None:
        """Start a transaction: what is sent from now on becomes visible with `commit_transaction` only.

        >>> from ottla import KafkaProducer
        >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="billing") as producer:
        ...     producer.init_transactions()
        ...     producer.begin_transaction()
        ...     _ = producer.send("ledger", b"alice pays bob 5")
        ...     producer.commit_transaction()
        """
        self._transactions.begin()

    def commit_transaction(self) -> None:
        """Flush, and make all records of the transaction visible at once.

        >>> from ottla import KafkaProducer
        >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="billing") as producer:
        ...     producer.init_transactions()
        ...     producer.begin_transaction()
        ...     producer.commit_transaction()
        """
        self._transactions.commit()

    def abort_transaction(self) -> None:
        """Drop what is still queued. Readers of committed records skip what was already sent.

        >>> from ottla import KafkaProducer
        >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="billing") as producer:
        ...     producer.init_transactions()
        ...     producer.begin_transaction()
        ...     _ = producer.send("ledger", b"a mistake")
        ...     producer.abort_transaction()
        """
        self._transactions.abort()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer's offsets with the transaction, or not at all.

        >>> from ottla import KafkaProducer, OffsetAndMetadata, TopicPartition
        >>> with KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="billing") as producer:
        ...     producer.init_transactions()
        ...     producer.begin_transaction()
        ...     producer.send_offsets_to_transaction({TopicPartition("orders", 0): OffsetAndMetadata(1)}, "billing")
        ...     producer.commit_transaction()
        """
        self._transactions.send_offsets(offsets, group_metadata)

    def metrics(self, raw: bool = False) -> Report | Metrics | None:
        """Counters by group; `raw` returns librdkafka's whole report. None if `metrics_enabled` is false.

        >>> "producer-metrics" in producer.metrics()
        True
        """
        if not self.config["metrics_enabled"]:
            return None
        return self._statistics.raw() if raw else self._statistics.producer_metrics({})

    def close(self, timeout: float | None = None) -> None:
        """Wait for records in flight, at most `timeout` seconds; what is not sent by then fails.

        >>> from ottla import KafkaProducer
        >>> producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
        >>> producer.close(timeout=30)
        """
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


def _engine(settings: EngineSettings) -> Producer:
    try:
        return Producer(settings)
    except KafkaException as problem:
        raise from_engine(problem.args[0]) from None


def _flush(engine: Producer, timeout_s: float = -1) -> int:
    """Wait for what is on its way: how many records are still.

    The engine raises a fatal error in the first call that comes. The records fail with it, and their futures report
    it; that is the right place.
    """
    try:
        return engine.flush(timeout_s)
    except KafkaException as problem:
        _logger.debug("the engine gives up: %s", problem)
        return len(engine)


def _serve(engine: Producer, stop: threading.Event, progress: threading.Event) -> None:
    """Run the callbacks of a producer. It holds the engine only, so that a forgotten producer is collected."""
    while not stop.is_set():
        try:
            if engine.poll(_SERVE_S):
                progress.set()
        except KafkaException as problem:
            # A fatal error, reported once; the delivery reports of its records follow.
            _logger.debug("the engine gives up: %s", problem)
            progress.set()


def _say_goodbye(engine: Producer, stop: threading.Event, server: threading.Thread) -> None:
    _flush(engine, _GOODBYE_S)
    stop.set()
    if server is not threading.current_thread():
        server.join()
    engine.close()


def _to_bytes(data: object, what: str) -> bytes:
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
