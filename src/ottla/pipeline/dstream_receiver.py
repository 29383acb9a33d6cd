"""The receiver-based source of DStreams: Spark tasks that live long, read partitions, and store what they read.

A receiver writes records as a block into the checkpoint directory (the write-ahead log, `dstream_blocks.py`), then
commits their offsets to the group. Each batch takes the blocks that are new. Blocks carry their offsets: a receiver
that starts again continues after what is stored, so nothing is lost and nothing stored twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla.pipeline.dstream_blocks import Block, BlockLog, BlockName
from ottla.pipeline.dstream_context import Settings, read_with, resolved
from ottla.pipeline.dstream_source import BatchSource
from ottla.pipeline.failures import PipelineError

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

Decoders = tuple[Callable[[bytes | None], object], Callable[[bytes | None], object]]


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

    def _blocks(self) -> BlockLog:
        if self.directory is None:
            raise PipelineError(
                "createStream stores what it receives in the checkpoint directory: call ssc.checkpoint(directory)"
            )
        return BlockLog(self.directory)

    def _attach(self, context: SparkContext, running: JavaObject) -> None:
        if self._supervisor is None:
            self._supervisor = _Supervisor(context, running, self._blocks(), self._topics, self._settings)
            self._supervisor.start()

    def _new_batch(self, at_ms: int, context: SparkContext, newest: _Batch | None) -> _Batch:
        before: Mapping[str, int] = {} if newest is None else newest.last
        last = dict(before)
        names = []
        for block in self._counting():
            if block.number > before.get(block.receiver, -1):
                names.append(str(block))
                last[block.receiver] = max(last.get(block.receiver, -1), block.number)
        return _Batch(names, last)

    def _counting(self) -> list[BlockName]:
        """The blocks that count; a run that is being closed is not read meanwhile."""
        if self._supervisor is None:
            return self._blocks().blocks()
        with self._supervisor.closing:
            return self._blocks().blocks()

    def _forgotten(self, batches: Sequence[_Batch], newest: _Batch | None) -> None:
        """Delete their blocks, but each receiver's last: it counts from there."""
        log = self._blocks()
        old = {name for batch in batches for name in batch.blocks}
        for block in log.blocks() if old and newest is not None else ():
            if (
                str(block) in old
                and newest is not None
                and block.number < newest.last.get(block.receiver, -1)
            ):
                log.files.delete(str(block))

    def _rdd(self, batch: _Batch, tick: RDD[object]) -> RDD[object]:
        directory, decoders = self._blocks().files.directory, self._decoders
        # A receiver writes five blocks a second: a task in Python for each would cost more than its records.
        most = tick.context.defaultParallelism
        return read_with(tick, batch.blocks, lambda names: _read_blocks(directory, names, decoders), most)


class _Supervisor:
    """Runs the receivers as one Spark job, again after a failure, until the streaming context stops."""

    def __init__(
        self,
        context: SparkContext,
        running: JavaObject,
        log: BlockLog,
        topics: Mapping[str, int],
        settings: Settings,
    ) -> None:
        self._context = context
        self._running = running
        self._log = log
        self._receivers = _receivers(topics)
        self._settings = settings
        self._run: int | None = None
        self.closing = threading.Lock()
        """Held while a run begins. Between the look at the earlier runs' blocks and the note, none may be dealt."""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the job, and a thread that watches the streaming context."""
        from pyspark import InheritableThread

        for target in (self._run_receivers, self._watch):
            InheritableThread(target=target, daemon=True).start()

    def _run_receivers(self) -> None:
        directory, settings = self._log.files.directory, self._settings
        while not self._stopped.is_set():
            try:
                with self.closing:
                    self._run = run = self._log.open_run()
                group = f"ottla-receivers-{directory}-{run}"
                self._context.setJobGroup(group, f"receivers into {directory}", interruptOnCancel=True)
                jobs = self._context.parallelize(self._receivers, len(self._receivers))
                jobs.foreachPartition(_task(directory, settings, run))
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
            if self._run is not None:
                self._log.stop(self._run)


def _task(directory: str, settings: Settings, run: int) -> Callable[[Iterable[_Receiver]], None]:
    def receive_all(mine: Iterable[_Receiver]) -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is not None and task.attemptNumber() > 0:
            # The first attempt may still run on an executor that Spark has lost. Only a new run can take its place.
            raise PipelineError("a receiver is not tried again: all of them start as a new run")
        for receiver in mine:
            _receive(receiver, directory, settings, run)

    return receive_all


def _receive(receiver: _Receiver, directory: str, settings: Settings, run: int) -> None:
    """A receiver's task: read, store, commit, until its run is stopped or a newer one begins."""
    log = BlockLog(directory)
    consumer = Consumer(resolved(settings))
    try:
        number = log.next_number(receiver.name)
        ends: dict[int, int] = {}
        assigned: list[int] = []
        look_again_at = 0.0
        while not log.is_stopped(run):
            if time.monotonic() >= look_again_at:
                look_again_at = time.monotonic() + _NEW_PARTITIONS_S
                wanted = _partitions(consumer, receiver)
                if wanted != assigned:
                    assigned = wanted
                    known = {**log.ends(receiver.topic), **ends}
                    positions = _positions(consumer, receiver, known, settings, wanted)
                    ends = {one.partition: one.offset for one in positions}
                    consumer.assign(positions)
            messages = _good(consumer.consume(_MOST_RECORDS, _BLOCK_S))
            if messages:
                new = {cast("int", m.partition()): cast("int", m.offset()) + 1 for m in messages}
                ends.update(new)
                records = [(m.key(), m.value()) for m in messages]
                log.write(BlockName(receiver.name, number, run), Block(receiver.topic, dict(ends), records))
                number += 1
                offsets = [TopicPartition(receiver.topic, part, end) for part, end in new.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
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
    consumer: Consumer,
    receiver: _Receiver,
    stored: Mapping[int, int],
    settings: Settings,
    partitions: list[int],
) -> list[TopicPartition]:
    """Where to read on: after what is stored; else where the group has committed; else by `auto.offset.reset`.

    What is stored decides: a task of an earlier run may have committed more than the blocks that count.
    """
    asked = [TopicPartition(receiver.topic, one) for one in partitions]
    places = []
    for committed in consumer.committed(asked, timeout=_TIMEOUT_S):
        at = stored.get(committed.partition, int(committed.offset))
        if at < 0:
            low, high = consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
            at = low if settings["auto.offset.reset"] == "earliest" else high
        places.append(TopicPartition(receiver.topic, committed.partition, at))
    return places


def _read_blocks(directory: str, names: Iterable[str], decoders: Decoders) -> Iterator[object]:
    """A batch's task: the decoded records of some blocks."""
    log = BlockLog(directory)
    decode_key, decode_value = decoders
    for name in names:
        block = log.read(name)
        if block is None:
            raise PipelineError(f"the block {name} is not in {directory} any more")
        for key, value in block.records:
            yield decode_key(key), decode_value(value)
