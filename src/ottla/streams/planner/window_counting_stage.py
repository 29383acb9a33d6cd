"""Counts in windows that are added up where records are read: far fewer rows are shuffled and looked at again.

Exact because one task reads a partition in its order. What it cannot know, which windows were closed before this batch,
is the same for all records of a window, and left to the stage that has the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ottla.streams.graph.operators import Source, WindowAggregate
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.stores import NEVER
from ottla.streams.interpreter.task import Task
from ottla.streams.planner.count_patterns import TEXT_SERDES
from ottla.streams.planner.plan import Plan, WindowedCount
from ottla.streams.planner.rows import Tasks, by_partition
from ottla.streams.planner.stateless_stage import arrow_schema
from ottla.streams.planner.window_counts import (
    Ints,
    WindowCounts,
    count_windows,
    summed,
)
from ottla.streams.records import Record

MAX_ROWS: Final = 200_000
"""So many counts are held before they are handed on."""


@dataclass(slots=True)
class WindowCountingStage:
    """Called by Spark with batches of records as they were read; gives rows that `counts_of_rows` understands."""

    plan: Plan
    tasks: Tasks
    started_ms: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        ways = self.plan.windowed_counts
        observed: dict[tuple[str, int], int] = {}
        held: dict[tuple[str, int], list[tuple[Any, WindowCounts]]] = {}
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
                told = count_windows(operator.windows, codes, times, before)
                observed[topic, partition] = told.observed
                if len(told.codes):
                    held.setdefault((topic, partition), []).append((keys.dictionary, told))
                    rows += len(told.codes)
            if rows >= MAX_ROWS:
                yield from self._take(held, ways)
                rows = 0
        yield from self._take(held, ways)

    def _take(
        self,
        held: dict[tuple[str, int], list[tuple[Any, WindowCounts]]],
        ways: dict[str, WindowedCount],
    ) -> Iterator[Any]:
        """What was counted so far, with one row for each key and window of a partition."""
        for (topic, partition), parts in held.items():
            yield self._rows(ways[topic].counter, partition, *_merged(parts))
        held.clear()

    def _readable(self, node: Node, topic: str, partition: int, part: Any) -> Any:
        """The records that the source's serdes can read; the others are met as the source says."""
        import pyarrow as pa

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

    def _rows(self, counter: Node, task: int, names: Any, told: WindowCounts) -> Any:
        import pyarrow as pa

        rows = len(told.codes)
        given = {
            "group": self.tasks.groups[task % len(self.tasks.groups)],
            "stage": self.plan.stage_of[counter.name],
            "dest": self.plan.index(counter),
            "task": task,
            "key": names.take(pa.array(told.codes)),
            "time": told.latest,
            "place": told.starts,
            "sub": told.counts,
            "arrived": told.observed,
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


def _merged(parts: list[tuple[Any, WindowCounts]]) -> tuple[Any, WindowCounts]:
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    keys = pa.concat_arrays([names.take(pa.array(told.codes)) for names, told in parts]).dictionary_encode()
    counts = (told for _, told in parts)
    starts, records, latest = (
        np.concatenate(column)
        for column in zip(*((told.starts, told.counts, told.latest) for told in counts), strict=True)
    )
    codes = keys.indices.to_numpy().astype(np.int64)
    observed = parts[-1][1].observed
    return keys.dictionary, summed(WindowCounts(codes, starts, records, latest, observed))


def counts_of_rows(columns: dict[str, Any]) -> WindowCounts:
    """What rows of a WindowCountingStage say; the keys are theirs."""
    return WindowCounts(
        np.empty(0, np.int64),
        columns["place"].astype(np.int64),
        columns["sub"].astype(np.int64),
        columns["time"].astype(np.int64),
        int(columns["arrived"].max()),
    )


def _no_dead_letters(topic: str, record: Record) -> None:
    raise AssertionError(f"a source with the dead letter topic {topic} is counted elsewhere")
