"""Placement of new replicas: striped over racks and over the brokers of each rack, as Kafka does it.

A pure function of the usable brokers and a source of randomness. The caller decides which brokers are usable.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId

_NO_BROKER: Final = "All brokers are currently fenced, or all of their log directories are cordoned."


class UsableBroker(msgspec.Struct, frozen=True):
    """The data of a registered broker that placement needs."""

    id: BrokerId
    rack: str | None
    fenced: bool
    machine: str | None = None
    """The host that it advertises: brokers of one machine should not have replicas of one partition."""


class _Ring:
    """Brokers in turn; each new round starts one broker further."""

    __slots__ = ("_brokers", "_round", "_start", "_taken")

    def __init__(self, brokers: list[BrokerId], rng: random.Random) -> None:
        self._brokers = sorted(brokers)
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._round = 0
        self._taken = 0

    def take(self, round_: int) -> BrokerId | None:
        """The next broker of this round, or None when the round has used all of them."""
        count = len(self._brokers)
        if self._round != round_:
            self._round = round_
            self._taken = 0
            self._start += 1
        if self._taken >= count:
            return None
        broker = self._brokers[(self._start + self._taken) % count]
        self._taken += 1
        return broker

    def shuffle(self, rng: random.Random) -> None:
        rng.shuffle(self._brokers)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], rng: random.Random) -> None:
        self.fenced = _Ring([b.id for b in brokers if b.fenced], rng)
        self.unfenced = _Ring([b.id for b in brokers if not b.fenced], rng)

    def take(self, round_: int) -> BrokerId | None:
        """Unfenced brokers first; a fenced one only when the round has no other left."""
        broker = self.unfenced.take(round_)
        return self.fenced.take(round_) if broker is None else broker


class _Stripes:
    """The racks in a fixed order. Each partition starts one rack further than the one before."""

    __slots__ = ("_first", "_racks", "_rng", "_round", "_unfenced_count")

    def __init__(self, brokers: list[UsableBroker], rng: random.Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], rng) for name in names]
        self._rng = rng
        self._first = rng.randrange(len(self._racks))
        self._round = 0
        self._unfenced_count = sum(not broker.fenced for broker in brokers)

    def place(self, replication_factor: int) -> list[BrokerId]:
        # When every unfenced broker has led, the same stripes would repeat: shuffle them first.
        if self._round == self._unfenced_count > 1:
            self._rng.shuffle(self._racks)
            for rack in self._racks:
                rack.fenced.shuffle(self._rng)
                rack.unfenced.shuffle(self._rng)
            self._round = 0
        count = len(self._racks)
        start = self._first % count
        leader_rack, leader = self._leader(start)
        replicas = [leader]
        # The leader's rack is skipped once, so that the second replica is in another rack.
        skip: int | None = leader_rack
        at = start
        while len(replicas) < replication_factor:
            if at == skip:
                skip = None
            else:
                broker = self._racks[at].take(self._round)
                if broker is not None:
                    replicas.append(broker)
            at = (at + 1) % count
        self._round += 1
        self._first += 1
        return replicas

    def _leader(self, start: int) -> tuple[int, BrokerId]:
        """A new partition's leader is never a fenced broker."""
        count = len(self._racks)
        for step in range(count):
            at = (start + step) % count
            broker = self._racks[at].unfenced.take(self._round)
            if broker is not None:
                return at, broker
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, _NO_BROKER)


def place_replicas(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, rng: random.Random
) -> list[list[BrokerId]]:
    """The replica list of each new partition, its leader first. Raises INVALID_REPLICATION_FACTOR."""
    usable = list(brokers)
    if replication_factor <= 0:
        raise ApiException(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if all(broker.fenced for broker in usable):
        raise ApiException(ErrorCode.INVALID_REPLICATION_FACTOR, _NO_BROKER)
    if replication_factor > len(usable):
        raise ApiException(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered and take new replicas.",
        )
    stripes = _Stripes(usable, rng)
    placed = [stripes.place(replication_factor) for _ in range(partition_count)]
    machines = {broker.machine for broker in usable}
    if 1 < len(machines) < len(usable) and replication_factor > 1:
        apart = _Machines(usable)
        placed = [apart.separate(replicas) for replicas in placed]
    return placed


class _Machines:
    """Brokers that share a machine. Kafka's placement knows racks only, and may put two replicas on one machine."""

    __slots__ = ("_brokers", "_used")

    def __init__(self, brokers: list[UsableBroker]) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._used = dict.fromkeys(sorted(self._brokers), 0)
        """How many replicas each broker got in place of another one."""

    def separate(self, replicas: list[BrokerId]) -> list[BrokerId]:
        """Move replicas to other machines of their racks, as far as there are such."""
        kept: list[BrokerId] = []
        for replica in replicas:
            taken = {self._brokers[other].machine for other in kept}
            if self._brokers[replica].machine not in taken:
                kept.append(replica)
                continue
            taken |= {self._brokers[other].machine for other in replicas}
            free = [broker for broker in self._used if self._fits(broker, replica, taken)]
            chosen = min(free, key=self._used.__getitem__, default=replica)
            self._used[chosen] += 1
            kept.append(chosen)
        return kept

    def _fits(self, broker: BrokerId, replica: BrokerId, taken: set[str | None]) -> bool:
        other, own = self._brokers[broker], self._brokers[replica]
        return other.machine not in taken and other.rack == own.rack and other.fenced <= own.fenced
