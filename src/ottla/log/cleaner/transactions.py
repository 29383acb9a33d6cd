"""Transaction state during a cleaning, which reads a log from its start: aborted batches, and whether a marker's
transaction still has data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.log.types import AbortedTxn
from ottla.records.batch import BatchHeader

_ABORT = 0
_COMMIT = 1


class CleanedTransactionMetadata:
    """Gets every batch in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_on_kept_abort", "_waiting")

    def __init__(
        self, aborted: Iterable[AbortedTxn], on_kept_abort: Callable[[AbortedTxn], None] | None = None
    ) -> None:
        self._waiting = sorted(set(aborted), key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """By producer: the open transaction that will be aborted, and whether a batch of it was seen."""
        self._committed: set[int] = set()
        """Producers with an open transaction that will be committed."""
        self._on_kept_abort = on_kept_abort

    def set_on_kept_abort(self, callback: Callable[[AbortedTxn], None]) -> None:
        """Set the callback for aborted transactions that the new segment must still list."""
        self._on_kept_abort = callback

    def is_aborted(self, header: BatchHeader) -> bool:
        """Process a data batch; True if its transaction was aborted, so that the batch can be removed."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def is_marker_done(self, header: BatchHeader, control_type: int | None) -> bool:
        """Process a control batch; True if its transaction has no data left, so that the marker can be removed.

        A control batch without a record (`control_type` None) was cleaned before.
        """
        self._begin_up_to(header.last_offset)
        if control_type is None:
            return True
        if control_type == _ABORT:
            txn, seen = self._aborted.pop(header.producer_id, (None, False))
            if txn is not None and seen:
                if self._on_kept_abort is not None:
                    self._on_kept_abort(txn)
                return False
            return True
        if control_type == _COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= offset:
            txn = waiting.pop()
            self._aborted.setdefault(txn.producer_id, (txn, False))
