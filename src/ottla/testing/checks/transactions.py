"""The promises about transactions: read completely or not at all, and copies that count each record once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ottla.testing.checks.history import GroupOffsets, History, Outcome, Send
from ottla.testing.checks.seen import Anomaly, Seen


def check_uncommitted_reads(history: History, seen: Seen) -> Iterator[Anomaly]:
    """A reader of committed records is shown no open and no aborted transaction."""
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


def check_torn(history: History, seen: Seen) -> Iterator[Anomaly]:
    """The final reader finds all records of a transaction, or none."""
    if seen.last_committed is None:
        return
    last = {value for records in seen.last_committed.values() for value in records.values()}
    by_transaction: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction and send.outcome is Outcome.OK:
            by_transaction[send.transaction].append(send)
    for name, sends in by_transaction.items():
        missing = [send.value for send in sends if send.value not in last]
        if missing and len(missing) < len(sends):
            yield Anomaly("torn transaction", f"of {name} {missing[:5]} cannot be read, the rest can")


def check_copies(history: History, seen: Seen) -> Iterator[Anomaly]:
    """Each record is copied once if its group is past it, otherwise not at all, and copies keep the order."""
    visible = seen.visible(committed=True)
    source = {
        value: (partition, offset)
        for partition, records in visible.items()
        for offset, value in records.items()
    }
    copies: dict[tuple[str, str], list[str]] = defaultdict(list)
    for partition, records in visible.items():
        last: dict[tuple[str, str], int] = {}
        for offset, value in sorted(records.items()):
            send = seen.sends.get(value)
            if send is None or not send.copy_of:
                continue
            group = _group(send, seen)
            copies[group, send.copy_of].append(value)
            place = source.get(send.copy_of)
            if place is None:
                yield Anomaly(
                    "copy of nothing", f"{value!r} at {offset} of {partition} copies what is not committed"
                )
            elif place[1] < last.get((group, place[0]), -1):
                yield Anomaly(
                    "copies out of order",
                    f"{value!r} at {offset} of {partition} stands after the copy of a later one",
                )
            else:
                last[group, place[0]] = place[1]
    for (_, original), values in copies.items():
        allowed = len(seen.places[original]) if seen.excused(original) else 1
        if len(values) > allowed:
            yield Anomaly("copied twice", f"{original!r} has the copies {sorted(values)}")
    for group_offsets in history.groups:
        yield from _missing(group_offsets, visible, copies)


def _group(send: Send, seen: Seen) -> str:
    transaction = seen.transactions.get(send.transaction)
    return transaction.group if transaction is not None and transaction.group else send.client


def _missing(
    group: GroupOffsets,
    visible: dict[str, dict[int, str]],
    copies: dict[tuple[str, str], list[str]],
) -> Iterator[Anomaly]:
    for partition, end in group.offsets.items():
        for offset, original in visible.get(partition, {}).items():
            copied = (group.group, original) in copies
            if copied != (offset < end):
                yield Anomaly(
                    "copied ahead" if copied else "not copied",
                    f"{original!r} at {offset} of {partition}, {group.group} is at {end}",
                )
