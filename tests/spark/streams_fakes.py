"""Runs the stages of a plan in this process on dictionaries: Spark's work without Spark's start-up time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.streams.planner.counting_stage import CountingStage, FinishingStage
from ottla.streams.planner.plan import OUT, Plan, Strategy
from ottla.streams.planner.rows import NAMES, Tasks
from ottla.streams.planner.stateful_stage import StatefulStage
from ottla.streams.planner.stateless_stage import StatelessStage
from ottla.streams.planner.window_counting_stage import WindowCountingStage
from spark.streams_batches import Arrived, Output


class FakeMap:
    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def getValue(self, key: Any) -> Any:
        return self.held.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def removeKey(self, key: Any) -> None:
        self.held.pop(key, None)

    def iterator(self) -> Any:
        return iter(list(self.held.items()))


class FakeValue:
    def __init__(self) -> None:
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class FakeHandle:
    def getMapState(self, *_: Any) -> FakeMap:
        return FakeMap()

    def getValueState(self, *_: Any) -> FakeValue:
        return FakeValue()


class FakeSpark:
    """Keeps the state of every stage and group from batch to batch; `forgetful` workers keep nothing in memory."""

    def __init__(self, plan: Plan, tasks: Tasks, *, forgetful: bool = False) -> None:
        self._plan = plan
        self._tasks = tasks
        self._forgetful = forgetful
        self._stages: dict[tuple[int, int], StatefulStage] = {}

    def run(self, batch: list[Arrived]) -> list[Output]:
        import pandas as pd

        rows = pd.concat(
            [one.to_pandas() for one in self._first_rows(batch)] or [pd.DataFrame(columns=NAMES)]
        )
        for stage in self._plan.stages[1:]:
            frames = [
                out
                for group, frame in rows.groupby("group", sort=True)
                for out in self._stage(stage.number, int(group)).handleInputRows(
                    (group,), iter([frame]), None
                )
            ]
            rows = pd.concat([pd.DataFrame(frame, columns=NAMES) for frame in frames] or [rows.iloc[:0]])
        return output(rows)

    def _first_rows(self, batch: list[Arrived]) -> Iterator[Any]:
        if self._plan.strategy is not Strategy.WINDOWED_COUNTS:
            yield from StatelessStage(self._plan, self._tasks, 0)(iter([arrived_columns(batch)]))
            return
        for place in sorted({(one.topic, one.partition) for one in batch}):
            mine = [one for one in batch if (one.topic, one.partition) == place]
            # As Spark does it: a task for each partition, which gets its records in several pieces.
            pieces = [arrived_columns(mine[at : at + 37]) for at in range(0, len(mine), 37)]
            yield from WindowCountingStage(self._plan, self._tasks, 0)(iter(pieces))

    def _stage(self, number: int, group: int) -> StatefulStage:
        from ottla.streams.planner import state

        if self._forgetful:
            state._remembered.clear()
        if (number, group) not in self._stages:
            stage = StatefulStage(self._plan, number, self._tasks, f"run-{id(self)}", uses_timers=False)
            stage.init(FakeHandle())  # type: ignore[arg-type]
            self._stages[number, group] = stage
        return self._stages[number, group]


class FakeCounts:
    """An application that only counts, with a dictionary in the place of Spark's aggregation."""

    def __init__(self, plan: Plan, tasks: Tasks) -> None:
        self._plan = plan
        self._tasks = tasks
        self.held: dict[tuple[str, int, bytes], tuple[int, int]] = {}

    def run(self, batch: list[Arrived]) -> list[Output]:
        """Each partition of each topic is read by a task of its own, as Spark does it."""
        import pandas as pd
        import pyarrow as pa

        changed = {}
        for topic, partition in sorted({(one.topic, one.partition) for one in batch}):
            mine = [one for one in batch if (one.topic, one.partition) == (topic, partition)]
            for counted in CountingStage(self._plan, 0)(iter([arrived_columns(mine)])):
                for row in counted.to_pylist():
                    name = row["store"], row["task"], row["name"]
                    records, time = self.held.get(name, (0, -1))
                    changed[name] = self.held[name] = records + row["records"], max(time, row["time"])
        rows = [
            {"store": store, "task": task, "name": name, "records": records, "time": time}
            for (store, task, name), (records, time) in changed.items()
        ]
        if not rows:
            return []
        finish = FinishingStage(self._plan, self._tasks, 0)
        out = [one.to_pandas() for one in finish(iter([pa.RecordBatch.from_pylist(rows)]))]
        return output(pd.concat(out))


def arrived_columns(batch: list[Arrived]) -> Any:
    """Records as Spark gives them to the stage that reads them."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    topics, partitions, offsets, keys, values, times = zip(*batch, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(topics),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(times, pa.int64()),
            pa.array([None] * len(batch), headers),
        ],
        names=["topic", "partition", "offset", "key", "value", "time", "headers"],
    )


def output(rows: Any) -> list[Output]:
    done = rows[rows["stage"] == OUT]
    return [Output(row.topic, _bytes(row.key), _bytes(row.value), int(row.time)) for row in done.itertuples()]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
