"""The two stages of an application that only counts: one adds up what a task reads, one finishes changed counts.

Between them Spark's own aggregation adds up the counts of all tasks and keeps the totals.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.worker_memory import task_begins
from ottla.streams.graph import operators as op
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.keys import decode_key, encode_key
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.task import Task
from ottla.streams.planner.count_loop import CountLoop, Name, count_loop
from ottla.streams.planner.count_patterns import TEXT_SERDES, nodes_behind
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.row_collector import RowCollector
from ottla.streams.planner.rows import Tasks, by_partition, have_headers, read_headers
from ottla.streams.planner.stateless_stage import arrow_rows
from ottla.streams.records import Change, Record
from ottla.streams.serdes import AnySerde

_logger = logging.getLogger(__name__)

MAX_NAMES: Final = 500_000
"""A task holds this many counts before it passes them on."""

EVERY_TASK: Final = -1
"""The task of counts behind a repartition topic: there a key has one task only."""

COUNTS_SCHEMA: Final = "store string, task int, name binary, records long, time long"


class _Totals:
    """The counts of one Spark task."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], tuple[dict[Name, int], dict[Name, int]]] = {}
        self.names = 0

    def add(self, store: str, task: int, name: Name, records: int, time: int) -> None:
        counts, latest = self._counts.setdefault((store, task), ({}, {}))
        held = counts.get(name)
        if held is None:
            self.names += 1
            counts[name], latest[name] = records, time
        else:
            counts[name] = held + records
            latest[name] = max(latest[name], time)

    def take(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        taken, self._counts, self.names = self._counts, {}, 0
        for (store, task), (counts, latest) in taken.items():
            names = [encode_key(name) if isinstance(name, str) else name for name in counts]
            columns = (
                *([store] * len(names), [task] * len(names), names),
                *(list(counts.values()), list(latest.values())),
            )
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(slots=True)
class CountingStage:
    """Called by Spark with batches of records as they were read; yields counts to add to those of other tasks."""

    plan: Plan
    started_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark in each task."""
        task_begins()
        kinds = (pa.string(), pa.int32(), pa.binary(), pa.int64(), pa.int64())
        names = ("store", "task", "name", "records", "time")
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        counter = _Counter(self.plan, self.started_ms)
        for batch in batches:
            counter.count(batch)
            if counter.totals.names >= MAX_NAMES:
                yield from counter.totals.take(schema)
        yield from counter.totals.take(schema)


class _Counter:
    def __init__(self, plan: Plan, started_ms: int) -> None:
        topology = plan.topology
        self.totals = _Totals()
        self._stores = {
            node.name: node.operator.store
            for node in plan.plain_counts
            if isinstance(node.operator, op.Aggregate)
        }
        self._ways: dict[str, list[str]] = {}
        self._sources: dict[str, list[Node]] = {}
        stops = set(self._stores)
        for node in topology.nodes.values():
            operator = node.operator
            if isinstance(operator, op.Source) and operator.internal:
                stores = [self._stores[child.name] for child in node.children]
                self._ways.setdefault(operator.topics[0], []).extend(stores)
            elif isinstance(operator, op.Source):
                for topic in operator.topics:
                    self._sources.setdefault(topic, []).append(node)
            elif isinstance(operator, op.Sink) and operator.internal:
                stops.add(node.name)
        every = [source for sources in self._sources.values() for source in sources]
        self._loops = {source.name: _loop(source, frozenset(stops)) for source in every}
        self._by_columns = {source.name for source in every if _counts_keys(source, frozenset(stops))}
        behind = nodes_behind(plan.plain_counts)
        before = [
            node
            for node in topology.nodes.values()
            if node.name not in behind and node.name not in self._stores
        ]
        self._task = Task(before, {}, self._emit, now_ms=lambda: started_ms)
        self._partition = 0

    def count(self, batch: pa.RecordBatch) -> None:
        for topic, self._partition, mine in by_partition(batch):
            for source in self._sources[topic]:
                if not self._at_once(source, mine):
                    self._one_by_one(source, topic, mine)

    def _at_once(self, source: Node, batch: pa.RecordBatch) -> bool:
        """Counts by the loop; False and nothing counted where there is no loop or a record needs the interpreter."""
        found = self._loops[source.name]
        if found is None:
            return False
        loop, end = found
        operator = source.operator
        assert isinstance(operator, op.Source)
        times = batch.column("time").to_numpy()
        if not len(times) or times.min() < 0 or have_headers(batch):
            return False
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            batch, times = batch.take(_indices(order)), times[order]
        counts: dict[Name, int] = {}
        latest: dict[Name, int] = {}
        try:
            if source.name in self._by_columns:
                _count_column(batch.column("key"), batch.column("value"), times, counts, latest)
            else:
                keys = _decoded(batch.column("key"), operator.key_serde)
                values = _decoded(batch.column("value"), operator.value_serde)
                loop(keys, values, times.tolist(), counts, latest)
        except Exception:
            # The interpreter reads the same record again, and applies the error rule of its source.
            _logger.debug("the records of %s are processed one by one", source.name, exc_info=True)
            return False
        for store, task in self._ends(end):
            for name, records in counts.items():
                self.totals.add(store, task, name, records, latest[name])
        return True

    def _ends(self, end: Node) -> list[tuple[str, int]]:
        """The stores behind a node, and the task that counts there."""
        if isinstance(end.operator, op.Sink):
            assert isinstance(end.operator.topic, str)
            return [(store, EVERY_TASK) for store in self._ways[end.operator.topic]]
        return [(self._stores[end.name], self._partition)]

    def _one_by_one(self, source: Node, topic: str, batch: pa.RecordBatch) -> None:
        operator = source.operator
        assert isinstance(operator, op.Source)
        columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value", "time")]
        columns.append(batch.column("headers").to_pylist() if have_headers(batch) else [None] * len(batch))
        for offset, key, value, time, headers in zip(*columns, strict=True):
            raw = Record(key, value, time, read_headers(headers))
            metadata = RecordMetadata(topic, self._partition, offset)
            read_source(self._task, source, operator, raw, metadata, _no_dead_letters)

    def _emit(self, node: Node, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        name = encode_key(record.key)
        for store, task in self._ends(node):
            self.totals.add(store, task, name if name[:1] != b"s" else record.key, 1, record.timestamp)


def _loop(source: Node, stops: frozenset[str]) -> tuple[CountLoop, Node] | None:
    operator = source.operator
    assert isinstance(operator, op.Source)
    loop = count_loop(source, stops)
    if loop is None or operator.timestamp_of is not None:
        return None
    end = source
    while end.name not in stops:
        end = end.children[0]
    return loop, end


def _counts_keys(source: Node, stops: frozenset[str]) -> bool:
    """Whether keys go to the count as they were read, and both key and value are text."""
    operator = source.operator
    assert isinstance(operator, op.Source)
    node = source
    while len(node.children) == 1:
        node = node.children[0]
        if node.name in stops:
            return operator.key_serde in TEXT_SERDES and operator.value_serde in TEXT_SERDES
        if not isinstance(node.operator, (op.Gate, op.PassThrough)):
            return False
    return False


def _count_column(
    keys: pa.Array,
    values: pa.Array,
    times: npt.NDArray[np.int64],
    counts: dict[Name, int],
    latest: dict[Name, int],
) -> None:
    """Counts the keys of records with a key and a value. Raises where bytes are not UTF-8."""
    values.cast(pa.string())
    coded = keys.cast(pa.string()).dictionary_encode()
    here = pc.and_(keys.is_valid(), values.is_valid()).to_numpy(zero_copy_only=False)
    codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)[here]
    names = coded.dictionary.to_pylist()
    last = np.zeros(len(names), np.int64)
    np.maximum.at(last, codes, times[here])
    found = np.bincount(codes, minlength=len(names))
    for name, count, time in zip(names, found.tolist(), last.tolist(), strict=True):
        if count:
            counts[name], latest[name] = count, time


def _decoded(column: pa.Array, serde: AnySerde | None) -> list[object]:
    if serde in TEXT_SERDES:
        text: list[object] = column.cast(pa.string()).to_pylist()
        return text
    assert serde is not None
    return [serde.deserialize(data) for data in column.to_pylist()]


def _indices(order: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(order)


def _no_dead_letters(topic: str, record: Record) -> None:
    raise AssertionError(f"an application with the dead letter topic {topic} has another strategy")


@dataclass(slots=True)
class FinishingStage:
    """Called by Spark with counts that have changed; yields rows for the sink."""

    plan: Plan
    tasks: Tasks
    started_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark in each task, or by the driver for a small batch."""
        topology = self.plan.topology
        counts = self.plan.plain_counts
        by_store = {node.operator.store: node for node in counts if isinstance(node.operator, op.Aggregate)}
        collector = RowCollector(self.plan, self.tasks, add_up=False)
        behind = nodes_behind(counts)
        nodes = [node for node in topology.nodes.values() if node.name in behind]
        task = Task(nodes, {}, collector.emit, now_ms=lambda: self.started_ms)
        for batch in batches:
            columns = [batch.column(at).to_pylist() for at in (0, 2, 3, 4)]
            for store, name, records, time in zip(*columns, strict=True):
                collector.begin(0, 0, 0, time)
                record = Record(decode_key(name), Change(records, None), time)
                for child in by_store[store].children:
                    task.process(child.name, record)
            if len(collector):
                yield arrow_rows(collector)
