"""Finds anomalies in a history, like Jepsen's workload for Kafka.

| anomaly | |
|---|---|
| inconsistent offsets | two values were seen at one offset |
| duplicate | one value was seen at two offsets |
| lost write | acknowledged, below something that was read, and never read |
| unseen | acknowledged, and not read by the last readers of all |
| poll skip | a consumer went past a record that it should have had |
| non-monotonic poll | a consumer got an offset at or before one that it had already |
| non-monotonic send | a later record of one producer stands before an earlier one |
| aborted read | a reader of committed records got one of an aborted transaction |
| precommitted read | ... or one whose commit had not been asked for yet |
| torn transaction | some records of a transaction can be read, others cannot |
| copied twice, not copied | a transactional copy that is not exactly one per record taken in |
| write cycle | the order of transactions in two partitions, or what they read of each other, contradicts itself |
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.testing.chaos.cycles import cyclic_parts
from ottla.testing.chaos.history import History, Outcome, Send, Transaction

COPY_MARK: Final = " of "
"""A copy's value is its own name, this mark, and its original's value."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The kind of an anomaly, and the evidence."""

    kind: str
    what: str


@dataclass(slots=True)
class _Seen:
    """An index of a history by partitions and values."""

    values: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(dict))
    """By partition and offset, from sends and polls."""
    places: dict[str, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """The places of each value."""
    read: set[str] = field(default_factory=set)
    read_committed: set[str] = field(default_factory=set)
    read_last: set[str] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    """The highest offset of each partition that was read."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    """The transaction that wrote a value."""
    sent_again: set[tuple[str, str]] = field(default_factory=set)
    """Partitions and values that their producer sent again under a new epoch: see `Renewal`."""


def check(history: History) -> list[Anomaly]:
    """Return all anomalies of a history."""
    seen = _gather(history)
    return [
        *_offsets(seen),
        *_lost(history, seen),
        *_polls(history, seen),
        *_sends(history),
        *_uncommitted_reads(history, seen),
        *_torn(history, seen),
        *_copies(history, seen),
        *_cycles(history, seen),
    ]


def _gather(history: History) -> _Seen:
    seen = _Seen(transactions={each.name: each for each in history.transactions})
    for renewal in history.renewals:
        seen.sent_again.update((renewal.partition, value) for value in renewal.values)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.offset >= 0:
            seen.values[send.partition].setdefault(send.offset, set()).add(send.value)
            seen.places[send.value].add((send.partition, send.offset))
        if send.transaction:
            seen.owner[send.value] = send.transaction
    for poll in history.polls:
        for partition, offset, value in poll.records:
            seen.values[partition].setdefault(offset, set()).add(value)
            seen.places[value].add((partition, offset))
            seen.read.add(value)
            if poll.committed:
                seen.read_committed.add(value)
            if poll.final and poll.committed:
                seen.read_last.add(value)
            seen.ends[partition] = max(offset, seen.ends.get(partition, -1))
    return seen


def _offsets(seen: _Seen) -> Iterator[Anomaly]:
    for partition, by_offset in seen.values.items():
        for offset, values in by_offset.items():
            if len(values) > 1:
                yield Anomaly("inconsistent offsets", f"{sorted(values)} were all at {offset} of {partition}")
    for value, places in seen.places.items():
        if len(places) > 1 and not _excused(places, value, seen):
            yield Anomaly("duplicate", f"{value!r} was seen at {sorted(places)}")


def _excused(places: set[tuple[str, int]], value: str, seen: _Seen) -> bool:
    """Return whether the producer wrote the value twice by using two epochs."""
    partitions = {partition for partition, _ in places}
    return len(places) == 2 and len(partitions) == 1 and (partitions.pop(), value) in seen.sent_again


def excused(history: History) -> int:
    """Return the number of duplicates that their producer caused itself."""
    seen = _gather(history)
    return sum(len(places) > 1 and _excused(places, value, seen) for value, places in seen.places.items())


def _promised(send: Send, seen: _Seen) -> bool:
    """Return whether the record was acknowledged and committed."""
    if send.outcome is not Outcome.OK:
        return False
    return not send.transaction or _outcome(send.transaction, seen) is Outcome.OK


def _outcome(transaction: str, seen: _Seen) -> Outcome:
    found = seen.transactions.get(transaction)
    return Outcome.UNKNOWN if found is None else found.outcome


def _lost(history: History, seen: _Seen) -> Iterator[Anomaly]:
    there_are_last_reads = any(poll.final for poll in history.polls)
    for send in history.sends:
        if not _promised(send, seen):
            continue
        place = f"{send.value!r}, acknowledged at {send.offset} of {send.partition},"
        if send.value not in seen.read:
            if send.offset <= seen.ends.get(send.partition, -1):
                yield Anomaly("lost write", f"{place} was read by nobody, but later offsets were")
            else:
                yield Anomaly("unseen", f"{place} was read by nobody")
        elif there_are_last_reads and send.value not in seen.read_last:
            yield Anomaly("lost write", f"{place} was read once and is gone")


def _polls(history: History, seen: _Seen) -> Iterator[Anomaly]:
    """Within a session a consumer only moves forward, and skips no record."""
    visible = {
        partition: sorted(
            offset
            for offset, values in by_offset.items()
            if any(value in seen.read_committed for value in values)
        )
        for partition, by_offset in seen.values.items()
    }
    position: dict[tuple[str, str, str], int] = {}
    for poll in history.polls:
        for partition, offset, value in poll.records:
            reader = (poll.client, poll.session, partition)
            before = position.get(reader)
            position[reader] = offset
            if before is None:
                continue
            if offset <= before:
                yield Anomaly(
                    "non-monotonic poll",
                    f"{poll.client} got {value!r} at {offset} of {partition} after offset {before}",
                )
                continue
            known = visible[partition]
            left_out = known[bisect_right(known, before) : bisect_left(known, offset)]
            if left_out:
                yield Anomaly(
                    "poll skip",
                    f"{poll.client} went from {before} to {offset} of {partition} past {left_out[:5]}",
                )


def _sends(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, str], Send] = {}
    for send in sorted(history.sends, key=lambda each: (each.client, each.number)):
        if send.outcome is not Outcome.OK or send.offset < 0:
            continue
        before = last.get((send.client, send.partition))
        if before is not None and send.offset <= before.offset:
            yield Anomaly(
                "non-monotonic send",
                f"{send.client} sent {before.value!r} to {before.offset} and then {send.value!r} to {send.offset} "
                f"of {send.partition}",
            )
        last[send.client, send.partition] = send


def _uncommitted_reads(history: History, seen: _Seen) -> Iterator[Anomaly]:
    for poll in history.polls:
        if not poll.committed:
            continue
        for partition, offset, value in poll.records:
            name = seen.owner.get(value)
            transaction = None if name is None else seen.transactions.get(name)
            if transaction is None:
                continue
            where = f"{poll.client} read {value!r} at {offset} of {partition}"
            if transaction.outcome is Outcome.FAILED:
                yield Anomaly("aborted read", f"{where}, whose transaction {name} was aborted")
            elif poll.ended and poll.ended < transaction.ending:
                yield Anomaly("precommitted read", f"{where} before the commit of {name} was asked for")


def _torn(history: History, seen: _Seen) -> Iterator[Anomaly]:
    """The final reader finds all records of a transaction, or none."""
    if not any(poll.final for poll in history.polls):
        return
    by_transaction: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction and send.outcome is Outcome.OK:
            by_transaction[send.transaction].append(send)
    for name, sends in by_transaction.items():
        missing = [send.value for send in sends if send.value not in seen.read_last]
        if missing and len(missing) < len(sends):
            yield Anomaly("torn transaction", f"of {name} {missing[:5]} cannot be read, the rest can")


def _copies(history: History, seen: _Seen) -> Iterator[Anomaly]:
    copies: dict[tuple[str, str], set[str]] = defaultdict(set)
    for value in seen.read_committed:
        copy, mark, original = value.partition(COPY_MARK)
        if mark:
            copies[copy.partition("/")[0], original].add(value)
    for (_, original), values in copies.items():
        places = seen.places[original]
        if len(values) > (len(places) if _excused(places, original, seen) else 1):
            yield Anomaly("copied twice", f"{original!r} has the copies {sorted(values)}")
    for group in history.groups:
        for partition, end in group.offsets.items():
            for offset, originals in seen.values[partition].items():
                for original in originals & seen.read_committed:
                    if offset < end and (group.group, original) not in copies:
                        yield Anomaly(
                            "not copied",
                            f"{original!r} at {offset} of {partition}, {group.group} is at {end}",
                        )


def _cycles(history: History, seen: _Seen) -> Iterator[Anomaly]:
    """Kafka's transactions may interleave, so a cycle of writes alone counts only where they did not overlap in time.

    That two transactions read each other's records is never possible.
    """
    writes: dict[str, set[str]] = defaultdict(set)
    for by_offset in seen.values.values():
        before = ""
        for _, values in sorted(by_offset.items()):
            owner = seen.owner.get(min(values), "")
            if not owner or _outcome(owner, seen) is not Outcome.OK:
                continue
            if before and before != owner:
                writes[before].add(owner)
            before = owner
    for part in cyclic_parts(writes):
        for first in sorted(part):
            for second in sorted(writes[first] & part):
                if seen.transactions[second].ended < seen.transactions[first].began:
                    yield Anomaly(
                        "write cycle",
                        f"{first} began after {second} had ended and wrote before it: {sorted(part)}",
                    )
    reads: dict[str, set[str]] = defaultdict(set)
    for transaction in history.transactions:
        for value in transaction.reads:
            owner = seen.owner.get(value, "")
            if owner and owner != transaction.name:
                reads[owner].add(transaction.name)
    for part in cyclic_parts(reads):
        yield Anomaly("write cycle", f"these transactions read each other's records: {sorted(part)}")
