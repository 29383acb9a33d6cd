"""The end of acquired records: acknowledged, released by their member, or taken back when their lock expires.

An acknowledgement counts once the share coordinator has persisted it. Until then it is a `Change`, which `settle`
completes or reverts. An expired lock takes effect at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.in_flight import NO_MEMBER, Change, InFlight, Run, add_state
from ottla.replica.share.states import Acknowledgement, AckType, RecordState, ShareSettings, StateBatch

_NEW_STATE = {
    AckType.GAP: RecordState.ARCHIVED,
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
}


def acknowledge(
    flight: InFlight,
    settings: ShareSettings,
    member: str,
    acknowledgements: Iterable[Acknowledgement],
    now: float,
) -> Change:
    """Acknowledge records that a member holds: all of them, or raise and change nothing."""
    change = Change()
    renewed: list[tuple[int, int]] = []
    try:
        for ack in acknowledgements:
            if ack.last < flight.start_offset:
                continue
            _check_range(flight, ack)
            for first, last, kind in _by_type(flight, ack):
                _check_held(flight, member, first, last)
                if kind is AckType.RENEW:
                    if not settings.renew_enabled:
                        raise ApiException(
                            ErrorCode.INVALID_RECORD_STATE, "Locks of this group's members cannot be renewed"
                        )
                    renewed.append((first, last))
                else:
                    for run in flight.cut(first, last):
                        _begin(flight, settings, change, run, _NEW_STATE[kind])
    except ApiException:
        settle(flight, settings, change, now, persisted=False)
        raise
    for first, last in renewed:
        for run in flight.cut(first, last):
            run.deadline = now + settings.record_lock_ms / 1000
    return change


def release(flight: InFlight, settings: ShareSettings, member: str) -> Change:
    """Release everything that a member holds, because its session has ended."""
    change = Change()
    for run in flight.runs:
        if run.state is RecordState.ACQUIRED and run.change is None and run.member == member:
            _begin(flight, settings, change, run, RecordState.AVAILABLE)
    return change


def settle(flight: InFlight, settings: ShareSettings, change: Change, now: float, *, persisted: bool) -> None:
    """Complete a change that the share coordinator has persisted, or revert it."""
    for run in flight.over(change.first, change.last):
        if run.change is not change:
            continue
        run.change = None
        if persisted:
            if run.state is RecordState.AVAILABLE:
                flight.look_at(run.first)
            continue
        state, holder = run.before
        if run.deadline <= now:
            # The lock expired while the change was pending.
            state, holder = _released(settings, run), NO_MEMBER
        flight.set_state(run, state, holder)
    flight.advance()


def expire(flight: InFlight, settings: ShareSettings, now: float) -> tuple[list[StateBatch], float | None]:
    """Take back the records whose lock has expired; the changes, and when the next lock expires."""
    changes: list[StateBatch] = []
    next_deadline: float | None = None
    for run in flight.runs:
        if run.state is not RecordState.ACQUIRED:
            continue
        if run.deadline <= now:
            flight.set_state(run, _released(settings, run))
            add_state(changes, run.first, run.last, run.state, run.delivery_count)
        elif next_deadline is None or run.deadline < next_deadline:
            next_deadline = run.deadline
    return changes, next_deadline


def _released(settings: ShareSettings, run: Run) -> RecordState:
    """The next state of a record that its member did not acknowledge."""
    if run.delivery_count >= settings.delivery_count_limit:
        return RecordState.ARCHIVED
    return RecordState.AVAILABLE


def _begin(flight: InFlight, settings: ShareSettings, change: Change, run: Run, state: RecordState) -> None:
    if state is RecordState.AVAILABLE:
        state = _released(settings, run)
    run.before = (run.state, run.member)
    run.change = change
    flight.set_state(run, state)
    change.add(run.first, run.last, state, run.delivery_count)


def _check_range(flight: InFlight, ack: Acknowledgement) -> None:
    if not flight.runs:
        raise ApiException(
            ErrorCode.INVALID_RECORD_STATE, f"Offsets {ack.first} to {ack.last} are not in flight"
        )
    if ack.last > flight.end_offset:
        raise ApiException(
            ErrorCode.INVALID_REQUEST,
            f"Offsets up to {ack.last} were never acquired, only up to {flight.end_offset}",
        )


def _by_type(flight: InFlight, ack: Acknowledgement) -> Iterator[tuple[int, int, AckType]]:
    """The ranges of one type each, without offsets that are finished."""
    try:
        kinds = [AckType(kind) for kind in ack.types]
    except ValueError as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown acknowledge type in {ack.types}") from error
    start = flight.start_offset
    if len(kinds) == 1:
        yield max(ack.first, start), ack.last, kinds[0]
        return
    first = ack.first
    for kind, same in groupby(kinds):
        last = first + len(list(same)) - 1
        if last >= start:
            yield max(first, start), last, kind
        first = last + 1


def _check_held(flight: InFlight, member: str, first: int, last: int) -> None:
    for run in flight.over(first, last):
        if run.change is not None:
            raise ApiException(
                ErrorCode.INVALID_RECORD_STATE,
                f"Offsets {run.first} to {run.last} are being acknowledged already",
            )
        if run.state is not RecordState.ACQUIRED:
            raise ApiException(
                ErrorCode.INVALID_RECORD_STATE, f"Offsets {run.first} to {run.last} are not acquired"
            )
        if run.member != member:
            raise ApiException(
                ErrorCode.INVALID_RECORD_STATE,
                f"Offsets {run.first} to {run.last} are held by another member",
            )
