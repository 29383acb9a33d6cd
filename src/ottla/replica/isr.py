"""The in-sync set of a partition as its leader sees it: what followers have, who is in, and what is committed.

Pure state: offsets and times in, decisions out. Sending changes to the controller is `alter_partition`'s, the log
and whoever waits are the partition's.

    committed ──propose(isr)──▶ pending ──confirmed or metadata──▶ committed
                                   └──────refused────────────────▶ committed, as before

While a change is pending both its sides count: the high watermark waits for a replica that is about to come in
and for one that is about to leave, and `min.insync.replicas` is held against the committed set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

UNKNOWN: Final = -1
NO_BROKER_EPOCH: Final = -1
_LONG_AGO: Final = float("-inf")

Eligible = Callable[[int, int], bool]
"""`eligible(replica, broker_epoch)`: the broker is alive, stays, and is the one that registered last."""


class Pulse(Protocol):
    """When a follower last sent a fetch of any partition, in monotonic milliseconds: its session."""

    used_ms: float


class Follower:
    """What the leader knows of one follower."""

    __slots__ = (
        "_asked_ms",
        "_leader_end",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "id",
        "pulse",
        "start_offset",
    )

    def __init__(self, replica: int, caught_up_ms: float) -> None:
        self.id = replica
        self.end_offset = UNKNOWN
        """It has everything before."""
        self.start_offset = UNKNOWN
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = caught_up_ms
        """When it last had everything that the leader had."""
        self.pulse: Pulse | None = None
        self._asked_ms = _LONG_AGO
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
        """It asks from `offset` on."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self._leader_end >= 0:
            # It has all that there was when it asked last: under steady load no fetch ever reaches the end.
            self.caught_up_ms = max(self.caught_up_ms, self._asked_ms)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.pulse = pulse
        self._asked_ms = now_ms
        self._leader_end = leader_end

    def left_behind(self) -> None:
        """The log grows while the follower is at its end: it was caught up when it was last heard of."""
        if self.pulse is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.pulse.used_ms)

    def is_caught_up(self, leader_end: int, now_ms: float, max_lag_ms: float) -> bool:
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms

    def begin_epoch(self, *, in_sync: bool, new_leader: bool, leader_end: int, now_ms: float) -> None:
        """A leader epoch begins. A leader that only goes on keeps what it knows of its followers."""
        self.caught_up_ms = now_ms if in_sync else _LONG_AGO
        if new_leader:
            self.end_offset = self.start_offset = UNKNOWN
            self.broker_epoch = NO_BROKER_EPOCH
            self.pulse = None
            self._asked_ms = _LONG_AGO
            self._leader_end = UNKNOWN
        else:
            self._asked_ms = self.caught_up_ms
            self._leader_end = leader_end


class Proposal:
    """A change of the in-sync set that the controller is asked for."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch")

    def __init__(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.isr = isr
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch

    def __repr__(self) -> str:
        return f"Proposal(isr={self.isr}, leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch})"


class InSyncSet:
    """Followers and in-sync set of a partition that this broker leads."""

    __slots__ = ("_eligible", "_max_lag_ms", "_node_id", "committed", "followers", "maximal", "pending")

    def __init__(self, node_id: int, eligible: Eligible, max_lag_ms: Callable[[], float]) -> None:
        self._node_id = node_id
        self._eligible = eligible
        self._max_lag_ms = max_lag_ms
        self.committed: tuple[int, ...] = ()
        self.maximal: frozenset[int] = frozenset()
        """The committed set with whoever is about to come in."""
        self.pending: Proposal | None = None
        self.followers: dict[int, Follower] = {}

    def assign(self, replicas: Iterable[int], isr: tuple[int, ...], now_ms: float) -> None:
        """Follow the metadata; whatever was pending is decided by it."""
        known = self.followers
        self.followers = {
            replica: known.get(replica) or Follower(replica, now_ms if replica in isr else _LONG_AGO)
            for replica in replicas
            if replica != self._node_id
        }
        self._commit(isr)

    def clear(self, isr: tuple[int, ...]) -> None:
        """This broker does not lead: nothing is known of the others."""
        self.followers = {}
        self._commit(isr)

    def _commit(self, isr: tuple[int, ...]) -> None:
        self.pending = None
        self.committed = isr
        self.maximal = frozenset(isr)

    # -- the high watermark

    def high_watermark(self, leader_end: int, now_ms: float) -> int:
        """Up to where every replica counts that is in sync, is about to be, or may be at any moment."""
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

    def low_watermark(self, leader_start: int, alive: Callable[[int], bool]) -> int:
        """Below it every replica on a living broker has deleted its records."""
        return min(
            [leader_start]
            + [follower.start_offset for follower in self.followers.values() if alive(follower.id)]
        )

    # -- changes

    def expansion(self, high_watermark: int, epoch_start: int) -> tuple[int, ...] | None:
        """The set with a follower that has come up to the high watermark, or None where none has."""
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

    def shrinkage(self, leader_end: int, now_ms: float) -> tuple[int, ...] | None:
        """The set without the followers that lag for too long, or None where none does."""
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

    def propose(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> Proposal:
        self.pending = Proposal(isr, leader_epoch, partition_epoch)
        self.maximal = frozenset(self.committed) | frozenset(isr)
        return self.pending

    def refused(self) -> None:
        """The controller wants none of it: the committed set stands."""
        self._commit(self.committed)

    def confirmed(self, isr: tuple[int, ...]) -> None:
        self._commit(isr)

    def broker_epoch(self, replica: int) -> int:
        follower = self.followers.get(replica)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch
