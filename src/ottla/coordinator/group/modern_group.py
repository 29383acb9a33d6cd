"""The common base of groups whose partitions the coordinator assigns: epochs, members and metadata refreshes."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from ottla.coordinator.group.group import Group
from ottla.errors import ApiException, ErrorCode
from ottla.ids import GroupId

METADATA_REFRESH_MS: Final = 60 * 60 * 1000
"""A group checks its topics this often even without a change of the metadata."""

M = TypeVar("M")


class ModernGroup(Group, Generic[M]):
    """A group of members `M` with an epoch that grows with each change of its members' target assignment."""

    __slots__ = (
        "_refresh_at_ms",
        "_refresh_epoch",
        "assignment_epoch",
        "assignment_ms",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
    )

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = 1
        """One before that of the first target: Kafka's groups start at 2, since a member joins with 0."""
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.assignment_epoch = 0
        self.assignment_ms = 0
        """When the target was computed; 0 when the time is not known."""
        self._refresh_at_ms = 0
        self._refresh_epoch = 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> M:
        """The member; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiException(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def validate_delete(self) -> None:
        if self.members:
            raise ApiException(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members")

    def assigned_recently(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last target is too recent for a new one.

        A time more than the interval ahead comes from a wrong clock, of this broker or an earlier coordinator. The
        group must not wait until the clock of this broker has reached it.
        """
        return bool(self.assignment_ms) and abs(now_ms - self.assignment_ms) < interval_ms

    # -- the topics' metadata

    def metadata_expired(self, now_ms: int) -> bool:
        """Whether to check the topics again; also when the epoch of the last check was never written."""
        return now_ms >= self._refresh_at_ms or self.epoch < self._refresh_epoch

    def refreshed(self, now_ms: int, epoch: int, good_for_ms: int = METADATA_REFRESH_MS) -> None:
        self._refresh_at_ms = now_ms + good_for_ms
        self._refresh_epoch = epoch

    def request_metadata_refresh(self) -> None:
        self._refresh_at_ms = 0
        self._refresh_epoch = 0
