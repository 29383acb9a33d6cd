"""The states of a transaction, the transitions between them, and the state of one transactional id.

    Empty           ── partitions are added ──▶ Ongoing
    Ongoing         ── more partitions ───────▶ Ongoing
    Ongoing         ── EndTxn, commit ────────▶ PrepareCommit ── every marker is written ──▶ CompleteCommit
    Ongoing         ── EndTxn, abort; the time is up; a new producer of the same id ──▶ PrepareAbort
    PrepareAbort    ── every marker is written ──▶ CompleteAbort
    Complete*       ── partitions are added ──▶ Ongoing          (the next transaction)
    Empty Complete* ── InitProducerId ────────▶ Empty            (a new epoch)
    Empty Complete* ── EndTxn, abort ─────────▶ PrepareAbort     (version 2: the client may not know more)
    Empty Complete* ── not used for long ─────▶ Dead             (a tombstone; never a record)

The prepared states are the point of no return: from there on the outcome stands, whatever fails.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.ids import ProducerId, TransactionalId
from ottla.log.types import TopicPartition

NO_PRODUCER_ID: Final = ProducerId(-1)
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFF
NO_TIME: Final = -1

EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on every transaction ends with a new epoch (KIP-890)."""

NO_TIMEOUT: Final = 0x7FFF_FFFF
"""The timeout of a two-phase commit: the transaction waits for its outcome without a limit."""


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
"""No transaction is open: a new epoch, a new transaction or the end of the id may follow."""

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
"""PREPARE_EPOCH_FENCE exists as a number only: Ottla fences and aborts in one step."""


def epoch_exhausted(epoch: int) -> bool:
    """Whether no epoch is left. The highest is never given out, so that every producer can still be fenced."""
    return epoch >= MAX_EPOCH - 1


class TransactionMetadata(NamedTuple):
    """One transactional id, as its newest record describes it."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Partitions of the open transaction, or those that still need its marker."""
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The id that follows when the transaction is complete, because the epochs of this one are used up."""
    client_version: int = 0
    """The transaction version of the client that wrote this state."""

    @property
    def epoch_exhausted(self) -> bool:
        return epoch_exhausted(self.producer_epoch)

    @property
    def two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT
