"""The record of a classic group: GroupMetadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.records import CoordinatorRecord
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup

_VERSION: Final = 3


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The group with its members and these assignments."""
    value = messages.GroupMetadataValue
    return CoordinatorRecord(
        messages.GroupMetadataKey(group=group.group_id),
        value(
            protocol_type=group.protocol_type,
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader_id,
            current_state_timestamp=group.state_since_ms,
            members=[
                value.MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol),
                    assignment=assignments[member.member_id],
                )
                for member in group.members.values()
            ],
        ),
        _VERSION,
    )


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A group without members."""
    return CoordinatorRecord(
        messages.GroupMetadataKey(group=group.group_id),
        messages.GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=group.state_since_ms,
            members=[],
        ),
        _VERSION,
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(messages.GroupMetadataKey(group=group_id), None)
