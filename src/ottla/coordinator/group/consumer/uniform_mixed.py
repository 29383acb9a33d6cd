"""The uniform assignor for a group whose members subscribe to different topics.

Members keep the partitions that they still subscribe to, and free partitions go to the subscriber with the fewest.
Then each round goes through the topics, the hardest to spread first, and moves partitions from the most to the least
loaded subscriber, until a round moves nothing. With overlapping subscriptions the result is close to even; the number
of rounds is bounded.
"""

from __future__ import annotations

import heapq
from typing import Final

from ottla.coordinator.group.consumer.member import Partitions
from ottla.coordinator.group.consumer.spec import GroupSpec

MAX_ROUNDS: Final = 16


def assign_different_topics(spec: GroupSpec) -> dict[str, Partitions]:
    """Every member's partitions, each of a topic that the member subscribes to."""
    return _Mixed(spec).build()


class _Mixed:
    """Members by number; `owners` of each topic's partitions (-1: no owner), and the `loads` of the members."""

    def __init__(self, spec: GroupSpec) -> None:
        self._member_ids = list(spec.members)
        self._loads = [0] * len(self._member_ids)
        self._subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {topic_id: [-1] * spec.partition_counts[topic_id] for topic_id in self._subscribers}
        for number, member in enumerate(spec.members.values()):
            for topic_id, partitions in member.assignment.items():
                if topic_id in member.topic_ids:
                    self._loads[number] += len(partitions)
                    for partition in partitions:
                        self._owners[topic_id][partition] = number
        # Topics with the most partitions per subscriber come first, since they leave the least choice.
        self._order = sorted(self._subscribers, key=self._difficulty)

    def _difficulty(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return (-len(self._owners[topic_id]) / subscribers, subscribers, topic_id)

    def build(self) -> dict[str, Partitions]:
        for topic_id in self._order:
            self._give_out(topic_id)
        shared = [topic_id for topic_id in self._order if len(self._subscribers[topic_id]) > 1]
        for _ in range(MAX_ROUNDS):
            if not sum(self._level(topic_id) for topic_id in shared):
                break
        return self._assignment()

    def _give_out(self, topic_id: bytes) -> None:
        """Assign the free partitions of a topic one by one to the subscriber with the fewest."""
        owners = self._owners[topic_id]
        if -1 not in owners:
            return
        heap = [(self._loads[member], member) for member in self._subscribers[topic_id]]
        heapq.heapify(heap)
        for partition, owner in enumerate(owners):
            if owner == -1:
                load, member = heap[0]
                owners[partition] = member
                self._loads[member] = load + 1
                heapq.heapreplace(heap, (load + 1, member))

    def _level(self, topic_id: bytes) -> int:
        """Move partitions of a topic from its most to its least loaded subscribers; returns how many."""
        loads = self._loads
        subscribers = self._subscribers[topic_id]
        if max(loads[member] for member in subscribers) - min(loads[member] for member in subscribers) <= 1:
            return 0
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        least = [(loads[member], member) for member in subscribers]
        most = [(-loads[member], -member) for member in owned]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            giver = -most[0][1]
            load, taker = least[0]
            if load != loads[taker]:
                heapq.heapreplace(least, (loads[taker], taker))
                continue
            if -most[0][0] != loads[giver]:
                heapq.heapreplace(most, (-loads[giver], -giver))
                continue
            if loads[giver] - load <= 1:
                break
            if not owned.get(giver):
                heapq.heappop(most)
                continue
            partition = owned[giver].pop()
            owners[partition] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved += 1
        return moved

    def _assignment(self) -> dict[str, Partitions]:
        parts: list[dict[bytes, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                parts[owner].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in parts[number].items()}
            for number, member_id in enumerate(self._member_ids)
        }
