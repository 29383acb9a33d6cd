"""Checks a history against the final logs: acknowledged records are there once and in order, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.log.types import TopicPartition
from ottla.testing.sim.history import COPY_OF, Commit, History, Outcome, Send

DELIVERIES: Final = 10
"""The delivery count limit of share groups."""

Log = Sequence[tuple[int, bytes]]
"""Offset and value of every record, without markers."""


def check(
    history: History,
    logs: Mapping[TopicPartition, Log],
    committed: Mapping[TopicPartition, Log],
) -> list[str]:
    """Return every violation. `logs` has the final records of a plain reader, `committed` those of read_committed."""
    return [
        *history.anomalies,
        *_acknowledged(history, logs),
        *_order(history, logs),
        *_transactions(history, committed),
        *_polls(history, logs, committed),
        *_commits(history),
        *_copies(history, committed),
        *_deliveries(history, logs),
    ]


def _acknowledged(history: History, logs: Mapping[TopicPartition, Log]) -> Iterator[str]:
    """Acknowledged records are not lost, not duplicated, and at the acknowledged offset."""
    counts = {tp: Counter(value for _, value in log) for tp, log in logs.items()}
    places = {tp: dict(log) for tp, log in logs.items()}
    for send in history.sends:
        count, place = counts[send.partition], places[send.partition]
        for index, value in enumerate(send.values):
            if count[value] > 1:
                yield f"{value!r} stands {count[value]} times in {send.partition}"
            if send.outcome is not Outcome.OK:
                continue
            if not count[value]:
                yield f"{value!r} was acknowledged and is not in {send.partition}"
            elif send.base_offset >= 0 and place.get(send.base_offset + index) != value:
                yield (
                    f"{value!r} was acknowledged at {send.base_offset + index} of {send.partition}, "
                    f"where {place.get(send.base_offset + index)!r} is"
                )
    known = {value for send in history.sends for value in send.values}
    for tp, count in counts.items():
        for value in count:
            if value not in known:
                yield f"nobody sent {value!r}, which is in {tp}"


def _order(history: History, logs: Mapping[TopicPartition, Log]) -> Iterator[str]:
    """Records of one producer keep their order."""
    sent: dict[bytes, tuple[str, int]] = {}
    for send in history.sends:
        for value in send.values:
            sent[value] = (send.producer, int(value.rsplit(b":", 1)[1]))
    for tp, log in logs.items():
        last: dict[str, int] = {}
        for offset, value in log:
            producer, number = sent.get(value, ("", 0))
            if number < last.get(producer, -1):
                yield f"{value!r} at {offset} of {tp} stands after a later one of {producer}"
            last[producer] = max(number, last.get(producer, -1))


def _transactions(history: History, committed: Mapping[TopicPartition, Log]) -> Iterator[str]:
    """Transactions are atomic and have the outcome that the producer got."""
    visible = {tp: {value for _, value in log} for tp, log in committed.items()}
    for transaction in history.transactions:
        acknowledged = [send for send in transaction.sends if send.outcome is Outcome.OK]
        seen = [_is_visible(send, visible) for send in acknowledged]
        name = f"transaction {transaction.number} of {transaction.producer}"
        if transaction.outcome is Outcome.OK and not all(seen):
            yield f"{name} was committed, and a part of it cannot be read"
        if transaction.outcome is Outcome.FAILED and any(_any_visible(s, visible) for s in transaction.sends):
            yield f"{name} was aborted, and a part of it can be read"
        if transaction.outcome is Outcome.UNKNOWN and any(seen) and not all(seen):
            yield f"{name} can be read in part"


def _is_visible(send: Send, visible: Mapping[TopicPartition, set[bytes]]) -> bool:
    return all(value in visible[send.partition] for value in send.values)


def _any_visible(send: Send, visible: Mapping[TopicPartition, set[bytes]]) -> bool:
    return any(value in visible[send.partition] for value in send.values)


def _polls(
    history: History, logs: Mapping[TopicPartition, Log], committed: Mapping[TopicPartition, Log]
) -> Iterator[str]:
    """Records that were read stay; none is beyond the limit; none is skipped between two polls."""
    final = {True: {tp: dict(log) for tp, log in committed.items()}}
    final[False] = {tp: dict(log) for tp, log in logs.items()}
    position: dict[tuple[str, TopicPartition], int] = {}
    for poll in history.polls:
        there = final[poll.committed_only][poll.partition]
        for offset, value in poll.records:
            if offset >= poll.limit:
                yield f"{poll.reader} was shown {offset} of {poll.partition}, the limit was {poll.limit}"
            if there.get(offset) != value:
                yield (
                    f"{poll.reader} read {value!r} at {offset} of {poll.partition}, "
                    f"where {there.get(offset)!r} is in the end"
                )
            at = position.get((poll.reader, poll.partition), -1)
            if offset <= at:
                yield f"{poll.reader} was shown {offset} of {poll.partition} after {at}"
            position[poll.reader, poll.partition] = offset
    yield from _skips(history, final)


def _skips(
    history: History, final: Mapping[bool, Mapping[TopicPartition, Mapping[int, bytes]]]
) -> Iterator[str]:
    seen: dict[tuple[str, bool, TopicPartition], set[int]] = {}
    for poll in history.polls:
        seen.setdefault((poll.reader, poll.committed_only, poll.partition), set()).update(
            offset for offset, _ in poll.records
        )
    for (reader, committed_only, tp), offsets in seen.items():
        if offsets:
            missed = [o for o in final[committed_only][tp] if o <= max(offsets) and o not in offsets]
            if missed:
                yield f"{reader} read past {missed[0]} of {tp} without being shown it ({len(missed)} in all)"


def _commits(history: History) -> Iterator[str]:
    """The offset of a group never goes back after an acknowledged commit.

    A commit whose answer never came may take effect at any time later: what it explains is no violation.
    """
    for event in history.commits:
        if event.outcome is Outcome.OK:
            yield from _went_back(history, event, lowest=0)
    for event in history.seen_offsets:
        yield from _went_back(history, event, lowest=event.offset)


def _went_back(history: History, event: Commit, lowest: int) -> Iterator[str]:
    """Check an offset against acknowledged commits and those of unknown outcome."""
    same = [c for c in history.commits if c.group == event.group and c.partition == event.partition]
    reached = max((c.offset for c in same if c.outcome is Outcome.OK and c.ended < event.began), default=-1)
    late = any(
        c.outcome is Outcome.UNKNOWN and c.began < event.ended and lowest <= c.offset <= event.offset
        for c in same
    )
    if event.offset < reached and not late:
        yield f"group {event.group} was at {reached} of {event.partition} and later at {event.offset}"


def _copies(history: History, committed: Mapping[TopicPartition, Log]) -> Iterator[str]:
    """The copies match the group's offsets: each record once and in order."""
    source = {
        value: (tp, offset)
        for tp in history.copied_to
        for offset, value in committed[tp]
        if COPY_OF not in value
    }
    copied: Counter[bytes] = Counter()
    last: dict[TopicPartition, int] = {}
    for tp, log in committed.items() if history.copied_to else ():
        for offset, copy in log:
            original, mark, _ = copy.partition(COPY_OF)
            if not mark:
                continue
            copied[original] += 1
            if original not in source:
                yield f"{copy!r} at {offset} of {tp} is a copy of what is not committed"
                continue
            origin, at = source[original]
            if at < last.get(origin, -1):
                yield f"{copy!r} at {offset} of {tp} stands after the copy of a later one"
            last[origin] = at
    for value, (tp, offset) in source.items():
        wanted = int(offset < history.copied_to[tp])
        if copied[value] != wanted:
            yield (
                f"{value!r} at {offset} of {tp} was copied {copied[value]} times, "
                f"and the group is at {history.copied_to[tp]}"
            )


def _deliveries(history: History, logs: Mapping[TopicPartition, Log]) -> Iterator[str]:
    """An acknowledged record of a queue is not delivered again, and in the end all records are acknowledged.

    A replaced leader that does not know it yet misses the acknowledgements to its successor. It may deliver records
    again, as Kafka's does, but it refuses the acknowledgements of its consumers.
    """
    accepted: dict[tuple[TopicPartition, int], tuple[float, int]] = {}
    done: set[tuple[TopicPartition, int]] = set()
    for delivery in history.deliveries:
        key = (delivery.partition, delivery.offset)
        if delivery.accepted is not None or delivery.count >= DELIVERIES:
            done.add(key)
        if delivery.accepted is Outcome.OK:
            # A late acknowledgement also succeeds once all records up to there are complete, as in Kafka.
            acknowledged = (delivery.ended, delivery.leader_epoch)
            accepted[key] = min(acknowledged, accepted.get(key, acknowledged))
    for delivery in history.deliveries:
        ended, epoch = accepted.get((delivery.partition, delivery.offset), (delivery.began, 0))
        if ended < delivery.began and epoch <= delivery.leader_epoch:
            yield f"{delivery.offset} of {delivery.partition} was given out after it was acknowledged"
    if history.deliveries:
        tp = history.deliveries[0].partition
        # Records of unknown outcome may have arrived after the consumers had ended.
        promised = {value for send in history.sends if send.outcome is Outcome.OK for value in send.values}
        missing = [offset for offset, value in logs[tp] if value in promised and (tp, offset) not in done]
        if missing:
            yield f"nobody was given {missing[0]} of {tp} to acknowledge ({len(missing)} in all)"
