"""Tasks, the unit of work of a streams group: a partition of a subtopology, active, standby or warm-up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar


class TaskId(NamedTuple):
    """One task: sorts by subtopology, then by partition."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


_NO_TASKS: Final[frozenset[TaskId]] = frozenset()


@dataclass(frozen=True, slots=True)
class Tasks:
    """The target tasks of a member, or those that it reports."""

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
    """The assigned tasks of a member; active tasks with the epoch of their assignment."""

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


class TaskIds(Protocol):
    """The `TaskIds` struct of a message or record: each has its own class."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


Struct = TypeVar("Struct", bound=TaskIds)


def task_ids(groups: Iterable[TaskIds]) -> frozenset[TaskId]:
    """Tasks from the `TaskIds` structs of a message."""
    return frozenset(TaskId(group.subtopology_id, index) for group in groups for index in group.partitions)


def by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """The partitions of each subtopology, sorted: the form of messages and records."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for subtopology, partition in sorted(tasks):
        grouped[subtopology].append(partition)
    return grouped


def task_structs(struct: Callable[..., Struct], tasks: Iterable[TaskId]) -> list[Struct]:
    """Tasks as `TaskIds` structs of the given class."""
    return [
        struct(subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in by_subtopology(tasks).items()
    ]
