"""Windows (tumbling, hopping, sliding, session, join) and the rules that hold results back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from ottla.streams.errors import TopologyError
from ottla.streams.records import Window

Duration = int | timedelta
"""Milliseconds, or a timedelta."""


def to_ms(duration: Duration) -> int:
    """A duration in milliseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return duration


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise TopologyError(f"{name} must be at least {least} ms, not {value}")


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size that begin every `advance_ms`: tumbling when both are equal, else hopping.

    >>> TimeWindows.of(10_000).windows_for(12_345)
    [Window(start=10000, end=20000)]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, size: Duration, *, advance: Duration | None = None, grace: Duration = 0) -> Self:
        """Windows of a size; records that come later than `grace` after a window's end are dropped.

        >>> TimeWindows.of(timedelta(seconds=10), advance=5_000, grace=1_000)
        TimeWindows(size_ms=10000, advance_ms=5000, grace_ms=1000)
        """
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
        """All windows that a time lies in, the earliest first.

        >>> TimeWindows.of(10, advance=5).windows_for(12)
        [Window(start=5, end=15), Window(start=10, end=20)]
        """
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return [Window(start, start + self.size_ms) for start in range(first, timestamp + 1, self.advance_ms)]

    @property
    def retention_ms(self) -> int:
        """The time that a store keeps a window, from its start.

        >>> TimeWindows.of(10_000, grace=1_000).retention_ms
        11000
        """
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A window for every set of records that lie within `difference_ms` of each other; both ends are inside.

    >>> SlidingWindows.of(5_000)
    SlidingWindows(difference_ms=5000, grace_ms=0)
    """

    difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: Duration, *, grace: Duration = 0) -> Self:
        """Windows in which the first and the last record are at most `difference` apart.

        >>> SlidingWindows.of(timedelta(seconds=5), grace=1_000)
        SlidingWindows(difference_ms=5000, grace_ms=1000)
        """
        _at_least("a sliding window's time difference", to_ms(difference), 0)
        _at_least("a window's grace", to_ms(grace), 0)
        return cls(to_ms(difference), to_ms(grace))

    @property
    def retention_ms(self) -> int:
        """The time that a store keeps a window, from its start.

        >>> SlidingWindows.of(5_000).retention_ms
        10000
        """
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Records of a key with no pause longer than `gap_ms` between them; both ends are inside.

    >>> SessionWindows.of(30_000)
    SessionWindows(gap_ms=30000, grace_ms=0)
    """

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, gap: Duration, *, grace: Duration = 0) -> Self:
        """Sessions that end after a pause of `gap`.

        >>> SessionWindows.of(timedelta(minutes=30))
        SessionWindows(gap_ms=1800000, grace_ms=0)
        """
        _at_least("a session's inactivity gap", to_ms(gap), 1)
        _at_least("a window's grace", to_ms(grace), 0)
        return cls(to_ms(gap), to_ms(grace))

    @property
    def retention_ms(self) -> int:
        """The time that a store keeps a session, from its end.

        >>> SessionWindows.of(30_000, grace=1_000).retention_ms
        31000
        """
        return self.gap_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """The right record of a join may be up to `before_ms` earlier and `after_ms` later than the left one.

    >>> JoinWindows.of(1_000).after(5_000)
    JoinWindows(before_ms=1000, after_ms=5000, grace_ms=0)
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: Duration, *, grace: Duration = 0) -> Self:
        """Both records are at most `difference` apart.

        >>> JoinWindows.of(timedelta(seconds=1))
        JoinWindows(before_ms=1000, after_ms=1000, grace_ms=0)
        """
        _at_least("a join window's grace", to_ms(grace), 0)
        _at_least("a join window's time difference", to_ms(difference), 0)
        return cls(to_ms(difference), to_ms(difference), to_ms(grace))

    def before(self, duration: Duration) -> JoinWindows:
        """The same windows, but the right record may be this much earlier.

        >>> JoinWindows.of(1_000).before(0)
        JoinWindows(before_ms=0, after_ms=1000, grace_ms=0)
        """
        return JoinWindows(to_ms(duration), self.after_ms, self.grace_ms)

    def after(self, duration: Duration) -> JoinWindows:
        """The same windows, but the right record may be this much later.

        >>> JoinWindows.of(1_000).after(0)
        JoinWindows(before_ms=1000, after_ms=0, grace_ms=0)
        """
        return JoinWindows(self.before_ms, to_ms(duration), self.grace_ms)

    @property
    def retention_ms(self) -> int:
        """The time that a store keeps a record for its partners.

        >>> JoinWindows.of(1_000).retention_ms
        2000
        """
        return self.before_ms + self.after_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class Suppressed:
    """When a table passes its changes on. Make one with `until_window_closes` or `until_time_limit`.

    >>> until_window_closes().until_close
    True
    """

    until_close: bool
    wait_ms: int = 0
    max_records: int | None = None
    emit_early_when_full: bool = False
    name: str | None = None


def tumbling(size: Duration, *, grace: Duration = 0) -> TimeWindows:
    """Windows of one size, one after the other.

    >>> tumbling(timedelta(seconds=10))
    TimeWindows(size_ms=10000, advance_ms=10000, grace_ms=0)
    """
    return TimeWindows.of(size, grace=grace)


def hopping(size: Duration, advance: Duration, *, grace: Duration = 0) -> TimeWindows:
    """Windows of one size that overlap: a new one begins every `advance`.

    >>> hopping(10_000, 5_000)
    TimeWindows(size_ms=10000, advance_ms=5000, grace_ms=0)
    """
    return TimeWindows.of(size, advance=advance, grace=grace)


def sliding(difference: Duration, *, grace: Duration = 0) -> SlidingWindows:
    """A window for every set of records that are at most `difference` apart.

    >>> sliding(5_000)
    SlidingWindows(difference_ms=5000, grace_ms=0)
    """
    return SlidingWindows.of(difference, grace=grace)


def session(gap: Duration, *, grace: Duration = 0) -> SessionWindows:
    """Sessions of a key: they end after a pause of `gap`.

    >>> session(timedelta(minutes=30))
    SessionWindows(gap_ms=1800000, grace_ms=0)
    """
    return SessionWindows.of(gap, grace=grace)


def until_window_closes(*, max_records: int | None = None, name: str | None = None) -> Suppressed:
    """Exactly one result per window, when no more records can change it.

    >>> from ottla.streams import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> counts = builder.stream("clicks").group_by_key().windowed_by(tumbling(10)).count()
    >>> counts.suppress(until_window_closes()).to_stream().to("out")
    >>> with TopologyTestDriver(builder) as driver:
    ...     driver.pipe_records("clicks", [("a", "/", 1), ("a", "/", 2), ("a", "/", 12)])
    ...     [record.value for record in driver.read_all("out")]
    [2]
    """
    return Suppressed(until_close=True, max_records=max_records, name=name)


def until_time_limit(
    wait: Duration, *, max_records: int | None = None, name: str | None = None
) -> Suppressed:
    """At most one result per key and `wait`; a full buffer releases the oldest early.

    >>> from ottla.streams import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> counts = builder.stream("clicks").group_by_key().count()
    >>> counts.suppress(until_time_limit(10)).to_stream().to("out")
    >>> with TopologyTestDriver(builder) as driver:
    ...     driver.pipe_records("clicks", [("a", "/", 1), ("a", "/", 2), ("b", "/", 12)])
    ...     [(record.key, record.value) for record in driver.read_all("out")]
    [('a', 2)]
    """
    return Suppressed(False, to_ms(wait), max_records, emit_early_when_full=True, name=name)
