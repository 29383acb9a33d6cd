"""Lists, deletes and expires groups of all types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla.coordinator.group.context import GroupContext
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ApiException
from ottla.ids import GroupId
from ottla.wire import messages

_EXPIRY_KEY: Final = "expire groups and offsets"
_DELETED_KEY: Final = "deleted topics"


class GroupAdmin:
    """Operations over all groups of a shard."""

    __slots__ = ("_commits", "_context", "_deleted_topics")

    def __init__(self, context: GroupContext, commits: OffsetMetadataManager) -> None:
        self._context = context
        self._commits = commits
        self._deleted_topics: dict[str, bytes] = {}

    def list(
        self, states: Collection[str], types: Collection[str]
    ) -> list[messages.ListGroupsResponse.ListedGroup]:
        """The groups in these states and of these types (none named: all)."""
        listed = messages.ListGroupsResponse.ListedGroup
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {_type_of(name) for name in types}
        return [
            listed(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self._context.groups.listed()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.type in wanted_types)
        ]

    def delete(
        self, group_id: GroupId
    ) -> CoordinatorResult[messages.DeleteGroupsResponse.DeletableGroupResult]:
        """Delete an empty group with its offsets. Raises the error for DeleteGroups."""
        group = self._context.groups.require(group_id)
        group.validate_delete()
        records = [*self._context.offsets.tombstones(group_id), *group.tombstones()]
        group.cancel_timers(self._context.timers)
        return CoordinatorResult(
            records, messages.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        )

    # -- periodic

    def start(self) -> None:
        """Start the periodic expiry of offsets and groups."""
        self._context.timers.schedule(
            _EXPIRY_KEY, self._context.config.int("offsets.retention.check.interval.ms"), self._expire
        )

    def _expire(self, now_ms: int) -> CoordinatorResult[None]:
        self.start()
        records: list[CoordinatorRecord] = []
        for group in self._context.groups:
            if not group.should_expire:
                continue
            tombstones, nothing_left = self._commits.expire(group.group_id, now_ms)
            records += tombstones
            if nothing_left and group.is_empty:
                records += group.tombstones()
                group.cancel_timers(self._context.timers)
        return CoordinatorResult(records, None, atomic=False)

    def topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the offsets of these topics (ids by name)."""
        self._deleted_topics.update(topics)
        self._context.timers.schedule(_DELETED_KEY, 0, self._forget_deleted)

    def _forget_deleted(self, now_ms: int) -> CoordinatorResult[None]:
        topics = dict(self._deleted_topics)

        def committed(error: ApiException | None) -> None:
            if error is None:
                for name in topics:
                    self._deleted_topics.pop(name, None)

        records = self._context.offsets.tombstones_of_topics(topics)
        return CoordinatorResult(records, None, atomic=False, on_committed=committed)


def _type_of(name: str) -> GroupType | None:
    try:
        return GroupType(name.lower())
    except ValueError:
        # A type of a later Kafka: no group has it here.
        return None
