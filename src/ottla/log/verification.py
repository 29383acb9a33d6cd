"""Transaction verification (KIP-890): the coordinator confirms that a partition belongs to a transaction.

A batch that begins a transaction in a partition must show the guard that was issued before the coordinator was
asked. A marker in between voids the guard, so a late batch cannot leave an open transaction behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.records.batch import BatchHeader


class VerificationGuard:
    """Proof of one verification request. Equal only to itself."""

    __slots__ = ()


UNVERIFIED = VerificationGuard()
"""A guard that is always valid: used while `transaction.partition.verification.enable` is false."""


@dataclass(slots=True)
class _Verification:
    started_ms: int
    lowest_sequence: int
    epoch: int
    adds_partitions: bool
    """From transaction version 2 on, the batch itself adds its partition to the transaction."""
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def saw(self, sequence: int, epoch: int) -> None:
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence


class Verifications:
    """The pending verifications of one partition by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, _Verification] = {}

    def start(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds_partitions: bool
    ) -> VerificationGuard:
        """Return the guard of the producer's next transaction: the same one until it is used or void."""
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
        """Return the sequence that a batch should have begun with; None if the batch is in order.

        A batch must not overtake an earlier one that still waits for the coordinator's answer.
        """
        entry = self._by_producer.get(header.producer_id)
        if entry is None:
            return None
        if entry.adds_partitions and header.base_sequence != 0 and not known:
            return 0
        return entry.lowest_sequence if header.base_sequence > entry.lowest_sequence else None

    def appended(self, header: BatchHeader) -> None:
        """A transactional batch or marker of the producer was appended: its guard is used or void."""
        if not self._by_producer:
            return
        entry = self._by_producer.get(header.producer_id)
        if entry is None:
            return
        # A late marker of the previous transaction does not concern the one that begins with the bumped epoch.
        if header.is_control and entry.adds_partitions and header.producer_epoch == entry.epoch:
            return
        del self._by_producer[header.producer_id]

    def expire(self, before_ms: int) -> None:
        """Remove the verifications that started before a time."""
        if self._by_producer:
            self._by_producer = {
                producer_id: entry
                for producer_id, entry in self._by_producer.items()
                if entry.started_ms > before_ms
            }

    def clear(self) -> None:
        self._by_producer.clear()
