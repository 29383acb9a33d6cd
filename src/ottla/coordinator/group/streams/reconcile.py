"""One step of a member towards its target: first it revokes tasks, then it gets tasks that are free.

A pure function. A task is free when no process runs it as active, and when the member's own process has it in no role,
since a state directory cannot be used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from typing import Protocol

from ottla.coordinator.group.streams.member import MemberState, StreamsMember
from ottla.coordinator.group.streams.tasks import NO_OWNED_TASKS, OwnedTasks, TaskId, Tasks
from ottla.errors import ApiException, ErrorCode


class TaskOwners(Protocol):
    """The processes that have a task, including tasks that they have yet to revoke."""

    def active_process(self, task: TaskId) -> str | None: ...

    def standby_processes(self, task: TaskId) -> Set[str]: ...

    def warmup_processes(self, task: TaskId) -> Set[str]: ...


def reconcile(
    member: StreamsMember, target_epoch: int, target: Tasks, owners: TaskOwners, owned: Tasks | None
) -> StreamsMember:
    """The member after this step. `owned` are the tasks that it reports; None when it reports none at all."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _next_assignment(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNREVOKED_TASKS:
            if owned is None or owned.overlaps(member.pending_revocation):
                return member
            # It has revoked everything, which takes an epoch of its own. Its target may be a newer one by now.
            return _next_assignment(member, member.epoch + 1, target_epoch, target, owners, owned)
        case MemberState.UNRELEASED_TASKS:
            return _next_assignment(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNKNOWN:
            # A newer version wrote the state: only a member without tasks can continue.
            if owned is None or not owned.empty:
                raise ApiException(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in an unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next_assignment(member, target_epoch, target_epoch, target, owners, owned)


def _next_assignment(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: Tasks,
    owners: TaskOwners,
    owned: Tasks | None,
) -> StreamsMember:
    process, assigned = member.process_id, member.assigned

    def held_by_own_process(task: TaskId) -> bool:
        return process in owners.standby_processes(task) or process in owners.warmup_processes(task)

    def active_is_held(task: TaskId) -> bool:
        return owners.active_process(task) is not None or held_by_own_process(task)

    def replica_is_held(task: TaskId) -> bool:
        return owners.active_process(task) == process or held_by_own_process(task)

    new_active = _free(target.active - assigned.active.keys(), active_is_held)
    new_standby = _free(target.standby - assigned.standby, replica_is_held)
    new_warmup = _free(target.warmup - assigned.warmup, replica_is_held)
    kept = OwnedTasks(
        {task: since for task, since in assigned.active.items() if task in target.active},
        assigned.standby & target.standby,
        assigned.warmup & target.warmup,
    )
    revoked = OwnedTasks(
        {task: since for task, since in assigned.active.items() if task not in target.active},
        assigned.standby - target.standby,
        assigned.warmup - target.warmup,
    )
    if not revoked.empty and (owned is None or owned.overlaps(revoked)):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    given = kept.merge(OwnedTasks(dict.fromkeys(new_active, target_epoch), new_standby, new_warmup))
    return replace(
        member,
        state=MemberState.STABLE if given_all(given, target) else MemberState.UNRELEASED_TASKS,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=given,
        pending_revocation=NO_OWNED_TASKS,
    )


def _free(tasks: Iterable[TaskId], held: Callable[[TaskId], bool]) -> frozenset[TaskId]:
    return frozenset(task for task in tasks if not held(task))


def given_all(given: OwnedTasks, target: Tasks) -> bool:
    return given.covers(target)
