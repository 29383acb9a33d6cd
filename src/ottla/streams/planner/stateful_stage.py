"""A stage with state: the tasks of its nodes, each a group of Spark's transformWithState.

The content of the stores is Spark's state: Spark partitions, checkpoints and recovers it.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from ottla.pipeline.worker_memory import task_begins
from ottla.streams.graph.operators import GlobalTableSource, Source, TableReplica
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.store_factory import make_stores
from ottla.streams.interpreter.task import Task, is_global
from ottla.streams.interpreter.windowed import WindowAggregateProcessor
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.row_collector import RowCollector
from ottla.streams.planner.rows import NAMES, Columns, Tasks, arrival_order, is_raw, read_headers, unpack
from ottla.streams.planner.state import Extent, Known, SparkMap, recall, remember
from ottla.streams.planner.window_counting_stage import counts_of_rows
from ottla.streams.planner.window_counts import (
    add_counts,
    count_columns,
    is_readable,
    key_reader,
)
from ottla.streams.records import Record

_FIRST: Final = 0
_THEN: Final = 1

# Not as text: the JVM would parse it twice for each variable in every batch.
_BUCKET_KEY = StructType([StructField("bucket", IntegerType())])
_BUCKET_VALUE = StructType([StructField("entries", BinaryType())])
_FACTS = StructType([StructField("token", BinaryType()), StructField("held", BinaryType())])


def state_name(store: str) -> str:
    """A name for Spark's state variable: letters, digits and underscores."""
    return "store_" + "".join(letter if letter.isalnum() else f"_{ord(letter):x}_" for letter in store)


class StatefulStage(StatefulProcessor):
    """Called by Spark with the rows of each group; yields rows for later stages and the sink."""

    def __init__(self, plan: Plan, number: int, tasks: Tasks, run: str, *, uses_timers: bool) -> None:
        self._plan = plan
        self._stage = plan.stages[number]
        self._tasks = tasks
        self._run = run
        self._uses_timers = uses_timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark for each task and batch."""
        task_begins()
        self._handle = handle
        self._maps = {
            store: handle.getMapState(state_name(store), _BUCKET_KEY, _BUCKET_VALUE)
            for store in self._stage.stores
        }
        self._facts = handle.getValueState("facts", _FACTS)
        self._task_of = {group: task for task, group in enumerate(self._tasks.groups)}
        self._counters = {
            number: counter
            for number, counter in self._plan.column_counters.items()
            if self._plan.stage_of[self._plan.nodes[number].name] == self._stage.number
        }
        self._added_up = {
            self._plan.index(counter): source for source, counter in self._plan.windowed_counts.values()
        }
        self._order = {
            number: _FIRST if _comes_first(node) else _THEN for number, node in enumerate(self._plan.nodes)
        }

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Called by Spark with the rows of a group."""
        mine, passing = self._read(rows)
        yield from passing
        group = int(key[0])
        work = _Work(self, group)
        work.process(mine)
        yield from work.finish()

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[int],
        timerValues: object,  # noqa: N803
        expiredTimerInfo: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Called by Spark when the timer of a group is due."""
        yield from _Work(self, int(key[0])).finish()

    def close(self) -> None:
        """Nothing to do: the state is Spark's."""

    def _read(self, frames: Iterator[pd.DataFrame]) -> tuple[Columns, list[pd.DataFrame]]:
        """The rows of this stage as columns, and frames of the rows for later stages."""
        kept: list[pd.DataFrame] = []
        passing: list[pd.DataFrame] = []
        number = self._stage.number
        for frame in frames:
            mine = frame["stage"].to_numpy() == number
            if mine.all():
                kept.append(frame)
            else:
                passing.append(frame[~mine])
                kept.append(frame[mine])
        columns = {name: np.concatenate([frame[name].to_numpy() for frame in kept]) for name in NAMES[2:]}
        return columns, passing


def _comes_first(node: Node) -> bool:
    return is_global(node) or isinstance(node.operator, (GlobalTableSource, TableReplica))


class _Work:
    """One group's part of one batch."""

    def __init__(self, stage: StatefulStage, group: int) -> None:
        self._stage = stage
        self._group = group
        self._task_number = stage._task_of[group]
        facts = stage._facts.get()
        token = None if facts is None else bytes(facts[0])
        self._extents: dict[str, Extent]
        scalars, self._extents = ({}, {}) if facts is None else pickle.loads(facts[1])
        self._known = recall(stage._run, stage._stage.number, group, token)
        self._maps = {
            store: SparkMap(
                state, self._known.setdefault(store, Known()), self._extents.setdefault(store, Extent())
            )
            for store, state in stage._maps.items()
        }
        topology = stage._plan.topology
        stores = make_stores((topology.stores[store] for store in self._maps), self._maps.__getitem__)
        self._collector = RowCollector(stage._plan, stage._tasks, add_up=False)
        self._task = Task(
            stage._stage.nodes,
            stores,
            self._collector.emit,
            now_ms=_now_ms,
            scalars=scalars,
            cache_changes=True,
        )

    def process(self, columns: Columns) -> None:
        columns = self._count_at_once(self._add_counts(columns))
        dests = columns["dest"]
        order = arrival_order(columns["lane"], columns["place"], columns["sub"], columns["arrived"])
        first = np.array([self._stage._order[dest] for dest in dests[order].tolist()], np.int8)
        if len(first) and first.min() != first.max():
            order = order[np.argsort(first, kind="stable")]
        nodes = self._stage._plan.nodes
        raws = [is_raw(node) for node in nodes]
        collector, task = self._collector, self._task
        rows = zip(
            *(columns[name][order].tolist() for name in ("dest", "topic", "key", "value", "time", "headers")),
            columns["place"][order].tolist(),
            columns["arrived"][order].tolist(),
            strict=True,
        )
        for number, (dest, topic, key, value, at, headers, place, arrived) in enumerate(rows):
            node = nodes[dest]
            collector.begin(self._task_number, self._task_number, number, arrived)
            if raws[dest]:
                source = node.operator
                assert isinstance(source, Source)
                raw = Record(_bytes(key), _bytes(value), at, read_headers(headers))
                metadata = RecordMetadata(topic, self._task_number, place)
                read_source(task, node, source, raw, metadata, collector.emit_raw)
            else:
                task.process(node.name, unpack(_bytes(key), value, at, headers))

    def _add_counts(self, columns: Columns) -> Columns:
        """Adds what was counted where it was read; returns the other rows."""
        stage = self._stage
        for dest, node in stage._added_up.items():
            mine = columns["dest"] == dest
            if not mine.any():
                continue
            part = {name: column[mine] for name, column in columns.items()}
            processor = self._task.processor(stage._plan.nodes[dest].name)
            assert isinstance(processor, WindowAggregateProcessor) and isinstance(node.operator, Source)
            counted = counts_of_rows(part)
            add_counts(processor, key_reader(node.operator), part["key"], counted)
            self._task.stream_time = max(self._task.stream_time, counted.observed)
            columns = {name: column[~mine] for name, column in columns.items()}
        return columns

    def _count_at_once(self, columns: Columns) -> Columns:
        """Counts the rows that can be counted by columns; returns the others."""
        stage = self._stage
        for dest, counter in stage._counters.items():
            mine = columns["dest"] == dest
            if not mine.any():
                continue
            source = stage._plan.nodes[dest].operator
            assert isinstance(source, Source)
            part = {name: column[mine] for name, column in columns.items()}
            if not is_readable(source, part["key"].tolist(), part["value"].tolist()):
                continue
            order = arrival_order(part["lane"], part["place"], part["sub"], part["arrived"])
            processor = self._task.processor(counter)
            assert isinstance(processor, WindowAggregateProcessor)
            latest = count_columns(processor, key_reader(source), part["key"][order], part["time"][order])
            self._task.stream_time = max(self._task.stream_time, latest)
            columns = {name: column[~mine] for name, column in columns.items()}
        return columns

    def finish(self) -> Iterator[pd.DataFrame]:
        """Calls timers, flushes cached changes, and writes all changes into Spark's state."""
        self._collector.begin(self._task_number, self._task_number, 1 << 40, self._task.stream_time)
        self._task.punctuate_wall_clock()
        self._task.flush()
        for entries in self._maps.values():
            entries.write_back()
        token = os.urandom(12)
        stage = self._stage
        stage._facts.update((token, pickle.dumps((self._task.save(), self._extents), 5)))
        remember(stage._run, stage._stage.number, self._group, token, self._known)
        if stage._uses_timers:
            self._register_timer()
        self._task.close()
        if len(self._collector):
            yield pd.DataFrame(self._collector.take())

    def _register_timer(self) -> None:
        due = self._task.next_wall_clock_ms()
        handle = self._stage._handle
        for known in list(handle.listTimers()):
            handle.deleteTimer(known)
        if due is not None:
            handle.registerTimer(max(due, _now_ms() + 1))


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
