"""Rebalances of classic groups: how they start, what they wait for, and how they end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordinator.group.classic.group import ClassicGroup, join_key, session_key, sync_key
from ottla.coordinator.group.classic.member import NO_ASSIGNMENT, ClassicMember
from ottla.coordinator.group.classic.records import group_record
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

_logger = logging.getLogger(__name__)

Result = CoordinatorResult[None]

NOTHING: Final[Result] = CoordinatorResult((), None)

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member cannot heartbeat while its first join waits: after this time it counts as dead."""

SHORTEST_FORMING_MS: Final = 50
"""Members that start together join within milliseconds of each other. A member that comes after the first generation
is complete makes all others wait for a heartbeat, which takes seconds. So a new group waits at least this long."""


class Rebalances:
    """The rebalance steps. Each changes the group at once; the records of its result have to be written."""

    __slots__ = ("_context",)

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    # -- starting

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int) -> Result:
        """The members have changed: start a rebalance, or check whether the current one can continue."""
        if group.can_rebalance:
            return self.prepare(group, now_ms)
        return self.maybe_complete_join(group, now_ms)

    def prepare(self, group: ClassicGroup, now_ms: int) -> Result:
        """Start a rebalance: all members have to join again."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._context.timers.cancel(sync_key(group.group_id))
        forming = group.state is ClassicState.EMPTY
        group.transition_to(ClassicState.PREPARING_REBALANCE, now_ms)
        if forming:
            # Members of a new group join one after the other: wait for more before the first assignment.
            delay_ms = self._initial_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_forming(group.group_id, delay_ms, remaining_ms)
            return NOTHING
        if group.all_joined:
            return self.complete_join(group, now_ms)
        self._schedule_join_end(group)
        return NOTHING

    @property
    def _initial_delay_ms(self) -> int:
        return max(self._context.config.int("group.initial.rebalance.delay.ms"), SHORTEST_FORMING_MS)

    def _schedule_forming(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        def due(now_ms: int) -> Result:
            group = self._find(group_id)
            if group is None:
                return NOTHING
            if not group.member_added or not remaining_ms:
                return self.complete_join(group, now_ms)
            group.member_added = False
            self._schedule_forming(
                group_id, min(self._initial_delay_ms, remaining_ms), max(remaining_ms - delay_ms, 0)
            )
            return NOTHING

        self._context.timers.schedule(join_key(group_id), delay_ms, due, retry=False)

    def _schedule_join_end(self, group: ClassicGroup) -> None:
        group_id = group.group_id

        def due(now_ms: int) -> Result:
            found = self._find(group_id)
            return NOTHING if found is None else self.complete_join(found, now_ms)

        self._context.timers.schedule(join_key(group_id), group.rebalance_timeout_ms, due, retry=False)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._context.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- from joining to syncing

    def maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> Result:
        """Start the next generation if all have joined; a new group waits for its initial delay."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.all_joined
        ):
            return self.complete_join(group, now_ms)
        return NOTHING

    def complete_join(self, group: ClassicGroup, now_ms: int) -> Result:
        """Start the next generation with the members that joined. Static members may join later."""
        timers = self._context.timers
        timers.cancel(join_key(group.group_id))
        for member in [m for m in group.members.values() if m.joining is None and not m.is_static]:
            group.remove(member.member_id)
            timers.cancel(session_key(group.group_id, member.member_id))
        if group.state is ClassicState.DEAD:
            return NOTHING
        if not group.elect_joined_leader() and group.members:
            # Only absent static members are left: wait until they join or their sessions time out.
            self._schedule_join_end(group)
            return NOTHING
        group.begin_generation(now_ms)
        if group.state is ClassicState.EMPTY:
            return CoordinatorResult(
                [group_record(group, {})], None, replay=False, on_committed=_warn_of(group.group_id)
            )
        for member in group.members.values():
            is_leader = member.member_id == group.leader_id
            group.answer_join(member, group.joined(member.member_id, members=is_leader))
            self.reschedule_session_timeout(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._schedule_sync_end(group)
        return NOTHING

    def _schedule_sync_end(self, group: ClassicGroup) -> None:
        group_id, generation = group.group_id, group.generation

        def due(now_ms: int) -> Result:
            found = self._find(group_id)
            if (
                found is None
                or found.generation != generation
                or found.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
                or not found.pending_sync
            ):
                return NOTHING
            for member_id in list(found.pending_sync):
                found.remove(member_id)
                self._context.timers.cancel(session_key(group_id, member_id))
            return self.prepare(found, now_ms)

        self._context.timers.schedule(sync_key(group_id), group.rebalance_timeout_ms, due, retry=False)

    # -- from syncing to stable

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """The member has sent SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._context.timers.cancel(sync_key(group.group_id))

    def complete_sync(self, group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The assignment is committed: the group is stable, and waiting members get their assignments."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        self._answer_syncs(group, ErrorCode.NONE)
        group.transition_to(ClassicState.STABLE, now_ms)

    def reset_assignments(self, group: ClassicGroup, code: ErrorCode) -> None:
        """The generation ends before it is stable: clear all assignments and respond to waiting members."""
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        self._answer_syncs(group, code)

    def _answer_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        response = messages.SyncGroupResponse
        for member in group.members.values():
            if code is ErrorCode.NONE:
                synced = response(
                    protocol_type=group.protocol_type_or_none,
                    protocol_name=group.protocol,
                    assignment=member.assignment,
                )
            else:
                synced = response(error_code=code)
            if group.answer_sync(member, synced):
                # Its session could not time out while it waited; from now on it can.
                self.reschedule_session_timeout(group, member)

    # -- members that go

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member (or a pending id) that leaves; call `member_gone` afterwards."""
        self._context.timers.cancel(session_key(group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer_join(member, _unknown_member())
            group.answer_sync(member, messages.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def member_gone(self, group: ClassicGroup, now_ms: int) -> Result:
        """Members were removed: rebalance their partitions among the others."""
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            return self.prepare_or_complete(group, now_ms)
        return self.maybe_complete_join(group, now_ms)

    # -- sessions

    def reschedule_session_timeout(
        self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """The member is alive: restart its session timeout."""
        self.schedule_session_timeout(
            group.group_id,
            member.member_id,
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
        )

    def schedule_session_timeout(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Remove the member (or the pending id) after this time unless it is rescheduled."""
        self._context.timers.schedule(
            session_key(group_id, member_id),
            timeout_ms,
            lambda now_ms: self._session_timed_out(group_id, member_id, now_ms),
            retry=False,
        )

    def _session_timed_out(self, group_id: str, member_id: str, now_ms: int) -> Result:
        group = self._find(group_id)
        if group is None or group.state is ClassicState.DEAD:
            return NOTHING
        if member_id in group.pending_join:
            group.remove(member_id)
        else:
            member = group.members.get(member_id)
            if member is None or member.has_satisfied_heartbeat:
                return NOTHING
            _logger.info("The session of member %s of group %s has timed out", member_id, group_id)
            self.remove(group, member_id)
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                return self.prepare_or_complete(group, now_ms)
        if group.state is ClassicState.PREPARING_REBALANCE and group.all_joined:
            return self.complete_join(group, now_ms)
        return NOTHING

    # -- the end

    def end(self, group: ClassicGroup) -> None:
        """Another broker coordinates the group from now on: fail all waiting requests with NOT_COORDINATOR."""
        gone = ErrorCode.NOT_COORDINATOR
        group.previous_state, group.state = group.state, ClassicState.DEAD
        for member in group.members.values():
            join = messages.JoinGroupResponse
            group.answer_join(member, join(member_id=member.member_id, error_code=gone, protocol_name=None))
            group.answer_sync(member, messages.SyncGroupResponse(error_code=gone))


def _unknown_member() -> messages.JoinGroupResponse:
    return messages.JoinGroupResponse(
        member_id="", error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=None
    )


def _warn_of(group_id: str) -> Callable[[ApiException | None], None]:
    def committed(error: ApiException | None) -> None:
        if error is not None:
            # After a restart the previous generation would return, and end when its sessions time out.
            _logger.warning("Cannot write that group %s is empty: %s", group_id, error.message)

    return committed
