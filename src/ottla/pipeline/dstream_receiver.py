"""The receiver-based source of DStreams: Spark tasks that live long, read partitions, and store what they read.

A receiver writes records as a block into the checkpoint directory (the write-ahead log), then commits their offsets
to the group. Each batch takes the blocks that are new. Blocks carry their offsets: a receiver that starts again
continues after what is stored, so nothing is lost and nothing stored twice.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla.pipeline.dstream_context import Settings, read_with, resolved
from ottla.pipeline.dstream_source import BatchSource
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.shared_files import SharedFiles

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark import RDD, SparkContext
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.jvm import JavaObject

_logger = logging.getLogger(__name__)

_BLOCK_S: Final = 0.2
"""How long a receiver gathers records for a block, as `spark.streaming.blockInterval` is by default."""
_MOST_RECORDS: Final = 10_000
_LOOK_S: Final = 0.5
_RESTART_S: Final = 2.0
_TIMEOUT_S: Final = 30.0
_NEW_PARTITIONS_S: Final = 30.0
_STOP: Final = "stop"

Decoders = tuple[Callable[[bytes | None], object], Callable[[bytes | None], object]]


class _Stored(msgspec.Struct, frozen=True):
    """The content of a block file: records of one topic, and where their partitions continue."""

    topic: str
    next: dict[int, int]
    records: list[tuple[bytes | None, bytes | None]]


class _Batch(msgspec.Struct, frozen=True):
    """The blocks of one batch, and the last block of each receiver so far."""

    blocks: list[str]
    last: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Receiver:
    """One receiver: its share of a topic's partitions, by number."""

    name: str
    topic: str
    index: int
    count: int


def _receivers(topics: Mapping[str, int]) -> list[_Receiver]:
    return [
        _Receiver(f"{number:03}.{index:03}", topic, index, count)
        for number, (topic, count) in enumerate(sorted(topics.items()))
        for index in range(count)
    ]


class ReceiverSource(BatchSource[_Batch]):
    """The driver's side: keeps the receivers running, and deals their blocks to batches."""

    def __init__(
        self,
        topics: Mapping[str, int],
        settings: Settings,
        decoders: Decoders,
        *,
        ssc: StreamingContext | None = None,
        directory: str | None = None,
    ) -> None:
        super().__init__(_Batch, settings, ssc, directory)
        if not topics or any(count < 1 for count in topics.values()):
            raise PipelineError("createStream needs topics with one receiver or more each")
        self._topics = dict(topics)
        self._decoders = decoders
        self._supervisor: _Supervisor | None = None

    def state(self) -> Mapping[str, object]:
        """What a checkpoint holds; the first batch after a restart starts the receivers again."""
        return {**super().state(), "topics": self._topics, "decoders": self._decoders}

    def _blocks(self) -> SharedFiles:
        if self.directory is None:
            raise PipelineError(
                "createStream stores what it receives in the checkpoint directory: call ssc.checkpoint(directory)"
            )
        return SharedFiles(self.directory)

    def _attach(self, context: SparkContext, running: JavaObject) -> None:
        if self._supervisor is None:
            self._supervisor = _Supervisor(context, running, self._blocks(), self._topics, self._settings)
            self._supervisor.start()

    def _new_batch(self, at_ms: int, context: SparkContext, newest: _Batch | None) -> _Batch:
        before: Mapping[str, int] = {} if newest is None else newest.last
        last = dict(before)
        names = []
        for name in self._blocks().names():
            receiver, number = _parse(name)
            if receiver is not None and number > before.get(receiver, -1):
                names.append(name)
                last[receiver] = max(last.get(receiver, -1), number)
        return _Batch(names, last)

    def _forgotten(self, batches: Sequence[_Batch], newest: _Batch | None) -> None:
        """Delete their blocks, but each receiver's last: it counts from there."""
        files = self._blocks()
        for name in (name for batch in batches for name in batch.blocks):
            receiver, number = _parse(name)
            if newest is not None and receiver is not None and number < newest.last.get(receiver, -1):
                files.delete(name)

    def _rdd(self, batch: _Batch, tick: RDD[object]) -> RDD[object]:
        directory, decoders = self._blocks().directory, self._decoders
        return read_with(tick, batch.blocks, lambda names: _read_blocks(directory, names, decoders))


class _Supervisor:
    """Runs the receivers as one Spark job, again after a failure, until the streaming context stops."""

    def __init__(
        self,
        context: SparkContext,
        running: JavaObject,
        files: SharedFiles,
        topics: Mapping[str, int],
        settings: Settings,
    ) -> None:
        self._context = context
        self._running = running
        self._files = files
        self._receivers = _receivers(topics)
        self._settings = settings
        self._run = uuid.uuid4().hex
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the job, and a thread that watches the streaming context."""
        from pyspark import InheritableThread

        for target in (self._run_receivers, self._watch):
            InheritableThread(target=target, daemon=True).start()

    def _run_receivers(self) -> None:
        directory, settings, run = self._files.directory, self._settings, self._run
        group = f"ottla-receivers-{run}"
        while not self._stopped.is_set():
            try:
                self._context.setJobGroup(group, f"receivers into {directory}", interruptOnCancel=True)
                jobs = self._context.parallelize(self._receivers, len(self._receivers))
                jobs.foreachPartition(lambda mine: _receive_all(mine, directory, settings, run))
            except Exception as error:  # noqa: BLE001 - a receiver that failed starts again
                if self._stopped.wait(_RESTART_S):
                    return
                _logger.warning("the receivers of %s failed and start again: %s", directory, str(error)[:300])

    def _watch(self) -> None:
        """End the receivers with the streaming context: they look for a file, and are cancelled after that."""
        while not self._stopped.wait(_LOOK_S):
            try:
                stopped = str(self._running.getState()) == "STOPPED"
            except Exception:  # noqa: BLE001 - the JVM is gone
                stopped = True
            if stopped:
                self._stopped.set()
        with suppress(OSError):
            self._files.write(f"{_STOP}-{self._run}", b"")


def _receive_all(mine: Iterable[_Receiver], directory: str, settings: Settings, run: str) -> None:
    for receiver in mine:
        _receive(receiver, directory, settings, run)


def _receive(receiver: _Receiver, directory: str, settings: Settings, run: str) -> None:
    """A receiver's task: read, store, commit, until the file that ends this run appears."""
    files = SharedFiles(directory)
    consumer = Consumer(resolved(settings))
    try:
        number = 1 + max(
            (n for name in files.names() for r, n in [_parse(name)] if r == receiver.name), default=-1
        )
        assigned: list[int] = []
        look_again_at = 0.0
        while f"{_STOP}-{run}" not in files.names():
            if time.monotonic() >= look_again_at:
                look_again_at = time.monotonic() + _NEW_PARTITIONS_S
                wanted = _partitions(consumer, receiver)
                if wanted != assigned:
                    assigned = wanted
                    consumer.assign(_positions(consumer, receiver, files, settings, wanted))
            messages = _good(consumer.consume(_MOST_RECORDS, _BLOCK_S))
            if messages:
                stored = _Stored(
                    receiver.topic,
                    {cast("int", m.partition()): cast("int", m.offset()) + 1 for m in messages},
                    [(m.key(), m.value()) for m in messages],
                )
                files.write(f"{receiver.name}-{number:012}", msgspec.msgpack.encode(stored))
                number += 1
                ends = [TopicPartition(receiver.topic, part, end) for part, end in stored.next.items()]
                consumer.commit(offsets=ends, asynchronous=False)
    finally:
        consumer.close()


def _good(messages: list[Message]) -> list[Message]:
    good = []
    for message in messages:
        error = message.error()
        if error is None:
            good.append(message)
        elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
            raise KafkaException(error)
    return good


def _partitions(consumer: Consumer, receiver: _Receiver) -> list[int]:
    known = consumer.list_topics(receiver.topic, timeout=_TIMEOUT_S).topics[receiver.topic]
    if known.error is not None:
        raise PipelineError(f"there is no topic {receiver.topic}")
    return [one for one in sorted(known.partitions) if one % receiver.count == receiver.index]


def _positions(
    consumer: Consumer, receiver: _Receiver, files: SharedFiles, settings: Settings, partitions: list[int]
) -> list[TopicPartition]:
    """Where to read on: after what is stored or committed, whichever is further; else by `auto.offset.reset`."""
    stored: dict[int, int] = {}
    for name in files.names():
        data = files.read(name) if _parse(name)[0] is not None else None
        block = None if data is None else msgspec.msgpack.decode(data, type=_Stored)
        if block is not None and block.topic == receiver.topic:
            for partition, end in block.next.items():
                stored[partition] = max(stored.get(partition, -1), end)
    asked = [TopicPartition(receiver.topic, one) for one in partitions]
    places = []
    for committed in consumer.committed(asked, timeout=_TIMEOUT_S):
        at = max(int(committed.offset), stored.get(committed.partition, -1))
        if at < 0:
            low, high = consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
            at = low if settings["auto.offset.reset"] == "earliest" else high
        places.append(TopicPartition(receiver.topic, committed.partition, at))
    return places


def _read_blocks(directory: str, names: Iterable[str], decoders: Decoders) -> Iterator[object]:
    """A batch's task: the decoded records of some blocks."""
    files = SharedFiles(directory)
    decode_key, decode_value = decoders
    for name in names:
        data = files.read(name)
        if data is None:
            raise PipelineError(f"the block {name} is not in {directory} any more")
        for key, value in msgspec.msgpack.decode(data, type=_Stored).records:
            yield decode_key(key), decode_value(value)


def _parse(name: str) -> tuple[str | None, int]:
    """The receiver and number of a block's name; None for other files."""
    receiver, dash, number = name.partition("-")
    return (receiver, int(number)) if dash and number.isdigit() and receiver != _STOP else (None, -1)
