"""The rate of something over the last windows, sampled as Kafka's `Rate` samples it.

A window's events are one sample. The elapsed time counts as at least all windows but one, so that the first events
of a client do not look like a high rate.
"""

from __future__ import annotations

from collections import deque
from math import floor


class _Sample:
    """The sum of one window."""

    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_event_ms: float = now_ms
        self.value = 0.0


class _Waits:
    """The waits of one window."""

    __slots__ = ("count", "start_ms", "sum_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.count = self.sum_ms = 0


class Rate:
    """Events per second. Each value costs the same, however many windows there are."""

    __slots__ = (
        "_current",
        "_oldest_ms",
        "_others",
        "_sample",
        "_samples",
        "last_event_ms",
        "next_change_ms",
        "samples",
        "value",
        "window_ms",
    )

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        """`samples` windows of `window_ms` each (`quota.window.num`, `quota.window.size.seconds`)."""
        self.samples = samples
        self.window_ms = window_ms
        self._samples = [_Sample(now_ms)]
        self._current = 0
        self._sample = self._samples[0]
        """The one at `_current`. While it goes on, its sum and its last event are here instead:"""
        self.value = 0.0
        self.last_event_ms: float = now_ms
        self.next_change_ms = 0.0
        """Until then it goes on, and no sample is too old. A float, as requests compare it with one."""
        self._sum_up()

    def record(self, value: float, now_ms: int) -> None:
        """Count a value. A negative one takes back what was counted before."""
        if now_ms >= self.next_change_ms:
            self.change_samples(now_ms)
        self.value += value
        self.last_event_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return (self._others + self.value) / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over."""
        if now_ms >= self.next_change_ms:
            self._put_back()
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self.samples - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is at the limit again; 0 while it is not above."""
        elapsed_ms = self.elapsed_ms(now_ms)
        over = (self._others + self.value) / (elapsed_ms / 1000) - limit
        # Half a millisecond is rounded up, as Java rounds.
        return floor(over / limit * elapsed_ms + 0.5) if over > 0 else 0

    def change_samples(self, now_ms: int) -> None:
        """Begin a new sample if the current one is complete, and forget those that are too old."""
        self._put_back()
        if now_ms - self._sample.start_ms >= self.window_ms:
            # One sample more than windows: the oldest one may overlap the measured time.
            self._current = (self._current + 1) % (self.samples + 1)
            if self._current == len(self._samples):
                self._samples.append(_Sample(now_ms))
            else:
                self._samples[self._current].reset(now_ms)
            self._sample = self._samples[self._current]
        self._purge(now_ms)

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.samples * self.window_ms
        for sample in self._samples:
            if int(sample.last_event_ms) <= oldest_ms:
                sample.reset(now_ms)
        self._sum_up()

    def _put_back(self) -> None:
        self._sample.value, self._sample.last_event_ms = self.value, self.last_event_ms

    def _sum_up(self) -> None:
        self.value, self.last_event_ms = self._sample.value, self._sample.last_event_ms
        self._others = sum(sample.value for sample in self._samples if sample is not self._sample)
        self._oldest_ms = min(sample.start_ms for sample in self._samples)
        last_ms = min(sample.last_event_ms for sample in self._samples)
        change_ms = min(self._sample.start_ms + self.window_ms, int(last_ms) + self.samples * self.window_ms)
        self.next_change_ms = float(change_ms)


class Measure(Rate):
    """A rate with its limit."""

    __slots__ = ("_waits", "allowance", "left", "limit")

    def __init__(self, samples: int, window_ms: int, limit: float, now_ms: int) -> None:
        self.allowance = 0.0
        self._waits: deque[_Waits] = deque(maxlen=samples)
        super().__init__(samples, window_ms, now_ms)
        self.change_limit(limit)

    def change_limit(self, limit: float) -> None:
        """What was measured so far stays."""
        self.limit = limit
        self.allowance = limit * (self.samples - 1) * self.window_ms / 1000
        """What all windows but one allow: up to that the rate is not above the limit, however long the time is."""
        self.left = self.allowance - self._others

    def _sum_up(self) -> None:
        super()._sum_up()
        self.left = self.allowance - self._others
        """What of it the current sample may use."""

    def charge(self, value: float, now_ms: float) -> int:
        """Count a value; how long its client has to wait for it. Whole milliseconds count."""
        if now_ms >= self.next_change_ms:
            self.change_samples(int(now_ms))
        self.last_event_ms = now_ms
        used = self.value = self.value + value
        return 0 if used <= self.left else self.throttle_ms(self.limit, int(now_ms))

    def note_wait(self, throttle_ms: int, now_ms: int) -> None:
        """A client that uses too much has to wait so long."""
        waits = self._waits
        if not waits or now_ms - waits[-1].start_ms >= self.window_ms:
            waits.append(_Waits(now_ms))
        waits[-1].count += 1
        waits[-1].sum_ms += throttle_ms

    def average_wait_ms(self, now_ms: int) -> float:
        """How long clients had to wait on average, in the last windows; 0 if none had to."""
        oldest_ms = now_ms - self.samples * self.window_ms
        lately = [each for each in self._waits if each.start_ms > oldest_ms]
        count = sum(each.count for each in lately)
        return sum(each.sum_ms for each in lately) / count if count else 0.0
