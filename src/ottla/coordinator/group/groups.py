"""The registry of the groups of one shard: one group per id, of any type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from ottla.coordinator.group.group import Group, described_order
from ottla.errors import ApiException, ErrorCode
from ottla.java_order import timeline_order

G = TypeVar("G", bound=Group)


class Groups:
    """The registry. Operations look up; only replay and the operations of classic groups put and remove."""

    __slots__ = ("_groups", "_topics")

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._topics: dict[str, set[str]] = {}

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def get_as(self, kind: type[G], group_id: str) -> G:
        """The group, which must be of this class; raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if not isinstance(group, kind):
            what = "not found" if group is None else f"is not a {kind.type.value} group"
            raise ApiException(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def listed(self) -> list[Group]:
        """All groups, in the order in which ListGroups shows them."""
        return described_order(self._groups, timeline_order)

    def require(self, group_id: str) -> Group:
        """The group of any type; raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiException(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def put(self, group: Group) -> None:
        """Add the group, or replace the one with the same id (a migration, or a new type after a deletion)."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> Group | None:
        return self._groups.pop(group_id, None)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)

    # -- subscribed topics (types that assign on the server keep these up to date)

    def subscribe(self, group_id: str, topic: str) -> None:
        """The group has a member that reads the topic, so that a change of the topic concerns the group."""
        self._topics.setdefault(topic, set()).add(group_id)

    def unsubscribe(self, group_id: str, topic: str) -> None:
        subscribers = self._topics.get(topic)
        if subscribers is not None:
            subscribers.discard(group_id)
            if not subscribers:
                del self._topics[topic]

    def subscribed_to(self, topic: str) -> frozenset[str]:
        return frozenset(self._topics.get(topic, ()))
