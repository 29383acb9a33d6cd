"""Collects the output of a stage as columns: rows for later stages, and finished records."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.pipeline.partitions import choose_partitions
from ottla.streams.graph.operators import Sink, Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.task import is_global
from ottla.streams.planner.count_patterns import preaggregable_count
from ottla.streams.planner.plan import OUT, Plan
from ottla.streams.planner.rows import NAMES, Tasks, pack, partition_bytes, sink_bytes
from ottla.streams.records import Headers, PartialCount, Record

_SHUFFLE: Final = -1
"""The task follows from the hash of the key, and is computed for whole columns at once."""


@dataclass(slots=True)
class _Sum:
    """The count of a key so far, its latest time, and the origin of its first record."""

    records: int
    latest: int
    sink: Sink
    key: object
    lane: int
    place: int
    arrived: int


class RowCollector:
    """Rows as lists of columns; `lane` and `place` are those of the current record."""

    def __init__(self, plan: Plan, tasks: Tasks, *, add_up: bool) -> None:
        self._plan = plan
        self._tasks = tasks
        self._index = {id(node): number for number, node in enumerate(plan.nodes)}
        self._ways: dict[str, list[tuple[int, int, bool]]] = {}
        for node in plan.nodes:
            if isinstance(node.operator, Source) and node.operator.internal:
                topic = node.operator.topics[0]
                adds = add_up and preaggregable_count(node) is not None
                self._ways.setdefault(topic, []).append(
                    (plan.stage_of[node.name], self._index[id(node)], adds)
                )
        self._sums: dict[tuple[int, int, bytes], _Sum] = {}
        self.task = 0
        self.lane = 0
        self.place = 0
        self.arrived = 0
        self._sub = 0
        self._clear()

    def _clear(self) -> None:
        self._columns: list[list[object]] = [[] for _ in NAMES]
        self._hashed: list[bytes | None] = []

    def begin(self, task: int, lane: int, place: int, arrived: int) -> None:
        """Sets the origin of the rows that follow."""
        self.task, self.lane, self.place, self.arrived, self._sub = task, lane, place, arrived, 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def emit(self, node: Node, record: Record) -> None:
        """Adds what leaves a task; this is the task's `emit`."""
        operator = node.operator
        if not isinstance(operator, Sink):
            key, value = pack(record)
            stage = self._plan.stage_of[node.name]
            self._row(stage, self._index[id(node)], self.task, None, key, value, record, b"")
        elif operator.internal:
            self._repartition(operator, record)
        else:
            topic = operator.topic if isinstance(operator.topic, str) else operator.topic.of_record(record)
            key, value_bytes = sink_bytes(operator, record)
            dest = self._index[id(node)]
            partition = -1
            if operator.partitioner is not None:
                partitions = self._plan.sink_partitions.get(topic, self._tasks.count)
                chosen = operator.partitioner(record.key, record.value, partitions)
                partition = -1 if chosen is None else chosen
            self._row(OUT, dest, partition, topic, key, value_bytes, record, b"")

    def emit_raw(self, topic: str, record: Record) -> None:
        """Adds a record whose bytes are final, such as a dead letter."""
        self._row(OUT, -1, -1, topic, record.key, record.value, record, b"")

    def pass_on(self, node: Node, raw: Record, topic: str) -> None:
        """Adds a record that a later stage reads first: for its partition's task, or for all with a global table."""
        stage, dest = self._plan.stage_of[node.name], self._index[id(node)]
        for task in range(self._tasks.count) if is_global(node) else (self.task,):
            self._row(stage, dest, task, topic, raw.key, raw.value, raw, b"")

    @property
    def sums(self) -> int:
        """The number of keys that are being counted."""
        return len(self._sums)

    def _repartition(self, sink: Sink, record: Record) -> None:
        assert isinstance(sink.topic, str)
        hashed: bytes | None = None
        for stage, dest, adds in self._ways[sink.topic]:
            if adds:
                self._add_up(stage, dest, sink, record)
                continue
            key, value = pack(record)
            hashed = partition_bytes(sink, record.key) if hashed is None else hashed
            self._row(stage, dest, _SHUFFLE, None, key, value, record, hashed)

    def _add_up(self, stage: int, dest: int, sink: Sink, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        name = (stage, dest, encode_key(record.key))
        held = self._sums.get(name)
        if held is None:
            self._sums[name] = _Sum(
                1, record.timestamp, sink, record.key, self.lane, self.place, self.arrived
            )
        else:
            held.records += 1
            if record.timestamp > held.latest:
                held.latest = record.timestamp

    def add_sums(self) -> None:
        """Adds the counts so far as rows."""
        sums, self._sums = self._sums, {}
        for (stage, dest, name), one in sums.items():
            self.begin(0, one.lane, one.place, one.arrived)
            value = pickle.dumps(PartialCount(one.records), 5)
            record = Record(one.key, None, one.latest)
            hashed = partition_bytes(one.sink, one.key)
            self._row(stage, dest, _SHUFFLE, None, name, value, record, hashed)

    def _row(
        self,
        stage: int,
        dest: int,
        task: int,
        topic: str | None,
        key: bytes | None,
        value: bytes | None,
        record: Record,
        hashed: bytes | None,
    ) -> None:
        columns = self._columns
        columns[1].append(stage)
        columns[2].append(dest)
        columns[3].append(task)
        columns[4].append(topic)
        columns[5].append(key)
        columns[6].append(value)
        columns[7].append(record.timestamp)
        columns[8].append(_headers(record.headers) if record.headers else [])
        columns[9].append(self.lane)
        columns[10].append(self.place)
        columns[11].append(self._sub)
        columns[12].append(self.arrived)
        columns[0].append(None)
        self._hashed.append(hashed)
        self._sub += 1

    def take(self) -> dict[str, list[object] | npt.NDArray[np.int32]]:
        """The columns so far, with tasks and groups filled in; the collector is empty afterwards."""
        columns: dict[str, list[object] | npt.NDArray[np.int32]] = dict(
            zip(NAMES, self._columns, strict=True)
        )
        task = np.array(columns["task"], np.int32)
        stage = np.array(columns["stage"], np.int32)
        shuffled = np.flatnonzero((task == _SHUFFLE) & (stage != OUT))
        if len(shuffled):
            hashed = self._hashed
            keys = pa.array([hashed[at] for at in shuffled.tolist()], pa.binary())
            task[shuffled] = choose_partitions(keys, len(keys), self._tasks.count, 0)
        groups = np.array(self._tasks.groups, np.int32)
        columns["task"] = task
        columns["stage"] = stage
        columns["group"] = groups[np.where(task < 0, 0, task) % len(groups)]
        self._clear()
        return columns


def _headers(headers: Headers) -> list[dict[str, str | bytes | None]]:
    return [{"key": name, "value": value} for name, value in headers]
