"""The rate of something over the last windows, sampled as Kafka's `Rate` samples it.

A window's events are one sample. The elapsed time counts as at least all windows but one, so that the first events
of a client do not look like a high rate.
"""

from __future__ import annotations

from math import floor


class _Sample:
    """The sum of one window."""

    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


class Rate:
    """Events per second. Each value costs the same, however many windows there are."""

    __slots__ = (
        "_current",
        "_nothing_expires_before_ms",
        "_oldest_ms",
        "_samples",
        "_total",
        "samples",
        "window_ms",
    )

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        """`samples` windows of `window_ms` each (`quota.window.num`, `quota.window.size.seconds`)."""
        self.samples = samples
        self.window_ms = window_ms
        self._samples = [_Sample(now_ms)]
        self._current = 0
        self._sum_up()

    def record(self, value: float, now_ms: int) -> None:
        """Count a value. A negative one takes back what was counted before."""
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self.window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms
        self._total += value

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return self._total / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over."""
        if now_ms >= self._nothing_expires_before_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self.samples - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(elapsed_ms, 1)

    def charge(self, value: float, limit: float, allowance: float, now_ms: int) -> int:
        """Count a value; how long to wait for it.

        `allowance` is what all windows but one allow: up to that the rate is not above the limit, however long the
        measured time is.
        """
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self.window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms
        self._total += value
        if now_ms >= self._nothing_expires_before_ms:
            self._purge(now_ms)
        return 0 if self._total <= allowance else self.throttle_ms(limit, now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is at the limit again; 0 while it is not above."""
        elapsed_ms = self.elapsed_ms(now_ms)
        over = self._total / (elapsed_ms / 1000) - limit
        # Half a millisecond is rounded up, as Java rounds.
        return floor(over / limit * elapsed_ms + 0.5) if over > 0 else 0

    def _advance(self, now_ms: int) -> _Sample:
        # One sample more than windows: the oldest one may overlap the measured time.
        self._current = (self._current + 1) % (self.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        self._sum_up()
        return self._samples[self._current]

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.samples * self.window_ms
        for sample in self._samples:
            if sample.last_event_ms <= oldest_ms:
                sample.reset(now_ms)
        self._sum_up()

    def _sum_up(self) -> None:
        self._total = sum(sample.value for sample in self._samples)
        self._oldest_ms = min(sample.start_ms for sample in self._samples)
        last_ms = min(sample.last_event_ms for sample in self._samples)
        self._nothing_expires_before_ms = last_ms + self.samples * self.window_ms
