"""An index of a history by partitions, values and transactions, which all checks share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ottla.testing.checks.history import History, Outcome, Send, Transaction


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The kind of an anomaly, and the evidence."""

    kind: str
    what: str


@dataclass(slots=True)
class Seen:
    """What was sent, acknowledged and read, and where."""

    values: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(dict))
    """By partition and offset, from sends and polls."""
    places: dict[str, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """The places of each value."""
    sends: dict[str, Send] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    read_committed: set[str] = field(default_factory=set)
    last_committed: dict[str, dict[int, str]] | None = None
    """What the last reader of committed records found, by partition and offset; None without such a reader."""
    last_dirty: dict[str, dict[int, str]] | None = None
    """The same for the last reader of all records."""
    ends: dict[str, int] = field(default_factory=dict)
    """The highest offset of each partition that was read."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    """The transaction that wrote a value."""
    sent_again: set[tuple[str, str]] = field(default_factory=set)
    """Partitions and values that their producer sent again under a new epoch: see `Renewal`."""

    def outcome(self, transaction: str) -> Outcome:
        found = self.transactions.get(transaction)
        return Outcome.UNKNOWN if found is None else found.outcome

    def promised(self, send: Send) -> bool:
        """Whether the record was acknowledged and committed."""
        if send.outcome is not Outcome.OK:
            return False
        return not send.transaction or self.outcome(send.transaction) is Outcome.OK

    def excused(self, value: str) -> bool:
        """Whether the producer itself wrote the value twice, by using two epochs."""
        places = self.places[value]
        partitions = {partition for partition, _ in places}
        return len(places) == 2 and len(partitions) == 1 and (partitions.pop(), value) in self.sent_again

    def visible(self, *, committed: bool) -> dict[str, dict[int, str]]:
        """What a reader must have been shown: the last reads, or without them what any committed reader was shown."""
        last = self.last_committed if committed else self.last_dirty
        if last is not None:
            return last
        if not committed and self.last_committed is not None:
            return self.last_committed
        return {
            partition: {
                offset: value
                for offset, values in by_offset.items()
                for value in values
                if value in self.read_committed
            }
            for partition, by_offset in self.values.items()
        }


def gather(history: History) -> Seen:
    """Build the index."""
    seen = Seen(transactions={each.name: each for each in history.transactions})
    for renewal in history.renewals:
        seen.sent_again.update((renewal.partition, value) for value in renewal.values)
    for send in history.sends:
        seen.sends[send.value] = send
        if send.outcome is Outcome.OK and send.offset >= 0:
            seen.values[send.partition].setdefault(send.offset, set()).add(send.value)
            seen.places[send.value].add((send.partition, send.offset))
        if send.transaction:
            seen.owner[send.value] = send.transaction
    for poll in history.polls:
        last: dict[str, dict[int, str]] | None = None
        if poll.final and poll.committed:
            last = seen.last_committed = seen.last_committed or {}
        elif poll.final:
            last = seen.last_dirty = seen.last_dirty or {}
        for partition, offset, value in poll.records:
            seen.values[partition].setdefault(offset, set()).add(value)
            seen.places[value].add((partition, offset))
            seen.read.add(value)
            if poll.committed:
                seen.read_committed.add(value)
            if last is not None:
                last.setdefault(partition, {})[offset] = value
            seen.ends[partition] = max(offset, seen.ends.get(partition, -1))
    return seen
