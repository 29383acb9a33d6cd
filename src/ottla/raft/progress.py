"""What a leader knows of the other replicas: their end offsets, their last fetches, and what a majority has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.raft.types import ReplicaKey
from ottla.raft.voters import VoterSet

OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for this long is forgotten, as in Kafka."""


@dataclass(slots=True)
class Progress:
    """One replica, as its fetches show it. Times are -1 where there was no fetch."""

    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_then: int = -1
    """The end of the leader's log at the last fetch: a replica that has reached it now was caught up then."""

    def fetched(self, end_offset: int, leader_end: int, now_ms: int) -> None:
        self.end_offset = max(self.end_offset, end_offset)
        if end_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 <= self.leader_end_then <= end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.last_fetch_ms = now_ms
        self.leader_end_then = leader_end


class LeaderProgress:
    """Voters and observers of one epoch of this leader."""

    __slots__ = ("_fetched", "_local", "observers", "quorum_seen_ms", "voters")

    def __init__(self, local: ReplicaKey, voters: VoterSet, now_ms: int) -> None:
        self._local = local
        self.voters: dict[ReplicaKey, Progress] = {node.key: Progress() for node in voters.nodes.values()}
        self.observers: dict[ReplicaKey, Progress] = {}
        self._fetched: set[ReplicaKey] = set()
        self.quorum_seen_ms = now_ms
        """When a majority of the voters had last fetched."""

    def of(self, key: ReplicaKey) -> Progress | None:
        """What is known of the replica, voter or not."""
        voter = self._voter(key)
        return self.observers.get(key) if voter is None else self.voters[voter]

    def _voter(self, key: ReplicaKey) -> ReplicaKey | None:
        return next((voter for voter in self.voters if voter.matches(key)), None)

    def change_voters(self, voters: VoterSet, now_ms: int) -> None:
        """Observers that become voters keep their progress, and voters that become observers too."""
        # A new set of voters is a new majority: give it the full time to fetch.
        self.quorum_seen_ms = now_ms
        known = {**self.observers, **self.voters}
        wanted = {node.key for node in voters.nodes.values()}
        self.voters = {key: known.get(key) or Progress() for key in wanted}
        self.observers = {
            key: progress
            for key, progress in known.items()
            if key not in wanted and key != self._local and progress.last_fetch_ms >= 0
        }
        self._fetched &= wanted

    def flushed(self, end_offset: int) -> None:
        """The leader's own log is durable up to here."""
        own = self._voter(self._local)
        if own is not None:
            self.voters[own].end_offset = max(self.voters[own].end_offset, end_offset)

    def fetched(self, key: ReplicaKey, end_offset: int, leader_end: int, now_ms: int) -> None:
        """A replica has fetched from `end_offset` on (or, with -1, a part of a snapshot)."""
        voter = self._voter(key)
        if voter is None:
            if end_offset >= 0:
                self.observers.setdefault(key, Progress()).fetched(end_offset, leader_end, now_ms)
                self._expire(now_ms)
            return
        if end_offset >= 0:
            self.voters[voter].fetched(end_offset, leader_end, now_ms)
        self._fetched.add(voter)
        if len(self._fetched) + (self._voter(self._local) is not None) >= self.majority:
            self._fetched.clear()
            self.quorum_seen_ms = now_ms

    def _expire(self, now_ms: int) -> None:
        for key in [k for k, p in self.observers.items() if now_ms - p.last_fetch_ms > OBSERVER_SESSION_MS]:
            del self.observers[key]

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def majority_offset(self) -> int:
        """The log is durable up to here at a majority of the voters."""
        offsets = sorted((progress.end_offset for progress in self.voters.values()), reverse=True)
        return offsets[self.majority - 1]

    @property
    def others(self) -> list[ReplicaKey]:
        """The voters other than this node, those with the longest log first."""
        keys = [key for key in self.voters if not key.matches(self._local)]
        return sorted(keys, key=lambda key: (-self.voters[key].end_offset, key.id))
