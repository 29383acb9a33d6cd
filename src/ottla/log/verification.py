"""Transactions whose coordinator is being asked whether a partition belongs to them: one guard for each producer.

A batch that begins a transaction in a partition must show the guard that was given out before the coordinator was
asked. If a marker came in between, the guard is void, and the late batch cannot leave an open transaction behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.records.batch import BatchHeader


class VerificationGuard:
    """Proof of one question to the coordinator. Equal only to itself."""

    __slots__ = ()


UNVERIFIED = VerificationGuard()
"""Passes everywhere: what stands for a guard where `transaction.partition.verification.enable` is off."""


@dataclass(slots=True)
class _Verification:
    started_ms: int
    lowest_sequence: int
    epoch: int
    adds_partitions: bool
    """From transaction version 2 on the batch itself adds its partition to the transaction."""
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def saw(self, sequence: int, epoch: int) -> None:
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence


class Verifications:
    """The questions of one partition that are under way, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, _Verification] = {}

    def start(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partitions: bool
    ) -> VerificationGuard:
        """The guard of the producer's next transaction here; the same one until it is used or void."""
        entry = self._by_producer.get(producer_id)
        if entry is None:
            entry = _Verification(now_ms, sequence, epoch, adds_partitions)
            self._by_producer[producer_id] = entry
        else:
            entry.saw(sequence, epoch)
        return entry.guard

    def holds(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        if guard is UNVERIFIED:
            return True
        entry = self._by_producer.get(producer_id)
        return entry is not None and entry.guard is guard

    def expected_sequence(self, header: BatchHeader, *, known: bool) -> int | None:
        """The sequence that a batch should have begun with; None if nothing speaks against it.

        A batch must not overtake an earlier one that still waits for the coordinator's answer.
        """
        entry = self._by_producer.get(header.producer_id)
        if entry is None:
            return None
        if entry.adds_partitions and header.base_sequence != 0 and not known:
            return 0
        return entry.lowest_sequence if header.base_sequence > entry.lowest_sequence else None

    def appended(self, header: BatchHeader) -> None:
        """A transactional batch or marker of the producer is in the log: its guard is used up, or void."""
        if not self._by_producer:
            return
        entry = self._by_producer.get(header.producer_id)
        if entry is None:
            return
        # A late marker of the transaction before does not concern the one that begins with the bumped epoch.
        if header.is_control and entry.adds_partitions and header.producer_epoch == entry.epoch:
            return
        del self._by_producer[header.producer_id]

    def expire(self, before_ms: int) -> None:
        """Forget the questions that nobody came back for."""
        if self._by_producer:
            self._by_producer = {
                producer_id: entry
                for producer_id, entry in self._by_producer.items()
                if entry.started_ms > before_ms
            }

    def clear(self) -> None:
        self._by_producer.clear()
