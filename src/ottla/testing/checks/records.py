"""The promises about single records: none is lost, doubled, swapped, invented, or passed over by a reader."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ottla.testing.checks.history import History, Outcome, Poll
from ottla.testing.checks.seen import Anomaly, Seen


def check_offsets(history: History, seen: Seen) -> Iterator[Anomaly]:
    """An offset has one record, and a record one offset."""
    for partition, by_offset in seen.values.items():
        for offset, values in by_offset.items():
            if len(values) > 1:
                yield Anomaly("inconsistent offsets", f"{sorted(values)} were all at {offset} of {partition}")
            if history.every_send_is_known and values - seen.sends.keys():
                strange = sorted(values - seen.sends.keys())
                yield Anomaly("foreign record", f"nobody sent {strange}, which is at {offset} of {partition}")
    for value, places in seen.places.items():
        if len(places) > 1 and not seen.excused(value):
            yield Anomaly("duplicate", f"{value!r} was seen at {sorted(places)}")


def check_lost(history: History, seen: Seen) -> Iterator[Anomaly]:
    """What was acknowledged is there in the end."""
    committed = _values(seen.last_committed)
    dirty = _values(seen.last_dirty)
    for send in history.sends:
        place = f"{send.value!r}, acknowledged at {send.offset} of {send.partition},"
        if not seen.promised(send):
            # An aborted record stays in the log, too.
            if send.outcome is Outcome.OK and dirty is not None and send.value not in dirty:
                yield Anomaly("lost write", f"{place} is gone")
        elif send.value not in seen.read:
            if send.offset <= seen.ends.get(send.partition, -1):
                yield Anomaly("lost write", f"{place} was read by nobody, but later offsets were")
            else:
                yield Anomaly("unseen", f"{place} was read by nobody")
        elif any(last is not None and send.value not in last for last in (committed, dirty)):
            yield Anomaly("lost write", f"{place} was read once and is gone")


def _values(last: dict[str, dict[int, str]] | None) -> set[str] | None:
    return None if last is None else {value for records in last.values() for value in records.values()}


def check_order(history: History, seen: Seen) -> Iterator[Anomaly]:
    """The records of one producer keep their order in each partition."""
    for partition, by_offset in seen.values.items():
        last: dict[str, tuple[int, str]] = {}
        for offset, values in sorted(by_offset.items()):
            send = seen.sends.get(min(values))
            if send is None or len(values) > 1 or (partition, send.value) in seen.sent_again:
                continue
            number, before = last.get(send.client, (-1, ""))
            if send.number < number:
                yield Anomaly(
                    "non-monotonic send",
                    f"{send.value!r} at {offset} of {partition} stands after {before!r} of {send.client}",
                )
            last[send.client] = max((send.number, send.value), (number, before))


def check_polls(history: History, seen: Seen) -> Iterator[Anomaly]:
    """Within a session a consumer only moves forward, skips no record, and sees nothing beyond its limit."""
    visible = {
        committed: {
            partition: sorted(records) for partition, records in seen.visible(committed=committed).items()
        }
        for committed in (True, False)
    }
    position: dict[tuple[str, str, str], int] = {}
    for poll in history.polls:
        if poll.final:
            continue
        for partition, offset, value in poll.records:
            if 0 <= poll.limit <= offset:
                yield Anomaly(
                    "read beyond the limit",
                    f"{poll.client} was shown {offset} of {partition}, the limit was {poll.limit}",
                )
            reader = (poll.client, poll.session, partition)
            before = position.get(reader, poll.start - 1 if poll.start >= 0 else None)
            position[reader] = offset
            if before is None:
                continue
            if offset <= before:
                yield Anomaly(
                    "non-monotonic poll",
                    f"{poll.client} got {value!r} at {offset} of {partition} after offset {before}",
                )
                continue
            yield from _left_out(poll, partition, before, offset, visible[poll.committed].get(partition, []))


def _left_out(poll: Poll, partition: str, before: int, offset: int, known: list[int]) -> Iterator[Anomaly]:
    left_out = known[bisect_right(known, before) : bisect_left(known, offset)]
    if left_out:
        yield Anomaly(
            "poll skip", f"{poll.client} went from {before} to {offset} of {partition} past {left_out[:5]}"
        )


def check_read_stays(history: History, seen: Seen) -> Iterator[Anomaly]:
    """What a reader was shown is still there in the end, unless it may have been dirty."""
    for poll in history.polls:
        last = seen.last_committed if poll.committed else seen.last_dirty
        if poll.final or last is None:
            continue
        for partition, offset, value in poll.records:
            found = last.get(partition, {}).get(offset)
            if found is None:
                yield Anomaly(
                    "read and gone",
                    f"{poll.client} read {value!r} at {offset} of {partition}, where nothing is in the end",
                )
