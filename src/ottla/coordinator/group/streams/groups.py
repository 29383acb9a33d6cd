"""The streams groups of a shard: their operations, their timers, and changes of their topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.context import GroupContext, Replay, RequestInfo
from ottla.coordinator.group.group import GroupType, described_order
from ottla.coordinator.group.heartbeat_interval import heartbeat_interval_ms
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.group.streams.configure import describe_configured
from ottla.coordinator.group.streams.group import StreamsGroup, initial_rebalance_key
from ottla.coordinator.group.streams.heartbeat import Heartbeat, HeartbeatResult
from ottla.coordinator.group.streams.member import MemberState, StreamsMember, describe_member
from ottla.coordinator.group.streams.records import group_record, member_tombstones
from ottla.coordinator.group.streams.replay import StreamsReplay
from ottla.coordinator.group.streams.settings import StreamsSettings
from ottla.coordinator.group.streams.target import compute_target
from ottla.coordinator.group.streams.topology import Topology, describe_topology
from ottla.coordinator.group.streams.validate import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName
from ottla.wire.messages import StreamsGroupDescribeResponse, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.wire.messages import StreamsGroupHeartbeatRequest

_logger = logging.getLogger(__name__)

_NOTHING: Final[CoordinatorResult[None]] = CoordinatorResult([], None)


class StreamsGroups:
    """A `GroupModule`."""

    __slots__ = ("_context", "_replay", "_topic_hashes")

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._replay = StreamsReplay(context.groups)
        self._topic_hashes: dict[str, int] = {}

    # -- operations

    def heartbeat(
        self, info: RequestInfo, request: StreamsGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[HeartbeatResult]:
        """A StreamsGroupHeartbeat that `validate_heartbeat` has accepted: join, stay or leave."""
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        settings = StreamsSettings.of(self._context, request.group_id)
        records: list[CoordinatorRecord] = []
        if request.member_epoch == 0:
            group = self._find_or_new(request.group_id, records)
            if len(group.members) >= settings.max_size:
                raise ApiException(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The streams group has reached its maximum capacity of {settings.max_size} members.",
                )
        else:
            group = self._context.groups.get_as(StreamsGroup, request.group_id)
        heartbeat = Heartbeat(self, group, settings, request, now_ms)
        result = heartbeat.run(info)
        self._schedule_session_timeout(group.group_id, request.member_id, settings)
        return CoordinatorResult(records + heartbeat.records, result)

    def describe(self, group_id: GroupId) -> StreamsGroupDescribeResponse.DescribedGroup:
        """One group of StreamsGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        group = self._context.groups.get_as(StreamsGroup, group_id)
        topology = None
        if group.configured is not None and group.configured.ready:
            topology = describe_configured(group.configured)
        elif group.topology is not None:
            topology = describe_topology(group.topology)
        return StreamsGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=topology,
            members=[
                describe_member(member, group.target(member.id)) for member in described_order(group.members)
            ],
        )

    def _find_or_new(self, group_id: GroupId, records: list[CoordinatorRecord]) -> StreamsGroup:
        group = self._context.groups.get(group_id)
        if group is None:
            return StreamsGroup(group_id)
        if group.type is GroupType.CLASSIC and group.is_empty:
            _logger.info("The empty classic group %s becomes a streams group.", group_id)
            records += group.tombstones()
            group.cancel_timers(self._context.timers)
            return StreamsGroup(group_id)
        return self._context.groups.get_as(StreamsGroup, group_id)

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[HeartbeatResult]:
        group = self._context.groups.get_as(StreamsGroup, request.group_id)
        if request.shutdown_application and group.shutdown_requested_by is None:
            group.shutdown_requested_by = request.member_id
        member = group.member(request.member_id)
        _logger.info("Member %s leaves streams group %s.", member.id, group.group_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.id, member_epoch=request.member_epoch, status=[]
        )
        return CoordinatorResult(self._remove(group, member), HeartbeatResult(response))

    def _remove(self, group: StreamsGroup, member: StreamsMember) -> list[CoordinatorRecord]:
        self._context.timers.cancel(_session_key(group.group_id, member.id))
        self._context.timers.cancel(_revocation_key(group.group_id, member.id))
        records = member_tombstones(group.group_id, member.id)
        records.append(
            group_record(
                group.group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            )
        )
        return records

    # -- timers

    def _schedule_session_timeout(self, group_id: str, member_id: str, settings: StreamsSettings) -> None:
        self._context.timers.schedule(
            _session_key(group_id, member_id),
            settings.session_timeout_ms,
            lambda now_ms: self._fence(group_id, member_id, "its session timed out"),
        )

    def schedule_revocation_timeout(self, group_id: str, member: StreamsMember) -> None:
        """Start the timeout within which a member has to revoke tasks, or cancel it."""
        key = _revocation_key(group_id, member.id)
        if member.state is not MemberState.UNREVOKED_TASKS:
            self._context.timers.cancel(key)
            return
        member_id, epoch = member.id, member.epoch

        def expire(now_ms: int) -> CoordinatorResult[None]:
            return self._fence(group_id, member_id, "it did not revoke its tasks in time", epoch)

        self._context.timers.schedule(key, member.rebalance_timeout_ms, expire)

    def _fence(
        self, group_id: str, member_id: str, why: str, epoch: int | None = None
    ) -> CoordinatorResult[None]:
        group = self._context.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, StreamsGroup) else None
        if not isinstance(group, StreamsGroup) or member is None or epoch not in (None, member.epoch):
            return _NOTHING
        _logger.info("Removed member %s from streams group %s: %s.", member_id, group_id, why)
        return CoordinatorResult(self._remove(group, member), None)

    def delay_first_assignment(self, group: StreamsGroup, settings: StreamsSettings) -> None:
        """Wait for more members of a new group before tasks are assigned."""
        if group.is_empty and settings.initial_rebalance_delay_ms > 0:
            group_id = group.group_id
            self._context.timers.schedule_if_absent(
                initial_rebalance_key(group_id),
                settings.initial_rebalance_delay_ms,
                lambda now_ms: self._first_assignment(group_id, now_ms),
            )

    def first_assignment_delayed(self, group: StreamsGroup) -> bool:
        return self._context.timers.is_scheduled(initial_rebalance_key(group.group_id))

    def _first_assignment(self, group_id: str, now_ms: int) -> CoordinatorResult[None]:
        group = self._context.groups.get(group_id)
        if (
            not isinstance(group, StreamsGroup)
            or group.is_empty
            or group.configured is None
            or group.epoch <= group.assignment_epoch
        ):
            return _NOTHING
        standby_replicas = int(group.assignment_configs.get("num.standby.replicas", "0"))
        records, _ = compute_target(group, group.epoch, None, group.configured, standby_replicas, now_ms)
        return CoordinatorResult(records, None)

    # -- used by heartbeats

    def holds(self, group: StreamsGroup) -> bool:
        """Whether the group is in the registry; a new one is in it once its records are replayed."""
        return self._context.groups.get(group.group_id) is group

    def heartbeat_interval_ms(self, group_id: str, members: int, settled: bool) -> int:
        return heartbeat_interval_ms(self._context, GroupType.STREAMS, group_id, members, settled)

    def partition_count(self, topic: TopicName) -> int | None:
        image = self._context.image.topics.by_name.get(topic)
        return None if image is None else len(image.partitions)

    def metadata_hash(self, topology: Topology) -> int:
        return metadata_hash(topology.required_topics(), self._context.image, self._topic_hashes)

    # -- GroupModule

    def replays(self) -> Mapping[str, Replay]:
        return self._replay.replays()

    def on_loaded(self, now_ms: int) -> None:
        for group in self._context.groups:
            if isinstance(group, StreamsGroup):
                settings = StreamsSettings.of(self._context, group.group_id)
                for member in group.members.values():
                    self._schedule_session_timeout(group.group_id, member.id, settings)
                    self.schedule_revocation_timeout(group.group_id, member)

    def on_unloaded(self) -> None:
        """No request waits here."""

    def on_metadata_update(self, delta: MetadataDelta) -> None:
        changed = {topic.name for topic in delta.changed_topics.values()}
        changed |= {topic.name for topic in delta.deleted_topics.values()}
        for name in changed:
            self._topic_hashes.pop(name, None)
            for group_id in self._context.groups.subscribed_to(name):
                group = self._context.groups.get(group_id)
                if isinstance(group, StreamsGroup):
                    group.request_metadata_refresh()


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("streams-session", group_id, member_id)


def _revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("streams-rebalance", group_id, member_id)
