"""The simple assignor of share groups: assigns all partitions to all members, evenly and with few moves.

With more members than partitions, several members share a partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import ceil

from ottla.coordinator.group.share.member import Partitions

NAME = "simple"

_Part = tuple[bytes, int]


def assign(
    subscriptions: Mapping[str, Set[bytes]],
    partitions: Partitions,
    current: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Assign `partitions` (those that may be assigned) to members by their topics.

    If all members subscribe to the same topics, all partitions are assigned together; else each topic on its own.
    """
    had = {
        member: {
            (topic_id, number) for topic_id, numbers in current.get(member, {}).items() for number in numbers
        }
        for member in subscriptions
    }
    given: dict[str, set[_Part]] = {member: set() for member in subscriptions}
    wanted = [frozenset(topics) for topics in subscriptions.values()]
    if all(topics == wanted[0] for topics in wanted):
        deals = [(list(subscriptions), sorted(wanted[0]))] if wanted else []
    else:
        deals = [
            ([member for member, topics in subscriptions.items() if topic_id in topics], [topic_id])
            for topic_id in sorted(frozenset().union(*wanted))
        ]
    for members, topic_ids in deals:
        parts = [
            (topic_id, number)
            for topic_id in topic_ids
            for number in sorted(partitions.get(topic_id, frozenset()))
        ]
        for member, dealt in _deal(members, parts, had).items():
            given[member] |= dealt
    return {member: _by_topic(dealt) for member, dealt in given.items()}


def _deal(
    members: Sequence[str], parts: Sequence[_Part], had: Mapping[str, set[_Part]]
) -> dict[str, set[_Part]]:
    if not parts or not members:
        return {member: set() for member in members}
    sharing = ceil(len(members) / len(parts))
    quota = _quotas(members, sharing * len(parts))
    dealt: dict[str, set[_Part]] = {}
    holders: dict[_Part, int] = dict.fromkeys(parts, 0)
    for member in members:
        kept: set[_Part] = set()
        for part in sorted(had[member] & holders.keys()):
            if len(kept) < quota[member] and holders[part] < sharing:
                kept.add(part)
                holders[part] += 1
        dealt[member] = kept
    unfilled = [member for member in members if len(dealt[member]) < quota[member]]
    for part in sorted(parts, key=lambda part: holders[part]):
        _fill(part, sharing - holders[part], unfilled, dealt, quota)
    return dealt


def _fill(
    part: _Part, places: int, unfilled: list[str], dealt: dict[str, set[_Part]], quota: Mapping[str, int]
) -> None:
    """Assign a partition to so many members below their quota, those with the fewest partitions first."""
    for _ in range(places):
        member = next((member for member in unfilled if part not in dealt[member]), None)
        if member is None:
            return
        dealt[member].add(part)
        unfilled.remove(member)
        if len(dealt[member]) < quota[member]:
            unfilled.append(member)


def _quotas(members: Sequence[str], places: int) -> dict[str, int]:
    """The number of partitions of each member: they add up to `places` and differ by at most one."""
    share = places / len(members)
    return {member: ceil(share * (index + 1)) - ceil(share * index) for index, member in enumerate(members)}


def _by_topic(parts: set[_Part]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, number in parts:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in sorted(found.items())}
