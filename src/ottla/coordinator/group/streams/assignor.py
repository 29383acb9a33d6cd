"""The sticky task assignor: even loads, few moves, and standby tasks on other processes than their active task.

A pure function from the members with their previous tasks, and the tasks, to the target of each member.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.coordinator.group.streams.configure import ConfiguredSubtopology
from ottla.coordinator.group.streams.tasks import TaskId, Tasks

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as the assignor sees it: its process, and its previous target."""

    process_id: str
    previous: Tasks


@dataclass(slots=True)
class _Member:
    id: str
    process: _Process
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)

    @property
    def task_count(self) -> int:
        return len(self.active) + len(self.standby)


@dataclass(slots=True)
class _Process:
    """Members that share a state directory: each task is assigned to at most one of them."""

    index: int
    members: list[_Member] = field(default_factory=list)
    tasks: set[TaskId] = field(default_factory=set)

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def least_loaded(self) -> _Member:
        return min(self.members, key=lambda member: member.task_count)


@dataclass(slots=True)
class _Quota:
    """How many tasks a member may get. When a member reaches it, the rest is divided among the others again."""

    tasks: int
    members: int

    @property
    def per_member(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def taken(self, count: int) -> None:
        """A member has `count` tasks now."""
        if count == self.per_member:
            self.members -= 1
            self.tasks -= count


class StickyTaskAssignor:
    """One computation of a group's target assignment."""

    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        self._standby_replicas = standby_replicas
        self._active_tasks = _tasks(subtopologies)
        self._stateful_tasks = _tasks({id_: one for id_, one in subtopologies.items() if one.stateful})
        total = len(self._active_tasks) + len(self._stateful_tasks) * standby_replicas
        self._active_quota = _Quota(len(self._active_tasks), len(members))
        self._total_quota = _Quota(total, len(members))
        self._processes: dict[str, _Process] = {}
        self._members: dict[str, _Member] = {}
        self._was_active: dict[TaskId, _Member] = {}
        self._was_standby: dict[TaskId, list[_Member]] = defaultdict(list)
        for member_id, spec in sorted(members.items()):
            process = self._processes.setdefault(spec.process_id, _Process(len(self._processes)))
            member = self._members[member_id] = _Member(member_id, process)
            process.members.append(member)
            self._was_active.update(dict.fromkeys(spec.previous.active, member))
            for task in spec.previous.standby:
                self._was_standby[task].append(member)

    def assign(self) -> dict[str, Tasks]:
        """The target of every member. There must be at least one."""
        self._assign_active()
        if self._standby_replicas > 0:
            self._assign_standby()
        return {
            member.id: Tasks(frozenset(member.active), frozenset(member.standby))
            for member in self._members.values()
        }

    # -- active tasks

    def _assign_active(self) -> None:
        # Partition by partition, so that a member that loses tasks keeps some of every subtopology.
        waiting = sorted(self._active_tasks, key=lambda task: (task.partition, task.subtopology))
        waiting = [task for task in waiting if not self._to_previous_active(task)]
        waiting = [task for task in waiting if not self._to_previous_standby(task)]
        queue = [(process.load, process.index, process) for process in self._processes.values()]
        heapq.heapify(queue)
        for task in sorted(waiting):
            _, _, process = heapq.heappop(queue)
            self._give_active(process.least_loaded(), task)
            heapq.heappush(queue, (process.load, process.index, process))

    def _to_previous_active(self, task: TaskId) -> bool:
        member = self._was_active.get(task)
        return member is not None and self._give_active_within_quota(member, task)

    def _to_previous_standby(self, task: TaskId) -> bool:
        member = self._least_loaded(self._was_standby.get(task, []))
        return member is not None and self._give_active_within_quota(member, task)

    def _give_active_within_quota(self, member: _Member, task: TaskId) -> bool:
        if member.task_count >= self._active_quota.per_member:
            return False
        self._give_active(member, task)
        return True

    def _give_active(self, member: _Member, task: TaskId) -> None:
        member.active.add(task)
        member.process.tasks.add(task)
        self._active_quota.taken(member.task_count)
        self._total_quota.taken(member.task_count)

    # -- standby tasks

    def _assign_standby(self) -> None:
        # In reverse order, so that the partitions that come last for active tasks come first here.
        waiting = sorted(
            self._stateful_tasks, key=lambda task: (task.partition, task.subtopology), reverse=True
        )
        to_least_loaded = []
        for task in waiting:
            left = self._standby_replicas
            while left and self._standby_to_previous(task):
                left -= 1
            if left:
                to_least_loaded.append((task, left))
        missing = 0
        for task, left in sorted(to_least_loaded, reverse=True):
            given = 0
            while given < left and self._standby_to_least_loaded(task):
                given += 1
            missing += left - given
        if missing:
            _logger.warning("%d standby tasks cannot be assigned: there are not enough processes.", missing)

    def _standby_to_previous(self, task: TaskId) -> bool:
        before = self._was_active.get(task)
        candidates = [] if before is None else [before]
        standby = self._least_loaded(
            [member for member in self._was_standby.get(task, []) if task not in member.process.tasks]
        )
        if standby is not None:
            candidates.append(standby)
        for member in candidates:
            if task not in member.process.tasks and member.task_count < self._total_quota.per_member:
                self._give_standby(member, task)
                return True
        return False

    def _standby_to_least_loaded(self, task: TaskId) -> bool:
        free = [process for process in self._processes.values() if task not in process.tasks]
        if not free:
            return False
        process = min(free, key=lambda process: (process.load, process.index))
        self._give_standby(process.least_loaded(), task)
        return True

    def _give_standby(self, member: _Member, task: TaskId) -> None:
        member.standby.add(task)
        member.process.tasks.add(task)
        self._total_quota.taken(member.task_count)

    @staticmethod
    def _least_loaded(members: list[_Member]) -> _Member | None:
        return min(members, key=lambda member: (member.process.load, member.task_count), default=None)


def _tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> list[TaskId]:
    return [TaskId(id_, index) for id_, one in subtopologies.items() for index in range(one.task_count)]
