"""The unit of work of a streams group: a partition of a subtopology, active, standby or warming up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Message = Any
"""An instance of a message class compiled from the schema table (see `ottla.wire.messages`)."""


class TaskId(NamedTuple):
    """One task: sorts by subtopology, then by partition."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


_NO_TASKS: Final[frozenset[TaskId]] = frozenset()


@dataclass(frozen=True, slots=True)
class Tasks:
    """What a member should have, or says that it has."""

    active: frozenset[TaskId] = _NO_TASKS
    standby: frozenset[TaskId] = _NO_TASKS
    warmup: frozenset[TaskId] = _NO_TASKS

    @property
    def empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, other: OwnedTasks) -> bool:
        """Whether some task is in both, in the same role."""
        return bool(
            self.active & other.active.keys() or self.standby & other.standby or self.warmup & other.warmup
        )


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """What a member has been given; an active task with the epoch at which it was."""

    active: Mapping[TaskId, int] = field(default_factory=dict)
    standby: frozenset[TaskId] = _NO_TASKS
    warmup: frozenset[TaskId] = _NO_TASKS

    @property
    def empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> Tasks:
        return Tasks(frozenset(self.active), self.standby, self.warmup)

    def merge(self, other: OwnedTasks) -> OwnedTasks:
        return OwnedTasks(
            {**self.active, **other.active}, self.standby | other.standby, self.warmup | other.warmup
        )

    def covers(self, tasks: Tasks) -> bool:
        """Whether each of the tasks is owned in its role."""
        return (
            tasks.active <= self.active.keys()
            and tasks.standby <= self.standby
            and tasks.warmup <= self.warmup
        )


NO_TASKS: Final = Tasks()
NO_OWNED_TASKS: Final = OwnedTasks()


def task_ids(groups: Iterable[Message]) -> frozenset[TaskId]:
    """The `TaskIds` structs of a message, as tasks."""
    return frozenset(TaskId(group.subtopology_id, index) for group in groups for index in group.partitions)


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """The partitions of each subtopology, all in order: how messages and records carry tasks."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for subtopology, partition in sorted(tasks):
        grouped[subtopology].append(partition)
    return grouped


def task_structs(struct: type[Any], tasks: Iterable[TaskId]) -> list[Message]:
    """Tasks as `TaskIds` structs of a message (`struct` is that message's class for them)."""
    return [
        struct(subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in by_subtopology(tasks).items()
    ]
