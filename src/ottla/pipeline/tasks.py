"""The part of the sink that runs in Spark's tasks: writes rows to brokers.

One process serves many tasks, and keeps its connections between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.columns import as_binary, encode_sections
from ottla.pipeline.failures import PipelineError, TaskRetried
from ottla.pipeline.partitions import choose_partitions
from ottla.pipeline.worker_memory import task_begins
from ottla.pipeline.writer import BatchWriter, Grant, Place

REPORT: Final = "topic string, partition int, records long, first long, last long, stage int"
RETRIED: Final = "a task of the sink was started again within one transaction"

_LOOK_UP_S: Final = 30.0
_TOPIC_SHIFT: Final = 32

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_connected: dict[ClusterSettings, Cluster] = {}


def brokers_for(settings: ClusterSettings) -> Cluster:
    """The connections of this process to a cluster."""
    if settings not in _connected:
        _connected[settings] = Cluster(settings)
    return _connected[settings]


def forget_brokers(settings: ClusterSettings) -> None:
    """Closes them: after a failure, responses may still arrive that no request waits for."""
    if settings in _connected:
        _connected.pop(settings).close()


def count_partitions(brokers: Cluster, topic: str, timeout_s: float = _LOOK_UP_S) -> int:
    """The number of partitions of a topic; like a producer's request, it creates the topic if brokers do that."""
    try:
        return len(brokers.retrying(lambda: brokers.leaders(topic, create=True), timeout_s))
    except ApiException as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise PipelineError(
                f"there is no topic {topic}, and the brokers do not create topics by themselves: "
                f"`ottla topics --create --topic {topic}`"
            ) from None
        raise


def writing(grant: Grant, topic: str | None) -> ArrowFunction:
    """The function that writes the rows of a task under the driver's grant; it reports the records per partition."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task_begins()
        context = TaskContext.get()
        assert context is not None
        if grant.transactional_id is not None and context.attemptNumber() > 0:
            raise TaskRetried(RETRIED)
        try:
            brokers = brokers_for(grant.settings)
            writer = BatchWriter(brokers, grant)
            for number, batch in enumerate(batches):
                write_rows(writer, grant, brokers, batch, topic, number)
            written = writer.flush()
        except BaseException:
            forget_brokers(grant.settings)
            raise
        rows = [(p.topic, p.partition, w.records, w.first, w.last) for p, w in written.items()]
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            columns.append([context.stageId()] * len(rows))
            kinds = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int32())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(
                arrays, names=["topic", "partition", "records", "first", "last", "stage"]
            )

    return write


def write_rows(
    writer: BatchWriter,
    grant: Grant,
    brokers: Cluster,
    batch: pa.RecordBatch,
    topic: str | None,
    turn: int = 0,
) -> None:
    """Gives the rows of an Arrow batch to a writer, partition by partition in their order."""
    if batch.num_rows == 0:
        return
    topic_of, topics = _topics(batch, topic)
    partitions = _partitions(batch, brokers, topics, topic_of, turn)
    group = (topic_of << _TOPIC_SHIFT) | partitions
    if int(group[0]) == int(group[-1]) and bool((group == group[0]).all()):
        runs = [(0, batch.num_rows)]
    else:
        order = np.argsort(group, kind="stable")
        group = group[order]
        batch = batch.take(pa.array(order))
        ends = [*(np.flatnonzero(np.diff(group)) + 1).tolist(), batch.num_rows]
        runs = list(zip([0, *ends[:-1]], ends, strict=True))
    key, value = _column(batch, "key"), _column(batch, "value")
    if value is None:
        raise PipelineError("a row for Kafka needs a column `value`")
    headers = _column(batch, "headers")
    if headers is not None and not len(headers.flatten()):
        headers = None
    times = _timestamps(batch)
    key, value = (as_binary(key) if key is not None else None), as_binary(value)
    for start, end in runs:
        place = Place(topics[int(group[start]) >> _TOPIC_SHIFT], int(group[start]) & 0xFFFFFFFF)
        writer.add(
            place,
            encode_sections(
                key.slice(start, end - start) if key is not None else None,
                value.slice(start, end - start),
                times[start:end],
                headers.slice(start, end - start) if headers is not None else None,
                grant.max_batch_bytes,
            ),
        )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    at = batch.schema.get_field_index(name)
    return batch.column(at) if at >= 0 else None


def _topics(batch: pa.RecordBatch, topic: str | None) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The topic number of each row, and the topics by number."""
    column = _column(batch, "topic")
    if column is None:
        if topic is None:
            raise PipelineError("no topic to write to: give the sink one, or the rows a column `topic`")
        return np.zeros(batch.num_rows, np.int64), [topic]
    if column.null_count:
        if topic is None:
            raise PipelineError("a row has no topic, and neither has the sink")
        column = pc.fill_null(column, topic)
    coded = column.dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def _partitions(
    batch: pa.RecordBatch, brokers: Cluster, topics: list[str], topic_of: npt.NDArray[np.int64], turn: int
) -> npt.NDArray[np.int64]:
    """Each row's own partition, or the one that Kafka's partitioner gives it."""
    own = _column(batch, "partition")
    if own is not None and own.null_count == 0:
        chosen: npt.NDArray[np.int64] = own.to_numpy().astype(np.int64)
        return chosen
    key = _column(batch, "key")
    keys = as_binary(key) if key is not None else None
    chosen = np.empty(batch.num_rows, np.int64)
    for number, name in enumerate(topics):
        count = count_partitions(brokers, name)
        if len(topics) == 1:
            chosen[:] = choose_partitions(keys, batch.num_rows, count, turn)
            continue
        rows = np.flatnonzero(topic_of == number)
        some = keys.take(pa.array(rows)) if keys is not None else None
        chosen[rows] = choose_partitions(some, len(rows), count, turn)
    if own is not None and own.null_count < batch.num_rows:
        named = own.is_valid().to_numpy(zero_copy_only=False)
        chosen[named] = own.drop_null().to_numpy()
    return chosen


def _timestamps(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The times in milliseconds; a row without a time gets the current one."""
    now = time.time_ns() // 1_000_000
    column = _column(batch, "timestamp")
    if column is None:
        return np.full(batch.num_rows, now, np.int64)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, now)
    times: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return times
