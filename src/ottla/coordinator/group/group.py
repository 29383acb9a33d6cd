"""A group of any type, as the registry, the offsets and the admin requests see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import GroupId
from ottla.java_order import updated_timeline_order

if TYPE_CHECKING:
    from ottla.coordinator.group.offset import CommittedOffset
    from ottla.coordinator.timers import Timers


V = TypeVar("V")

_MOST_ORDERED: Final = 256
"""How many groups or members are put into Kafka's order: a hash of each name costs microseconds."""


class GroupType(Enum):
    """Types by the names that ListGroups shows and filters by."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class CommitPartitionValidator(Protocol):
    """Checks the commit of one partition (its assignment epoch); raises ApiException."""

    def __call__(self, topic: str, topic_id: bytes, partition: int) -> None: ...


ExpiryBase = Callable[["CommittedOffset"], int]
"""The moment (ms) from which an offset's retention counts."""


class Group(ABC):
    """One group. The module of its type changes it; a shard has at most one group with an id."""

    __slots__ = ()

    group_id: GroupId
    type: GroupType

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as ListGroups and Describe show it: "Stable", "Empty", ..."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """As ListGroups shows it: a classic group's own ("consumer"), else "consumer", "share", "streams"."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No members."""

    @abstractmethod
    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        is_transactional: bool,
    ) -> CommitPartitionValidator | None:
        """Raise ApiException unless this member may commit. May return a check to run for each partition."""

    @abstractmethod
    def validate_offset_fetch(self, member_id: str, epoch: int) -> None:
        """Raise ApiException unless this member may read offsets."""

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Raise ApiException where offsets cannot be deleted in the group's state (see `is_subscribed_to_topic`)."""

    @abstractmethod
    def validate_delete(self) -> None:
        """Raise ApiException (NON_EMPTY_GROUP) unless the group may be deleted."""

    @abstractmethod
    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member reads the topic: its offsets are then neither deleted nor expired."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, without its offsets."""

    @abstractmethod
    def expiry_base(self) -> ExpiryBase | None:
        """When the retention of an offset starts, or None while all offsets are kept."""

    @property
    def should_expire(self) -> bool:
        """Whether an empty group without offsets is removed by the offsets' clean-up."""
        return True

    def cancel_timers(self, timers: Timers) -> None:  # noqa: B027 - most types have none of their own
        """The group is deleted: cancel all of its timers."""

    def request_metadata_refresh(self) -> None:  # noqa: B027 - only types that assign on the server need it
        """Topics that the group may use have changed."""


def described_order(
    entries: Mapping[str, V], order: Callable[[Iterable[str]], list[str]] = updated_timeline_order
) -> list[V]:
    """Groups or members in the order of Kafka's responses, as far as there are not too many."""
    if len(entries) > _MOST_ORDERED:
        return list(entries.values())
    return [entries[name] for name in order(entries)]
