"""The manifest of a checkpoint: which stores are where. A change that cannot keep their content is refused."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.streams.errors import StreamsError
from ottla.streams.graph.operators import Process
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.rows import Tasks

_FORMAT: Final = 2
_BEFORE_BUCKETS: Final = 1
"""Formats before buckets: stores had an entry of Spark's state for each key. Plain counts are the same today."""

COUNTS: Final = "plain count"
"""The kind of a store that Spark's own aggregation keeps."""


class CheckpointMismatch(StreamsError):
    """The state of an earlier run does not fit the current application."""


@dataclass(slots=True)
class Manifest:
    """The content of `plan.json`."""

    application_id: str
    groups: list[int]
    stages: list[dict[str, str]]
    """For each stage with state: its stores and their kinds."""
    timers: list[bool]
    topics: list[str]
    strategy: str | None = None
    """The strategy of the plan; manifests of earlier versions do not have it."""

    @property
    def tasks(self) -> Tasks:
        """The tasks that the checkpoint was made with."""
        return Tasks(len(self.groups), tuple(self.groups))

    @property
    def keeps_plain_counts(self) -> bool:
        """Whether Spark's own aggregation keeps the state: only the strategy COUNTS can go on with it."""
        return any(COUNTS in stage.values() for stage in self.stages)

    @classmethod
    def of(cls, application_id: str, plan: Plan, tasks: Tasks) -> Manifest:
        """The manifest of a plan."""
        stores = plan.topology.stores
        counts = plan.strategy is Strategy.COUNTS
        kinds = {name: COUNTS if counts else store.kind.value for name, store in stores.items()}
        return cls(
            application_id,
            list(tasks.groups),
            [{name: kinds[name] for name in stage.stores} for stage in plan.stages[1:]],
            [any(isinstance(node.operator, Process) for node in stage.nodes) for stage in plan.stages[1:]],
            plan.topology.source_topics(),
            plan.strategy.value,
        )

    @classmethod
    def read(cls, path: Path) -> Manifest | None:
        """The manifest in a file; None where there is none yet."""
        if not path.exists():
            return None
        held = json.loads(path.read_text())
        version = held.pop("format", None)
        if version in (_FORMAT, _BEFORE_BUCKETS):
            known = cls(**held)
            if version == _FORMAT or known.keeps_plain_counts or not any(known.stages):
                return known
        raise CheckpointMismatch(
            f"{path} was written by another version of Ottla: use another application id, or begin again with "
            "`ottla streams reset`"
        )

    def write(self, path: Path) -> None:
        """Replaces the file in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        held = {
            "format": _FORMAT,
            "application_id": self.application_id,
            "groups": self.groups,
            "stages": self.stages,
            "timers": self.timers,
            "topics": self.topics,
            "strategy": self.strategy,
        }
        beside.write_text(json.dumps(held, indent=1))
        os.replace(beside, path)

    def check(self, now: Manifest) -> None:
        """Raises CheckpointMismatch if an application with the manifest `now` cannot go on with this state."""
        reason = self._mismatch(now)
        if reason is not None:
            raise CheckpointMismatch(
                f"the state of {self.application_id} cannot be kept: {reason}. Give the changed part another name, "
                f"use another application id, or begin again with `ottla streams reset`"
            )

    def _mismatch(self, now: Manifest) -> str | None:
        if self.application_id != now.application_id:
            return f"the checkpoint belongs to {self.application_id}, not to {now.application_id}"
        if len(self.stages) != len(now.stages):
            return (
                f"the application has {len(now.stages)} shuffles with state now, and had {len(self.stages)}"
            )
        places = {name: number for number, stage in enumerate(now.stages) for name in stage}
        for number, stage in enumerate(self.stages):
            for name, kind in stage.items():
                if places.get(name, number) != number:
                    return f"the store {name} is behind another shuffle than before"
                if now.stages[number].get(name, kind) != kind:
                    return (
                        f"the store {name} was a {kind} store and is a {now.stages[number][name]} store now"
                    )
        if self.timers != now.timers:
            return "process() was added to or taken from a part with state"
        gone = [topic for topic in self.topics if topic not in now.topics]
        return f"{', '.join(gone)} is no longer read" if gone else None
