"""What the clients of a run did and saw, while it goes on: outcomes and times are filled in when they are known.

`History.shared` gives it in the form that the checks of simulator and chaos runs share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.ids import GroupId, TransactionalId
from ottla.log.types import TopicPartition
from ottla.testing.checks import history as shared
from ottla.testing.checks.history import Outcome

COPY_OF: Final = b"@"
"""A copy's value is its original's value, this mark, and its own name."""
DELIVERIES: Final = 10
"""The delivery count limit of share groups."""

Log = Sequence[tuple[int, bytes]]
"""Offset and value of every record, without markers."""


@dataclass(slots=True)
class Send:
    """A batch of one producer to one partition."""

    producer: str
    partition: TopicPartition
    values: tuple[bytes, ...]
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    base_offset: int = -1


@dataclass(slots=True)
class Transaction:
    """`OK` is committed, `FAILED` is aborted."""

    producer: TransactionalId
    number: int
    sends: list[Send] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN
    began: float = 0.0
    ending: float = 0.0
    """When its commit was requested."""
    ended: float = 0.0
    group: str = ""
    taken: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """What a copier read and commits for its group: first and next offset."""
    reads: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Poll:
    """The result of one fetch of a reader."""

    reader: str
    partition: TopicPartition
    committed_only: bool
    records: list[tuple[int, bytes]]
    limit: int
    """The high watermark, or the last stable offset, in the response."""
    ended: float = 0.0


@dataclass(slots=True)
class Commit:
    """A group's offset, as a member committed or found it."""

    group: GroupId
    partition: TopicPartition
    offset: int
    outcome: Outcome = Outcome.UNKNOWN
    began: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class Delivery:
    """A record of a queue that a share consumer acquired."""

    partition: TopicPartition
    offset: int
    count: int
    """The delivery count in the response."""
    began: float
    """When the fetch began."""
    leader_epoch: int
    """The leader epoch that the consumer knew."""
    accepted: Outcome | None = None
    """The outcome of the acknowledgement; None without one."""
    ended: float = 0.0
    """When the response to the acknowledgement came."""


@dataclass(slots=True)
class History:
    """All operations, in the order in which they began."""

    sends: list[Send] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    owned: dict[tuple[GroupId, int, TopicPartition], str] = field(default_factory=dict)
    """The owner of a partition in a generation or member epoch of a group."""
    seen_offsets: list[Commit] = field(default_factory=list)
    """The committed offsets that members fetched."""
    copied_to: dict[TopicPartition, int] = field(default_factory=dict)
    """The final offsets of the copiers' group; empty without copiers."""
    deliveries: list[Delivery] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    """Violations that a client noticed itself."""

    def shared(
        self, logs: Mapping[TopicPartition, Log], committed: Mapping[TopicPartition, Log]
    ) -> shared.History:
        """Return the history for the checker, with the last records of a plain reader and of a read_committed one."""
        found = shared.History(every_send_is_known=True, delivery_limit=DELIVERIES)
        names = {id(each): f"{each.producer}#{i}" for i, each in enumerate(self.transactions)}
        for send in self.sends:
            found.sends += _sends(send, names)
        found.transactions = [_transaction(each, names[id(each)]) for each in self.transactions]
        found.polls = [_poll(each) for each in self.polls]
        found.polls += [
            shared.Poll(
                "last", "", only, tuple((str(tp), offset, _text(value)) for offset, value in log), final=True
            )
            for only, final in ((False, logs), (True, committed))
            for tp, log in final.items()
        ]
        found.commits = [_commit(each, seen=False) for each in self.commits]
        found.commits += [_commit(each, seen=True) for each in self.seen_offsets]
        if self.copied_to:
            group = next((each.group for each in self.transactions if each.group), "")
            found.groups = [shared.GroupOffsets(group, {str(tp): end for tp, end in self.copied_to.items()})]
        found.deliveries = [_delivery(each) for each in self.deliveries]
        return found


def _text(value: bytes) -> str:
    return value.decode()


def _sends(send: Send, names: Mapping[int, str]) -> list[shared.Send]:
    transaction = "" if send.transaction is None else names[id(send.transaction)]
    return [
        shared.Send(
            send.producer,
            int(value.rsplit(b":", 1)[1]),
            str(send.partition),
            _text(value),
            send.outcome,
            send.base_offset + index if send.base_offset >= 0 else -1,
            transaction,
            copy_of=_text(value.partition(COPY_OF)[0]) if COPY_OF in value else "",
        )
        for index, value in enumerate(send.values)
    ]


def _transaction(each: Transaction, name: str) -> shared.Transaction:
    return shared.Transaction(
        name,
        each.producer,
        each.outcome,
        each.began,
        each.ending,
        each.ended,
        tuple(map(_text, each.reads)),
        each.group,
        {str(tp): taken for tp, taken in each.taken.items()},
    )


def _poll(poll: Poll) -> shared.Poll:
    records = tuple((str(poll.partition), offset, _text(value)) for offset, value in poll.records)
    return shared.Poll(poll.reader, "", poll.committed_only, records, poll.ended, start=0, limit=poll.limit)


def _commit(each: Commit, *, seen: bool) -> shared.Commit:
    return shared.Commit(
        each.group, str(each.partition), each.offset, each.outcome, each.began, each.ended, seen
    )


def _delivery(each: Delivery) -> shared.Delivery:
    return shared.Delivery(
        str(each.partition),
        each.offset,
        each.count,
        each.began,
        each.leader_epoch,
        each.accepted,
        each.ended,
    )
