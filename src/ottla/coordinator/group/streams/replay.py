"""Replay of the records of streams groups, which alone changes their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.group.context import Replay
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.streams.group import NO_EPOCH, StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.tasks import NO_OWNED_TASKS, Tasks, task_ids
from ottla.coordinator.group.streams.topology import parse_topology
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId, TopicName

if TYPE_CHECKING:
    from ottla.wire import messages


class StreamsReplay:
    """The replays of one shard, by the name of the key."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def replays(self) -> Mapping[str, Replay]:
        return {
            "StreamsGroupMetadataKey": self._group,
            "StreamsGroupTopologyKey": self._topology,
            "StreamsGroupMemberMetadataKey": self._member,
            "StreamsGroupTargetAssignmentMetadataKey": self._target_epoch,
            "StreamsGroupTargetAssignmentMemberKey": self._target,
            "StreamsGroupCurrentMemberAssignmentKey": self._current,
        }

    def _find(self, group_id: str) -> StreamsGroup | None:
        """The group of a tombstone; None if the group is gone already (after compaction)."""
        group = self._groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def _find_or_create(self, group_id: str) -> StreamsGroup:
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is not None and not (group.type is GroupType.CLASSIC and group.is_empty):
            raise ApiException(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"A record of a streams group names {group_id}, which is a {group.type.value} group",
            )
        # An empty classic group may exist only because offsets were committed: it has no records of its own.
        created = StreamsGroup(GroupId(group_id))
        self._groups.put(created)
        return created

    def _group(
        self,
        key: messages.StreamsGroupMetadataKey,
        value: messages.StreamsGroupMetadataValue | None,
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                self._subscribe(group, set())
                self._groups.remove(key.group_id)
            return
        group = self._find_or_create(key.group_id)
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash
        group.validated_topology_epoch = value.validated_topology_epoch
        group.assignment_configs = {
            config.key: config.value for config in value.last_assignment_configs or ()
        }

    def _topology(
        self,
        key: messages.StreamsGroupTopologyKey,
        value: messages.StreamsGroupTopologyValue | None,
    ) -> None:
        if value is None:
            group = self._find(key.group_id)
            if group is not None:
                self._subscribe(group, set())
                group.topology = None
            return
        group = self._find_or_create(key.group_id)
        topology = parse_topology(value)
        self._subscribe(group, topology.required_topics())
        group.topology = topology

    def _subscribe(self, group: StreamsGroup, topics: set[TopicName]) -> None:
        before: set[TopicName] = set() if group.topology is None else group.topology.required_topics()
        for topic in before - topics:
            self._groups.unsubscribe(group.group_id, topic)
        for topic in topics - before:
            self._groups.subscribe(group.group_id, topic)

    def _member(
        self,
        key: messages.StreamsGroupMemberMetadataKey,
        value: messages.StreamsGroupMemberMetadataValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            before = group.members.get(key.member_id) or StreamsMember(key.member_id)
            group.put_member(before.with_metadata(value))
            return
        known = self._find(key.group_id)
        if known is not None:
            known.remove_member(key.member_id)

    def _target_epoch(
        self,
        key: messages.StreamsGroupTargetAssignmentMetadataKey,
        value: messages.StreamsGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.assignment_epoch = value.assignment_epoch
            group.assignment_ms = value.assignment_timestamp
            return
        known = self._find(key.group_id)
        if known is not None:
            known.assignment_epoch, known.assignment_ms = NO_EPOCH, 0

    def _target(
        self,
        key: messages.StreamsGroupTargetAssignmentMemberKey,
        value: messages.StreamsGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is not None:
            self._find_or_create(key.group_id).targets[key.member_id] = Tasks(
                task_ids(value.active_tasks), task_ids(value.standby_tasks), task_ids(value.warmup_tasks)
            )
            return
        known = self._find(key.group_id)
        if known is not None:
            known.targets.pop(key.member_id, None)

    def _current(
        self,
        key: messages.StreamsGroupCurrentMemberAssignmentKey,
        value: messages.StreamsGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            before = group.members.get(key.member_id) or StreamsMember(key.member_id)
            group.put_member(before.with_assignment(value))
            return
        known = self._find(key.group_id)
        member = None if known is None else known.members.get(key.member_id)
        if known is not None and member is not None:
            known.put_member(
                replace(
                    member,
                    epoch=NO_EPOCH,
                    previous_epoch=NO_EPOCH,
                    assigned=NO_OWNED_TASKS,
                    pending_revocation=NO_OWNED_TASKS,
                )
            )
