"""The classic groups of one shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, and replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.coordinator.group.classic.group import NO_TIME, ClassicGroup
from ottla.coordinator.group.classic.joining import Joining
from ottla.coordinator.group.classic.member import NO_ASSIGNMENT, ClassicMember
from ottla.coordinator.group.classic.rebalance import Rebalances
from ottla.coordinator.group.classic.records import group_record
from ottla.coordinator.group.classic.state import ClassicState
from ottla.coordinator.group.context import GroupContext, Replay, RequestInfo
from ottla.coordinator.group.group import Group, GroupType, described_order
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId
from ottla.java_order import java_set_order
from ottla.promise import Promise
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.wire.messages import (
        GroupMetadataKey,
        GroupMetadataValue,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )

R = TypeVar("R")

_NOT_FOUND_FROM: Final = 6
"""From this version on, DescribeGroups reports an unknown group as an error rather than as a dead group."""


class ClassicMemberHandler(Protocol):
    """Serves the classic protocol for groups of another type: consumer groups, while they migrate."""

    def join(
        self, info: RequestInfo, request: JoinGroupRequest, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse]: ...

    def sync(
        self, info: RequestInfo, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]: ...

    def heartbeat(
        self, info: RequestInfo, request: HeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[HeartbeatResponse]: ...

    def leave(
        self, info: RequestInfo, request: LeaveGroupRequest, now_ms: int
    ) -> CoordinatorResult[LeaveGroupResponse]: ...


class ClassicGroups:
    """A `GroupModule`: the four operations of members, and those of administrators."""

    __slots__ = ("_context", "_joining", "consumer_members", "rebalances")

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.rebalances = Rebalances(context)
        self._joining = Joining(context, self.rebalances)
        self.consumer_members: ClassicMemberHandler | None = None
        """Serves classic members of consumer groups; set by the module of consumer groups."""

    # -- members

    def join(
        self, info: RequestInfo, request: JoinGroupRequest, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse]:
        """JoinGroup, with the session time-out checked already."""
        group = self._context.groups.get(request.group_id)
        if group is not None and group.type is not GroupType.CLASSIC:
            if group.type is GroupType.CONSUMER and not group.is_empty and self.consumer_members is not None:
                return self.consumer_members.join(info, request, now_ms)
            if group.type is GroupType.SHARE or not group.is_empty:
                return _respond(
                    messages.JoinGroupResponse(
                        member_id="", error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, protocol_name=None
                    )
                )
        return self._joining.join(info, request, now_ms)

    def sync(
        self, info: RequestInfo, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]:
        """SyncGroup: responds when the leader has sent the assignment."""
        group = self._context.groups.get(request.group_id)
        if group is None or group.is_empty:
            return _respond(messages.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if group.type is GroupType.CONSUMER and self.consumer_members is not None:
            return self.consumer_members.sync(info, request, now_ms)
        if not isinstance(group, ClassicGroup):
            return _respond(messages.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        error = _sync_error(group, request)
        if error is not ErrorCode.NONE:
            return _respond(messages.SyncGroupResponse(error_code=error))
        member = group.members[request.member_id]
        if group.state is ClassicState.STABLE:
            self.rebalances.synced(group, member.member_id)
            return _respond(
                messages.SyncGroupResponse(
                    protocol_type=group.protocol_type_or_none,
                    protocol_name=group.protocol,
                    assignment=member.assignment,
                )
            )
        syncing: Promise[SyncGroupResponse] = Promise()
        member.syncing = syncing
        self.rebalances.synced(group, member.member_id)
        if group.leader_id != member.member_id:
            return CoordinatorResult((), syncing)
        return self._settle(group, request, syncing, now_ms)

    def _settle(
        self,
        group: ClassicGroup,
        request: SyncGroupRequest,
        syncing: Promise[SyncGroupResponse],
        now_ms: int,
    ) -> CoordinatorResult[SyncGroupResponse]:
        """The leader sends the assignment: write it, then respond to all members."""
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: given.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
        generation = group.generation

        def committed(error: ApiException | None) -> None:
            # If a member has joined or left meanwhile, this generation is over.
            if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if error is None:
                self.rebalances.complete_sync(group, assignments, now_ms)
            else:
                self.rebalances.reset_assignments(group, error.code)
                self.rebalances.prepare(group, now_ms)

        return CoordinatorResult(
            [group_record(group, assignments)], syncing, replay=False, on_committed=committed
        )

    def heartbeat(
        self, info: RequestInfo, request: HeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[HeartbeatResponse]:
        """Heartbeat."""
        group = self._member_group(request.group_id)
        if not isinstance(group, ClassicGroup):
            assert self.consumer_members is not None
            return self.consumer_members.heartbeat(info, request, now_ms)
        if group.state is ClassicState.DEAD:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group {group.group_id} is gone")
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ApiException(
                ErrorCode.ILLEGAL_GENERATION, f"Group {group.group_id} is in generation {group.generation}"
            )
        if group.state is ClassicState.EMPTY:
            raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no members")
        self.rebalances.reschedule_session_timeout(group, group.members[request.member_id])
        rebalancing = group.state is ClassicState.PREPARING_REBALANCE
        return _respond(
            messages.HeartbeatResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
            )
        )

    def leave(
        self, info: RequestInfo, request: LeaveGroupRequest, now_ms: int
    ) -> CoordinatorResult[LeaveGroupResponse]:
        """LeaveGroup, with the one member of versions 0-2 in the list as well."""
        group = self._member_group(request.group_id)
        if not isinstance(group, ClassicGroup):
            assert self.consumer_members is not None
            return self.consumer_members.leave(info, request, now_ms)
        if group.state is ClassicState.DEAD:
            raise ApiException(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Group {group.group_id} is gone")
        response = messages.LeaveGroupResponse
        responses = []
        any_left = False
        for leaving in request.members:
            code = self._leave_one(group, leaving)
            any_left = any_left or code is ErrorCode.NONE
            responses.append(
                response.MemberResponse(
                    member_id=leaving.member_id,
                    group_instance_id=leaving.group_instance_id,
                    error_code=code,
                )
            )
        result: CoordinatorResult[None] | None = None
        if any_left:
            result = self.rebalances.member_gone(group, now_ms)
        left = response(members=responses)
        if result is None:
            return _respond(left)
        return CoordinatorResult(result.records, left, replay=result.replay, on_committed=result.on_committed)

    def _leave_one(self, group: ClassicGroup, leaving: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:
            # An administrator names a static member by its instance id.
            static_id = group.static_members.get(leaving.group_instance_id or "")
            if leaving.group_instance_id is None or static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id not in group.pending_join:
            try:
                group.validate_member(member_id, leaving.group_instance_id)
            except ApiException as error:
                return error.code
        self.rebalances.remove(group, member_id)
        return ErrorCode.NONE

    def _member_group(self, group_id: str) -> Group:
        group = self._context.groups.get(group_id)
        if isinstance(group, ClassicGroup) or (
            group is not None and group.type is GroupType.CONSUMER and self.consumer_members is not None
        ):
            return group
        raise ApiException(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")

    # -- administrators

    def describe(self, group_id: GroupId, api_version: int) -> messages.DescribeGroupsResponse.DescribedGroup:
        """One group of a DescribeGroups."""
        described = messages.DescribeGroupsResponse.DescribedGroup
        group = self._context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            unknown = described(group_id=group_id, group_state=ClassicState.DEAD.value)
            if api_version >= _NOT_FOUND_FROM:
                unknown.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                what = "not found" if group is None else "is not a classic group"
                unknown.error_message = f"Group {group_id} {what}."
            return unknown
        stable = group.state is ClassicState.STABLE
        return described(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol or "" if stable else "",
            members=[
                member.describe(group.protocol if stable else None)
                for member in described_order(group.members, java_set_order)
            ],
        )

    # -- for offset commits

    def simple_group(self, group_id: GroupId, now_ms: int) -> ClassicGroup:
        """A group for offsets that are committed without one; replay of the offsets puts it into the registry."""
        return ClassicGroup(group_id, now_ms)

    def touch(self, group: Group, member_id: str) -> None:
        """A commit shows that the member is alive: restart its session timeout."""
        if isinstance(group, ClassicGroup) and group.state in (
            ClassicState.STABLE,
            ClassicState.PREPARING_REBALANCE,
        ):
            member = group.members.get(member_id)
            if member is not None:
                self.rebalances.reschedule_session_timeout(group, member)

    # -- GroupModule

    def replays(self) -> Mapping[str, Replay]:
        return {"GroupMetadataKey": self._replay}

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        groups = self._context.groups
        if value is None:
            groups.remove(key.group)
            return
        # A group with members has a protocol, perhaps an empty one.
        protocol = value.protocol or ("" if value.members else None)
        group = ClassicGroup(
            GroupId(key.group),
            value.current_state_timestamp if value.current_state_timestamp != -1 else NO_TIME,
            state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol=protocol,
            leader_id=value.leader,
        )
        for member in value.members:
            rebalance_ms = member.rebalance_timeout
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if rebalance_ms == -1 else rebalance_ms,
                    member.session_timeout,
                    value.protocol_type,
                    ((protocol or "", bytes(member.subscription)),),
                    bytes(member.assignment),
                )
            )
        group.compute_subscribed()
        groups.put(group)

    def on_loaded(self, now_ms: int) -> None:
        limit = self._context.config.int("group.max.size")
        for group in self._context.groups:
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self.rebalances.reschedule_session_timeout(group, member)
            if len(group.members) > limit:
                # The limit was lowered: make the members join again, up to the new limit.
                self.rebalances.prepare(group, now_ms)

    def on_unloaded(self) -> None:
        for group in self._context.groups:
            if isinstance(group, ClassicGroup):
                self.rebalances.end(group)

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        """Classic consumers watch their topics themselves."""


def _respond(response: R) -> CoordinatorResult[R]:
    return CoordinatorResult((), response)


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is ClassicState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except ApiException as error:
        return error.code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type_or_none) or _differs(
        request.protocol_name, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(requested: str | None, known: str | None) -> bool:
    return requested is not None and known is not None and requested != known
