"""How time is cut: tumbling, hopping, sliding and session windows, windows of joins, and when results are held back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from ottla.streams.errors import TopologyError
from ottla.streams.records import Window

Duration = int | timedelta
"""Milliseconds, or a timedelta."""


def to_ms(duration: Duration) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return duration


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise TopologyError(f"{name} must be at least {least} ms, not {value}")


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size that begin every `advance_ms`: tumbling when both are equal, else hopping."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, size: Duration, *, advance: Duration | None = None, grace: Duration = 0) -> Self:
        size_ms = to_ms(size)
        advance_ms = size_ms if advance is None else to_ms(advance)
        _at_least("a window's size", size_ms, 1)
        _at_least("a window's grace", to_ms(grace), 0)
        if not 0 < advance_ms <= size_ms:
            raise TopologyError(
                f"windows of {size_ms} ms can advance by 1 to {size_ms} ms at a time, not {advance_ms}"
            )
        return cls(size_ms, advance_ms, to_ms(grace))

    def windows_for(self, timestamp: int) -> list[Window]:
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return [Window(start, start + self.size_ms) for start in range(first, timestamp + 1, self.advance_ms)]

    @property
    def retention_ms(self) -> int:
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window for every set of records that lie within `difference_ms` of each other; both ends are inside."""

    difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: Duration, *, grace: Duration = 0) -> Self:
        _at_least("a sliding window's time difference", to_ms(difference), 0)
        _at_least("a window's grace", to_ms(grace), 0)
        return cls(to_ms(difference), to_ms(grace))

    @property
    def retention_ms(self) -> int:
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Activity of a key with no pause longer than `gap_ms`; both ends are inside."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, gap: Duration, *, grace: Duration = 0) -> Self:
        _at_least("a session's inactivity gap", to_ms(gap), 1)
        _at_least("a window's grace", to_ms(grace), 0)
        return cls(to_ms(gap), to_ms(grace))

    @property
    def retention_ms(self) -> int:
        return self.gap_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The right record may be up to `before_ms` earlier and `after_ms` later than the left one."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: Duration, *, grace: Duration = 0) -> Self:
        _at_least("a join window's grace", to_ms(grace), 0)
        _at_least("a join window's time difference", to_ms(difference), 0)
        return cls(to_ms(difference), to_ms(difference), to_ms(grace))

    def before(self, duration: Duration) -> JoinWindows:
        return JoinWindows(to_ms(duration), self.after_ms, self.grace_ms)

    def after(self, duration: Duration) -> JoinWindows:
        return JoinWindows(self.before_ms, to_ms(duration), self.grace_ms)

    @property
    def retention_ms(self) -> int:
        return self.before_ms + self.after_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class Suppressed:
    """When a table passes its changes on: only the final result of a window, or at most one per key and interval."""

    until_close: bool
    wait_ms: int = 0
    max_records: int | None = None
    emit_early_when_full: bool = False
    name: str | None = None


def tumbling(size: Duration, *, grace: Duration = 0) -> TimeWindows:
    return TimeWindows.of(size, grace=grace)


def hopping(size: Duration, advance: Duration, *, grace: Duration = 0) -> TimeWindows:
    return TimeWindows.of(size, advance=advance, grace=grace)


def sliding(difference: Duration, *, grace: Duration = 0) -> SlidingWindows:
    return SlidingWindows.of(difference, grace=grace)


def session(gap: Duration, *, grace: Duration = 0) -> SessionWindows:
    return SessionWindows.of(gap, grace=grace)


def until_window_closes(*, max_records: int | None = None, name: str | None = None) -> Suppressed:
    """Exactly one result per window, when no more records can change it."""
    return Suppressed(until_close=True, max_records=max_records, name=name)


def until_time_limit(
    wait: Duration, *, max_records: int | None = None, name: str | None = None
) -> Suppressed:
    """At most one result per key and `wait`; a full buffer lets the oldest go early."""
    return Suppressed(False, to_ms(wait), max_records, emit_early_when_full=True, name=name)
