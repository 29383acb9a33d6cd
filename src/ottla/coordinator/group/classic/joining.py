"""JoinGroup of classic groups: new members, members that join again, and static members that were restarted."""

from __future__ import annotations

import uuid
from typing import Final

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import ClassicMember, Protocols, protocols_of
from ottla.coordinator.group.classic.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalances, Result
from ottla.coordinator.group.classic.records import group_record, new_group_record
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.context import GroupContext, RequestInfo
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.promise import Promise
from ottla.wire import messages

Joined = CoordinatorResult[messages.JoinGroupResponse]

_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9


class Joining:
    """The operation `join`."""

    __slots__ = ("_context", "_rebalances")

    def __init__(self, context: GroupContext, rebalances: Rebalances) -> None:
        self._context = context
        self._rebalances = rebalances

    def join(self, info: RequestInfo, request: messages.JoinGroupRequest, now_ms: int) -> Joined:
        """Join a classic group, or an empty group that becomes a classic group."""
        groups = self._context.groups
        group_id, member_id = request.group_id, request.member_id
        found = groups.get(group_id)
        if found is None and member_id:
            return _refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(found, ClassicGroup):
            return self._join(found, info, request, now_ms)
        if found is not None and member_id:
            return _refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        records: list[CoordinatorRecord] = []
        if found is not None:
            records += found.tombstones()
            found.cancel_timers(self._context.timers)
        group = ClassicGroup(group_id, now_ms)
        groups.put(group)
        result = self._join(group, info, request, now_ms)
        assert not result.records
        records.append(new_group_record(group))

        def committed(error: ApiException | None) -> None:
            if error is not None and groups.get(group_id) is group and not group.members:
                groups.remove(group_id)

        return CoordinatorResult(records, result.response, replay=False, on_committed=committed)

    def _join(
        self, group: ClassicGroup, info: RequestInfo, request: messages.JoinGroupRequest, now_ms: int
    ) -> Joined:
        member_id = request.member_id
        if not self._has_room_for(group, member_id):
            group.remove(member_id)
            # The other members need not wait for it any more.
            follows = self._rebalances.maybe_complete_join(group, now_ms)
            return CoordinatorResult(
                follows.records,
                _refusal("", ErrorCode.GROUP_MAX_SIZE_REACHED),
                replay=follows.replay,
                on_committed=follows.on_committed,
            )
        if group.state is ClassicState.DEAD:
            return _refuse(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        protocols = protocols_of(request)
        if not group.supports(request.protocol_type, protocols):
            return _refuse(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not member_id:
            return self._join_new(group, info, request, protocols, now_ms)
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Ids are given out in advance to dynamic members only.
                return _refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return self._add(group, info, request, member_id, protocols, now_ms)
        return self._join_again(group, request, protocols, now_ms)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._context.config.int("group.max.size")
        if group.state is ClassicState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.joining is not None) or group.joining_count < limit
        if group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return member_id in group.members or len(group.members) < limit
        return True

    # -- new members

    def _join_new(
        self,
        group: ClassicGroup,
        info: RequestInfo,
        request: messages.JoinGroupRequest,
        protocols: Protocols,
        now_ms: int,
    ) -> Joined:
        instance_id = request.group_instance_id
        stem = info.client_id if instance_id is None else instance_id
        new_id = f"{stem}-{uuid.UUID(bytes=self._context.clock.random_uuid())}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace_static(group, info, request, old_id, new_id, protocols, now_ms)
        elif info.api_version >= _MEMBER_ID_REQUIRED_FROM:
            # A client that gives up while its join waits would leave a member behind that no client knows. So it
            # has to join again with its id.
            group.pending_join.add(new_id)
            self._rebalances.schedule_session_timeout(group.group_id, new_id, request.session_timeout_ms)
            return _refuse(new_id, ErrorCode.MEMBER_ID_REQUIRED)
        return self._add(group, info, request, new_id, protocols, now_ms)

    def _add(
        self,
        group: ClassicGroup,
        info: RequestInfo,
        request: messages.JoinGroupRequest,
        member_id: str,
        protocols: Protocols,
        now_ms: int,
    ) -> Joined:
        joining: Promise[messages.JoinGroupResponse] = Promise()
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            info.client_id,
            info.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            protocols,
            is_new=True,
            joining=joining,
        )
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.member_added = True
        group.add(member)
        self._rebalances.reschedule_session_timeout(group, member, NEW_MEMBER_TIMEOUT_MS)
        return _waiting(joining, self._rebalances.prepare_or_complete(group, now_ms))

    # -- known members

    def _join_again(
        self, group: ClassicGroup, request: messages.JoinGroupRequest, protocols: Protocols, now_ms: int
    ) -> Joined:
        member_id = request.member_id
        try:
            group.validate_member(member_id, request.group_instance_id)
        except ApiException as error:
            return _refuse(member_id, error.code)
        member = group.members[member_id]
        is_leader = group.leader_id == member_id
        unchanged = member.protocols == protocols
        if group.state is ClassicState.COMPLETING_REBALANCE and unchanged:
            # It did not receive the response: the generation is the same.
            return CoordinatorResult((), group.joined(member_id, members=is_leader))
        if group.state is ClassicState.STABLE and unchanged and not is_leader:
            return CoordinatorResult((), group.joined(member_id, members=False))
        if group.state is ClassicState.EMPTY:
            return _refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        # It has new metadata, or it is the leader and asks for a rebalance, perhaps because of new partitions.
        joining: Promise[messages.JoinGroupResponse] = Promise()
        group.update(member, request, protocols)
        group.wait_for_join(member, joining)
        return _waiting(joining, self._rebalances.prepare_or_complete(group, now_ms))

    # -- static members

    def _replace_static(
        self,
        group: ClassicGroup,
        info: RequestInfo,
        request: messages.JoinGroupRequest,
        old_id: str,
        new_id: str,
        protocols: Protocols,
        now_ms: int,
    ) -> Joined:
        """A static member restarted: it gets a new id and, if nothing else has changed, its old assignment."""
        leader_before = group.leader_id
        member = group.replace_static(old_id, new_id)
        member.is_new = False
        self._rebalances.reschedule_session_timeout(group, member)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        joining: Promise[messages.JoinGroupResponse] = Promise()
        group.update(member, request, protocols)
        group.wait_for_join(member, joining)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            # The leader may already have the old id in its list, and would assign nothing to the new one.
            return _waiting(joining, self._rebalances.prepare(group, now_ms))
        if group.state is not ClassicState.STABLE:
            return _waiting(joining, self._rebalances.maybe_complete_join(group, now_ms))
        if group.select_protocol() != group.protocol:
            return _waiting(joining, self._rebalances.prepare_or_complete(group, now_ms))

        def committed(error: ApiException | None) -> None:
            if error is not None:
                group.answer_join(member, _refusal("", error.code))
                restored = group.replace_static(new_id, old_id)
                group.restore(restored, *before)
                self._rebalances.reschedule_session_timeout(group, restored)
                return
            if info.api_version >= _SKIP_ASSIGNMENT_FROM:
                is_leader = group.leader_id == new_id
                response = group.joined(new_id, members=is_leader, skip_assignment=is_leader)
            else:
                # A client that cannot skip the assignment must not become the leader.
                response = group.joined(new_id, members=False)
                response.leader = leader_before or ""
            group.answer_join(member, response)

        return CoordinatorResult(
            [group_record(group, group.assignments())], joining, replay=False, on_committed=committed
        )


def _refusal(member_id: str, code: ErrorCode) -> messages.JoinGroupResponse:
    return messages.JoinGroupResponse(member_id=member_id, error_code=code, protocol_name=None)


def _refuse(member_id: str, code: ErrorCode) -> Joined:
    return CoordinatorResult((), _refusal(member_id, code))


def _waiting(joining: Promise[messages.JoinGroupResponse], result: Result) -> Joined:
    """The join waits; the records of the rebalance are written with it."""
    return CoordinatorResult(result.records, joining, replay=result.replay, on_committed=result.on_committed)
