"""The subscriptions of a group's members, counted by topic name and by regular expression."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import TypeVar

from ottla.coordinator.group.consumer.member import ConsumerGroupMember
from ottla.coordinator.group.consumer.spec import SubscriptionType
from ottla.ids import TopicName

K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that an expression matched, with the metadata version and the time of the look-up."""

    topics: frozenset[TopicName]
    version: int
    resolved_ms: int


class Subscriptions:
    """A group's subscriptions. Change a `copy` to see the effect of a heartbeat."""

    __slots__ = ("_by_name", "_by_regex", "regexes", "resolved")

    def __init__(self) -> None:
        self._by_name: dict[TopicName, int] = {}
        self._by_regex: dict[TopicName, int] = {}
        self.regexes: dict[str, int] = {}
        """How many members subscribe with an expression."""
        self.resolved: dict[str, ResolvedRegex] = {}

    def copy(self) -> Subscriptions:
        copied = Subscriptions()
        copied._by_name = self._by_name.copy()
        copied._by_regex = self._by_regex.copy()
        copied.regexes = self.regexes.copy()
        copied.resolved = self.resolved.copy()
        return copied

    def topics(self) -> set[TopicName]:
        return {*self._by_name, *self._by_regex}

    def includes(self, topic: str) -> bool:
        return topic in self._by_name or topic in self._by_regex

    def replace(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        """A member joined (`old` None), left (`new` None) or changed."""
        if old is not None:
            _count(self._by_name, old.topic_names, -1)
            _count(self.regexes, (old.topic_regex,) if old.topic_regex else (), -1)
        if new is not None:
            _count(self._by_name, new.topic_names, 1)
            _count(self.regexes, (new.topic_regex,) if new.topic_regex else (), 1)

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """An expression was resolved (again), or is dropped."""
        old = self.resolved.pop(regex, None)
        if old is not None:
            _count(self._by_regex, old.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            _count(self._by_regex, resolved.topics, 1)

    def forget_unused_regexes(self) -> list[str]:
        """Drop resolved expressions without subscribers, and return them."""
        unused = [regex for regex in self.resolved if regex not in self.regexes]
        for regex in unused:
            self.resolve(regex, None)
        return unused

    def topics_of(self, member: ConsumerGroupMember) -> Set[TopicName]:
        """The topics that a member subscribes to; an unresolved expression matches nothing."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        if resolved is None:
            return member.topic_names
        return member.topic_names | resolved.topics if member.topic_names else resolved.topics

    def type_of(self, member_count: int) -> SubscriptionType:
        """Whether all of so many members subscribe to the same topics."""
        if not self.regexes:
            same = all(count == member_count for count in self._by_name.values())
        else:
            same = not self._by_name and list(self.regexes.values()) == [member_count]
        return SubscriptionType.HOMOGENEOUS if same else SubscriptionType.HETEROGENEOUS


def _count(counts: dict[K, int], keys: Iterable[K], change: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + change
        if count > 0:
            counts[key] = count
        else:
            counts.pop(key, None)
