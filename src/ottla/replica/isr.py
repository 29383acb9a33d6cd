"""The in-sync set of a partition as its leader sees it: what followers have, who is in sync, and what is committed.

Pure state: offsets and times in, decisions out. `alter_partition` sends changes to the controller; the partition owns
the log and the waiting requests.

    committed ──propose(isr)──▶ pending ──confirmed or metadata──▶ committed
                                   └──────refused────────────────▶ committed, as before

While a change is pending both its sides count: the high watermark waits for a replica that is about to join and for
one that is about to leave, and `min.insync.replicas` applies to the committed set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ottla.ids import BrokerId

UNKNOWN: Final = -1
NO_BROKER_EPOCH: Final = -1
_LONG_AGO: Final = float("-inf")

Eligible = Callable[[BrokerId, int], bool]
"""`eligible(replica, broker_epoch)`: the broker is alive, not shutting down, and in its last registration's epoch."""


class Pulse(Protocol):
    """When a follower last sent any fetch, in monotonic milliseconds: its session."""

    used_ms: float


class Follower:
    """What the leader knows of one follower."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "id",
        "pulse",
        "start_offset",
    )

    def __init__(self, replica: BrokerId, caught_up_ms: float) -> None:
        self.id = replica
        self.end_offset = UNKNOWN
        """It has everything before."""
        self.start_offset = UNKNOWN
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = caught_up_ms
        """When it last had everything that the leader had."""
        self.pulse: Pulse | None = None
        self._fetched_ms = _LONG_AGO
        self._leader_end = UNKNOWN

    def fetched(
        self,
        offset: int,
        start_offset: int,
        broker_epoch: int,
        leader_end: int,
        now_ms: float,
        pulse: Pulse | None,
    ) -> None:
        """It fetches from `offset` on."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self._leader_end >= 0:
            # It has all that existed at its last fetch: under steady load no fetch ever reaches the end.
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.pulse = pulse
        self._fetched_ms = now_ms
        self._leader_end = leader_end

    def left_behind(self) -> None:
        """The log grows while the follower is at its end: it was caught up at its last fetch."""
        if self.pulse is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.pulse.used_ms)

    def is_caught_up(self, leader_end: int, now_ms: float, max_lag_ms: float) -> bool:
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms

    def begin_epoch(self, *, in_sync: bool, new_leader: bool, leader_end: int, now_ms: float) -> None:
        """A leader epoch begins. A leader that led before keeps what it knows of its followers."""
        self.caught_up_ms = now_ms if in_sync else _LONG_AGO
        if new_leader:
            self.end_offset = self.start_offset = UNKNOWN
            self.broker_epoch = NO_BROKER_EPOCH
            self.pulse = None
            self._fetched_ms = _LONG_AGO
            self._leader_end = UNKNOWN
        else:
            self._fetched_ms = self.caught_up_ms
            self._leader_end = leader_end


class Proposal:
    """A change of the in-sync set that is requested from the controller."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch")

    def __init__(self, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.isr = isr
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch

    def __repr__(self) -> str:
        return f"Proposal(isr={self.isr}, leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch})"


class InSyncSet:
    """Followers and in-sync set of a partition that this broker leads."""

    __slots__ = ("_eligible", "_max_lag_ms", "_node_id", "committed", "followers", "maximal", "pending")

    def __init__(self, node_id: BrokerId, eligible: Eligible, max_lag_ms: Callable[[], float]) -> None:
        self._node_id = node_id
        self._eligible = eligible
        self._max_lag_ms = max_lag_ms
        self.committed: tuple[BrokerId, ...] = ()
        self.maximal: frozenset[BrokerId] = frozenset()
        """The committed set and the replicas that are about to join."""
        self.pending: Proposal | None = None
        self.followers: dict[BrokerId, Follower] = {}

    def assign(self, replicas: Iterable[BrokerId], isr: tuple[BrokerId, ...], now_ms: float) -> None:
        """Follow the metadata, which decides what was pending."""
        known = self.followers
        self.followers = {
            replica: known.get(replica) or Follower(replica, now_ms if replica in isr else _LONG_AGO)
            for replica in replicas
            if replica != self._node_id
        }
        self._commit(isr)

    def clear(self, isr: tuple[BrokerId, ...]) -> None:
        """This broker does not lead: nothing is known of the others."""
        self.followers = {}
        self._commit(isr)

    def _commit(self, isr: tuple[BrokerId, ...]) -> None:
        self.pending = None
        self.committed = isr
        self.maximal = frozenset(isr)

    # -- the high watermark

    def high_watermark(self, leader_end: int, now_ms: float) -> int:
        """The lowest end offset of the replicas that are in sync, are about to be, or may be at any moment."""
        mark = leader_end
        for follower in self.followers.values():
            if follower.end_offset < mark and (
                follower.id in self.maximal
                or (
                    follower.is_caught_up(leader_end, now_ms, self._max_lag_ms())
                    and self._eligible(follower.id, follower.broker_epoch)
                )
            ):
                mark = follower.end_offset
        return mark

    def low_watermark(self, leader_start: int, alive: Callable[[BrokerId], bool]) -> int:
        """Every replica on a live broker has deleted the records below it."""
        return min(
            [leader_start]
            + [follower.start_offset for follower in self.followers.values() if alive(follower.id)]
        )

    # -- changes

    def expansion(self, high_watermark: int, epoch_start: int) -> tuple[BrokerId, ...] | None:
        """The set with a follower that has reached the high watermark, or None if none has."""
        if self.pending is not None:
            return None
        for follower in self.followers.values():
            if (
                follower.id not in self.maximal
                and follower.end_offset >= high_watermark
                and follower.end_offset >= epoch_start
                and self._eligible(follower.id, follower.broker_epoch)
            ):
                return (*self.committed, follower.id)
        return None

    def shrinkage(self, leader_end: int, now_ms: float) -> tuple[BrokerId, ...] | None:
        """The set without the followers that lag for too long, or None if none does."""
        if self.pending is not None:
            return None
        max_lag_ms = self._max_lag_ms()
        left = tuple(
            replica
            for replica in self.committed
            if replica == self._node_id
            or (
                (follower := self.followers.get(replica)) is not None
                and follower.is_caught_up(leader_end, now_ms, max_lag_ms)
            )
        )
        return left if len(left) < len(self.committed) else None

    def propose(self, isr: tuple[BrokerId, ...], leader_epoch: int, partition_epoch: int) -> Proposal:
        self.pending = Proposal(isr, leader_epoch, partition_epoch)
        self.maximal = frozenset(self.committed) | frozenset(isr)
        return self.pending

    def refused(self) -> None:
        """The controller refused the change: the committed set stays."""
        self._commit(self.committed)

    def confirmed(self, isr: tuple[BrokerId, ...]) -> None:
        self._commit(isr)

    def broker_epoch(self, replica: BrokerId) -> int:
        follower = self.followers.get(replica)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch
