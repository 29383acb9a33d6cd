"""Counts in windows, added up where records are read: far fewer rows are shuffled.

The counts are exact because one task reads a partition in its order. Which windows were closed before this batch is the
same for all records of a window; the stage with the state decides that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.pipeline.worker_memory import task_begins
from ottla.streams.graph.operators import Source, WindowAggregate
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.stores import NEVER
from ottla.streams.interpreter.task import Task
from ottla.streams.planner.count_patterns import TEXT_SERDES
from ottla.streams.planner.plan import Plan, WindowedCount
from ottla.streams.planner.rows import Columns, Tasks, by_partition
from ottla.streams.planner.stateless_stage import arrow_schema
from ottla.streams.planner.window_counts import (
    Ints,
    WindowCounts,
    count_windows,
    summed,
)
from ottla.streams.records import Record

MAX_ROWS: Final = 200_000
"""A task holds this many counts before it passes them on."""


@dataclass(slots=True)
class WindowCountingStage:
    """Called by Spark with batches of records as they were read; yields rows for `counts_of_rows`."""

    plan: Plan
    tasks: Tasks
    started_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark in each task."""
        task_begins()
        ways = self.plan.windowed_counts
        observed: dict[tuple[str, int], int] = {}
        held: dict[tuple[str, int], list[tuple[pa.Array, WindowCounts]]] = {}
        rows = 0
        for batch in batches:
            for topic, partition, part in by_partition(batch):
                source, counter = ways[topic]
                operator = counter.operator
                assert isinstance(operator, WindowAggregate)
                part = self._readable(source, topic, partition, part)
                keys = part.column("key").dictionary_encode()
                codes = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
                times: Ints = part.column("time").to_numpy()
                before = observed.get((topic, partition), NEVER)
                counted = count_windows(operator.windows, codes, times, before)
                observed[topic, partition] = counted.observed
                if len(counted.codes):
                    held.setdefault((topic, partition), []).append((keys.dictionary, counted))
                    rows += len(counted.codes)
            if rows >= MAX_ROWS:
                yield from self._take(held, ways)
                rows = 0
        yield from self._take(held, ways)

    def _take(
        self,
        held: dict[tuple[str, int], list[tuple[pa.Array, WindowCounts]]],
        ways: dict[str, WindowedCount],
    ) -> Iterator[pa.RecordBatch]:
        """The counts so far, one row for each key and window of a partition."""
        for (topic, partition), parts in held.items():
            yield self._rows(ways[topic].counter, partition, *_merged(parts))
        held.clear()

    def _readable(self, node: Node, topic: str, partition: int, part: pa.RecordBatch) -> pa.RecordBatch:
        """The records that the source's serdes can read; the source's rule decides about the others."""
        source = node.operator
        assert isinstance(source, Source)
        try:
            for name, serde in (("key", source.key_serde), ("value", source.value_serde)):
                if serde in TEXT_SERDES:
                    part.column(name).cast(pa.string())
            return part
        except pa.ArrowInvalid:
            good: list[int] = []
            task = Task([node], {}, lambda _, record: good.append(at), now_ms=lambda: self.started_ms)
            columns = [part.column(name).to_pylist() for name in ("offset", "key", "value", "time")]
            for at, (offset, key, value, time) in enumerate(zip(*columns, strict=True)):  # noqa: B007
                metadata = RecordMetadata(topic, partition, offset)
                read_source(task, node, source, Record(key, value, time), metadata, _no_dead_letters)
            return part.take(pa.array(good, pa.int64()))

    def _rows(self, counter: Node, task: int, names: pa.Array, counted: WindowCounts) -> pa.RecordBatch:
        rows = len(counted.codes)
        given = {
            "group": self.tasks.groups[task % len(self.tasks.groups)],
            "stage": self.plan.stage_of[counter.name],
            "dest": self.plan.index(counter),
            "task": task,
            "key": names.take(pa.array(counted.codes)),
            "time": counted.latest,
            "place": counted.starts,
            "sub": counted.counts,
            "arrived": counted.observed,
            "lane": task,
        }
        arrays = []
        for field in arrow_schema():
            value = given.get(field.name)
            if field.name == "headers":
                arrays.append(pa.array([[]] * rows, field.type))
            elif isinstance(value, int):
                arrays.append(pa.array(np.full(rows, value), field.type))
            else:
                arrays.append(
                    pa.nulls(rows, field.type) if value is None else pa.array(value).cast(field.type)
                )
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())


def _merged(parts: list[tuple[pa.Array, WindowCounts]]) -> tuple[pa.Array, WindowCounts]:
    if len(parts) == 1:
        return parts[0]
    keys = pa.concat_arrays(
        [names.take(pa.array(counted.codes)) for names, counted in parts]
    ).dictionary_encode()
    counts = (counted for _, counted in parts)
    starts, records, latest = (
        np.concatenate(column)
        for column in zip(
            *((counted.starts, counted.counts, counted.latest) for counted in counts), strict=True
        )
    )
    codes = keys.indices.to_numpy().astype(np.int64)
    observed = parts[-1][1].observed
    return keys.dictionary, summed(WindowCounts(codes, starts, records, latest, observed))


def counts_of_rows(columns: Columns) -> WindowCounts:
    """The counts in rows of a WindowCountingStage; the keys are in the rows."""
    return WindowCounts(
        np.empty(0, np.int64),
        columns["place"].astype(np.int64),
        columns["sub"].astype(np.int64),
        columns["time"].astype(np.int64),
        int(columns["arrived"].max()),
    )


def _no_dead_letters(topic: str, record: Record) -> None:
    raise AssertionError(f"a source with the dead letter topic {topic} has another strategy")
