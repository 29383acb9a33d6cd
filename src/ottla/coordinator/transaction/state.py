"""The states of a transaction, which may follow which, and what is known of one transactional id.

    Empty           ── partitions are added ──▶ Ongoing
    Ongoing         ── more partitions ───────▶ Ongoing
    Ongoing         ── EndTxn, commit ────────▶ PrepareCommit ── every marker is written ──▶ CompleteCommit
    Ongoing         ── EndTxn, abort; the time is up; a new producer of the same id ──▶ PrepareAbort
    PrepareAbort    ── every marker is written ──▶ CompleteAbort
    Complete*       ── partitions are added ──▶ Ongoing          (the next transaction)
    Empty Complete* ── InitProducerId ────────▶ Empty            (a new epoch)
    Empty Complete* ── EndTxn, abort ─────────▶ PrepareAbort     (version 2: the client need not know more)
    Empty Complete* ── nobody came for long ──▶ Dead             (a tombstone; never a record)

The prepared states are the point of no return: from there on the outcome stands, whoever fails.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.log.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFF
NO_TIME: Final = -1

EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on every transaction ends with a new epoch (KIP-890)."""

NO_TIMEOUT: Final = 0x7FFF_FFFF
"""The timeout of a two-phase commit: the transaction waits for its outcome as long as it takes."""


class TransactionState(IntEnum):
    """The numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see."""
        return _TITLES[self]


_TITLES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}

_S = TransactionState
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""Nothing is under way: a new epoch, a new transaction or the end of the id may follow."""

VALID_PREVIOUS: Final = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The epoch fence exists as a number only: here fencing and aborting are one step."""


def epoch_exhausted(epoch: int) -> bool:
    """The highest epoch is never given out, so that whoever holds one can still be fenced."""
    return epoch >= MAX_EPOCH - 1


class TransactionMetadata(NamedTuple):
    """One transactional id as its newest record tells it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """What takes part in the open transaction, or is still to be told its end."""
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that takes over when the transaction is complete, because the epochs of this one are used up."""
    client_version: int = 0
    """The transaction version of the client that brought it here."""

    @property
    def epoch_exhausted(self) -> bool:
        return epoch_exhausted(self.producer_epoch)

    @property
    def two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT
