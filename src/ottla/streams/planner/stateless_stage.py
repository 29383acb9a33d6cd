"""Stage 0: all nodes before the first shuffle, as one mapInArrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ottla.pipeline.worker_memory import task_begins
from ottla.streams.graph.operators import Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.task import Task
from ottla.streams.planner.plan import Plan
from ottla.streams.planner.row_collector import RowCollector
from ottla.streams.planner.rows import COLUMNS, Tasks, have_headers, read_headers
from ottla.streams.records import Record

MAX_ROWS: Final = 50_000
MAX_SUMS: Final = 200_000
LANES_PER_TOPIC: Final = 1 << 16


def arrow_schema() -> pa.Schema:
    """The schema of rows between stages."""
    kinds = {
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema([(name, kinds.get(kind, headers)) for name, kind in COLUMNS])


@dataclass(slots=True)
class StatelessStage:
    """Called by Spark with batches of records as they were read; yields rows for later stages."""

    plan: Plan
    tasks: Tasks
    started_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark in each task."""
        task_begins()
        collector = RowCollector(self.plan, self.tasks, add_up=True)
        task = Task(self.plan.stages[0].nodes, {}, collector.emit, now_ms=lambda: self.started_ms)
        sources = self._sources()
        lanes = {topic: number for number, topic in enumerate(self.plan.topology.source_topics())}
        arrived: dict[int, int] = {}
        for batch in batches:
            self._process(batch, task, collector, sources, lanes, arrived)
            if len(collector) >= MAX_ROWS:
                yield arrow_rows(collector)
            if collector.sums >= MAX_SUMS:
                collector.add_sums()
        collector.add_sums()
        if len(collector):
            yield arrow_rows(collector)

    def _sources(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.plan.topology.sources:
            if isinstance(node.operator, Source) and not node.operator.internal:
                for topic in node.operator.topics:
                    found.setdefault(topic, []).append(node)
        return found

    def _process(
        self,
        batch: pa.RecordBatch,
        task: Task,
        collector: RowCollector,
        sources: dict[str, list[Node]],
        lanes: dict[str, int],
        arrived: dict[int, int],
    ) -> None:
        columns = [
            batch.column(name).to_pylist()
            for name in ("topic", "partition", "offset", "key", "value", "time")
        ]
        shown = batch.column("headers").to_pylist() if have_headers(batch) else None
        stage_of = self.plan.stage_of
        for row, (topic, partition, offset, key, value, time) in enumerate(zip(*columns, strict=True)):
            raw = Record(key, value, time, read_headers(shown[row]) if shown is not None else ())
            lane = lanes[topic] * LANES_PER_TOPIC + partition
            arrived[lane] = max(time, arrived.get(lane, 0))
            collector.begin(partition, lane, offset, arrived[lane])
            for node in sources[topic]:
                if stage_of[node.name] > 0:
                    collector.pass_on(node, raw, topic)
                    continue
                source = node.operator
                assert isinstance(source, Source)
                metadata = RecordMetadata(topic, partition, offset)
                read_source(task, node, source, raw, metadata, collector.emit_raw)


def arrow_rows(collector: RowCollector) -> pa.RecordBatch:
    """The rows of a collector, which is empty afterwards."""
    columns, schema = collector.take(), arrow_schema()
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )
