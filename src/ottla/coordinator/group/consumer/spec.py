"""The input of an assignor: members with their topics and assignments, and the sizes of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.coordinator.group.consumer.member import Partitions


class SubscriptionType(Enum):
    """Whether the members of a group subscribe to the same topics."""

    HOMOGENEOUS = "every member subscribes to the same topics"
    HETEROGENEOUS = "members subscribe to different topics"


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it."""

    topic_ids: frozenset[bytes]
    """Topics it subscribes to; all of them exist."""
    assignment: Partitions
    """Its target so far."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as an assignor sees it."""

    members: Mapping[str, MemberSpec]
    subscription: SubscriptionType
    partition_counts: Mapping[bytes, int]
    """Of every topic that a member subscribes to."""
