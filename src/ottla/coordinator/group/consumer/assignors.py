"""The server-side assignors by name: `uniform`, the default, and `range`, which co-partitions.

An assignor is a pure function from a `GroupSpec` to every member's partitions. As in Kafka 4.3 neither considers
racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.coordinator.group.consumer.member import Partitions
from ottla.coordinator.group.consumer.spec import GroupSpec, MemberSpec, SubscriptionType
from ottla.coordinator.group.consumer.uniform import assign_same_topics
from ottla.coordinator.group.consumer.uniform_mixed import assign_different_topics

Assignor = Callable[[GroupSpec], dict[str, Partitions]]

UNIFORM: Final = "uniform"
RANGE: Final = "range"


def assign_range(spec: GroupSpec) -> dict[str, Partitions]:
    """Assign adjacent partitions of each topic to each member, with the members in a fixed order.

    So topics with equally many partitions are assigned alike (co-partitioning). Static members come first, sorted by
    instance id, so that one that returns with a new member id gets the same partitions.
    """
    order = sorted(spec.members.items(), key=_range_order)
    subscribers: dict[bytes, int] = {}
    for _, member in order:
        for topic_id in member.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    shares = {
        topic_id: _Shares(spec.partition_counts[topic_id], count) for topic_id, count in subscribers.items()
    }
    assignment: dict[str, Partitions] = {}
    for member_id, member in order:
        partitions: dict[bytes, frozenset[int]] = {}
        for topic_id in member.topic_ids:
            share = shares[topic_id].next()
            if share:
                partitions[topic_id] = frozenset(share)
        assignment[member_id] = partitions
    return assignment


def _range_order(item: tuple[str, MemberSpec]) -> tuple[bool, str]:
    member_id, member = item
    return (member.instance_id is None, member.instance_id or member_id)


class _Shares:
    """A topic's partitions, split into one range per subscriber; the first ranges are one longer."""

    __slots__ = ("_next", "_size", "_with_one_more")

    def __init__(self, partition_count: int, subscribers: int) -> None:
        self._size, self._with_one_more = divmod(partition_count, subscribers)
        self._next = 0

    def next(self) -> range:
        start = self._next
        size = self._size
        if self._with_one_more:
            self._with_one_more -= 1
            size += 1
        self._next = start + size
        return range(start, self._next)


def assign_uniform(spec: GroupSpec) -> dict[str, Partitions]:
    """Assign as evenly as possible, with the fewest moves."""
    if spec.subscription is SubscriptionType.HOMOGENEOUS:
        return assign_same_topics(spec)
    return assign_different_topics(spec)


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}
