"""Brokers broken on purpose, to see that the simulator would notice. Each is a promise not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.log.partition_log import PartitionLog
from ottla.raft.quorum_state import ElectionState, QuorumStateStore
from ottla.replica import fetcher
from ottla.replica.partition import Partition

_Undo = list[Callable[[], None]]


def _replace(undo: _Undo, owner: Any, name: str, value: Any) -> None:
    before = getattr(owner, name)
    undo.append(lambda: setattr(owner, name, before))
    setattr(owner, name, value)


def _acknowledge_early(undo: _Undo) -> None:
    """A leader tells acks=all producers yes when it has appended, whatever its followers have."""

    def replicated(self: Partition, log: PartitionLog, end_offset: int) -> ErrorCode | None:
        return ErrorCode.NONE

    def has_committed(self: Partition, offset: int) -> bool:
        return True

    _replace(undo, Partition, "replicated", replicated)
    _replace(undo, Partition, "has_committed", has_committed)


def _skip_truncation(undo: _Undo) -> None:
    """A follower keeps what its new leader does not have."""

    def keep(log: PartitionLog, leader_epoch: int, leader_end: int) -> None:
        return None

    _replace(undo, fetcher, "_truncate", keep)


def _forget_the_vote(undo: _Undo) -> None:
    """A voter writes down for whom it voted only when it knows who has won."""
    write = QuorumStateStore.write

    def forget(
        self: QuorumStateStore, state: ElectionState, voters: frozenset[int], kraft_version: int
    ) -> None:
        if state.leader_id is not None:
            write(self, state, voters, kraft_version)

    _replace(undo, QuorumStateStore, "write", forget)


MUTATIONS: Final[dict[str, Callable[[_Undo], None]]] = {
    "acknowledge-early": _acknowledge_early,
    "skip-truncation": _skip_truncation,
    "forget-the-vote": _forget_the_vote,
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Within this the brokers of this process are broken in the way that `name` tells."""
    undo: _Undo = []
    try:
        if name is not None:
            MUTATIONS[name](undo)
        yield
    finally:
        for each in reversed(undo):
            each()
