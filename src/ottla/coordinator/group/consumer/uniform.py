"""The uniform assignor for a group whose members all subscribe to the same topics (nearly every group).

Members keep their partitions up to their share; the rest goes to members with fewer. It is linear in partitions and
members: a group of 500 on 1,000 partitions takes about a millisecond.
"""

from __future__ import annotations

from ottla.coordinator.group.consumer.member import Partitions
from ottla.coordinator.group.consumer.spec import GroupSpec


def assign_same_topics(spec: GroupSpec) -> dict[str, Partitions]:
    """Every member's partitions; no two members' counts differ by more than one."""
    if not spec.members:
        return {}
    topic_ids = next(iter(spec.members.values())).topic_ids
    free = _unassigned(spec, topic_ids)
    total = sum(spec.partition_counts[topic_id] for topic_id in topic_ids)
    share, with_one_more = divmod(total, len(spec.members))

    assignment: dict[str, Partitions] = {}
    with_room: list[tuple[str, int]] = []
    members_left = len(spec.members)
    for member_id, member in spec.members.items():
        quota = share + (1 if with_one_more else 0)
        kept, room = _keep(member.assignment, topic_ids, quota, free)
        if with_one_more:
            if room and members_left > with_one_more:
                # A later member may keep the extra partition without a move.
                room -= 1
            else:
                with_one_more -= 1
        if room:
            with_room.append((member_id, room))
        assignment[member_id] = kept
        members_left -= 1

    _distribute(free, with_room, assignment)
    return assignment


def _unassigned(spec: GroupSpec, topic_ids: frozenset[bytes]) -> list[tuple[bytes, int]]:
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in topic_ids}
    for member in spec.members.values():
        for topic_id, numbers in member.assignment.items():
            if topic_id in taken:
                taken[topic_id] |= numbers
    return [
        (topic_id, number)
        for topic_id in topic_ids
        for number in range(spec.partition_counts[topic_id])
        if number not in taken[topic_id]
    ]


def _keep(
    assignment: Partitions, topic_ids: frozenset[bytes], quota: int, free: list[tuple[bytes, int]]
) -> tuple[Partitions, int]:
    """The partitions that a member keeps, and how many more it may get; adds the others to `free`."""
    kept: dict[bytes, frozenset[int]] = {}
    for topic_id, numbers in assignment.items():
        if topic_id not in topic_ids:
            continue
        if len(numbers) <= quota:
            kept[topic_id] = numbers
            quota -= len(numbers)
            continue
        ordered = sorted(numbers)
        if quota:
            kept[topic_id] = frozenset(ordered[:quota])
        free.extend((topic_id, number) for number in ordered[quota:])
        quota = 0
    return kept, quota


def _distribute(
    free: list[tuple[bytes, int]], with_room: list[tuple[str, int]], assignment: dict[str, Partitions]
) -> None:
    position = 0
    for member_id, room in with_room:
        if position == len(free):
            return
        given: dict[bytes, list[int]] = {}
        for topic_id, number in free[position : position + room]:
            given.setdefault(topic_id, []).append(number)
        position += room
        partitions = dict(assignment[member_id])
        for topic_id, numbers in given.items():
            partitions[topic_id] = partitions.get(topic_id, frozenset()).union(numbers)
        assignment[member_id] = partitions
