"""Measures how long the event loop is blocked, on every node, and notes what held it up.

A timer that fires late shows that something blocked the loop. The measure is that delay, less the time in which the
thread was ready to run but had no core. A second thread takes the loop's stack while a delay lasts. It sleeps on a
timer of the kernel that the loop arms again at every look: a thread that wakes up takes the interpreter from the loop.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

import msgspec

from ottla.counters import Histogram

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

_logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.05
FINE_INTERVAL_S: Final = 0.01
"""For measurements."""
STACK_AFTER_S: Final = 0.1
FINE_STACK_AFTER_S: Final = 0.03
"""For measurements."""
_MARGIN_S: Final = 0.005
"""The kernel's timer and the loop's clock do not agree to the last microsecond."""
WORTH_KEEPING_S: Final = 0.02
_KEPT_STALLS: Final = 10_000
_KEPT_STACKS: Final = 50
_MAX_FRAMES: Final = 40


class Stall(msgspec.Struct, frozen=True):
    """The loop was blocked for `seconds` until `at`, on the monotonic clock."""

    at: float
    seconds: float
    ran_s: float = 0.0
    """The CPU time of its thread meanwhile. In the rest it slept: for a lock, the interpreter, or the disk."""


class StallStack(msgspec.Struct, frozen=True):
    """What the event loop was doing while it was held up, at `at_ms` since the epoch."""

    at_ms: int
    late_s: float
    frames: tuple[str, ...]
    """The innermost call last."""
    monotonic_s: float = 0.0
    """The same moment on the monotonic clock."""


class StackFinding(TypedDict):
    """Where the loop was at a moment on the monotonic clock."""

    at: float
    frames: list[str]


class Findings(TypedDict):
    """What a watchdog has measured."""

    longest_s: float
    stalls: list[dict[str, float]]
    stacks: list[StackFinding]
    """Of stalls of 30 ms and more, the latest ones."""


def _nothing() -> None:
    pass


class _Alarm(Protocol):
    """Wakes a thread when it was not armed again for a while."""

    def arm(self, seconds: float) -> None:
        """Ring after this time, unless it is armed again before."""
        ...

    def wait(self) -> None:
        """Sleep until it rings."""
        ...

    def close(self) -> None: ...


class _TimerFd:
    """A timer of Linux (timerfd): to arm it takes one system call and wakes no thread."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._settime = libc.timerfd_settime
        self._fd: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def arm(self, seconds: float) -> None:
        whole, rest = divmod(max(int(seconds * 1e9), 1), 1_000_000_000)
        self._settime(self._fd, 0, (ctypes.c_long * 4)(0, 0, whole, rest), None)

    def wait(self) -> None:
        os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)


class _Polling:
    """For other systems: look every 50 ms, armed or not."""

    def arm(self, seconds: float) -> None:
        pass

    def wait(self) -> None:
        time.sleep(STACK_AFTER_S / 2)

    def close(self) -> None:
        pass


def _alarm() -> _Alarm:
    try:
        return _TimerFd(ctypes.CDLL(None, use_errno=True))
    except (AttributeError, OSError):
        return _Polling()


class LoopWatchdog:
    """Checks every 50 ms how late it is. Keeps the latest stalls of 20 ms and more, and the longest of all."""

    __slots__ = (
        "_clock",
        "_due",
        "_interval_s",
        "_ran",
        "_ran_before",
        "_timer",
        "_waited",
        "_waited_before",
        "delays",
        "longest_s",
        "on_turn",
        "stack_after_s",
        "stacks",
        "stalls",
    )

    def __init__(
        self,
        clock: Clock,
        waited_for_core_s: Callable[[], float] = lambda: 0.0,
        interval_s: float = INTERVAL_S,
        stack_after_s: float = STACK_AFTER_S,
        ran_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._clock = clock
        self._waited = waited_for_core_s
        """The total time in which the loop's thread was ready to run but had no core."""
        self._waited_before = 0.0
        self._ran = ran_s
        """The total CPU time of the loop's thread."""
        self._ran_before = 0.0
        self._interval_s = interval_s
        self.stack_after_s = stack_after_s
        self._timer: Timer | None = None
        self._due = 0.0
        self.longest_s = 0.0
        self.on_turn: Callable[[], None] = _nothing
        """Called every time the loop has come round."""
        self.delays = Histogram()
        """The stalls of 20 ms and more since the start."""
        self.stalls: deque[Stall] = deque(maxlen=_KEPT_STALLS)
        self.stacks: deque[StallStack] = deque(maxlen=_KEPT_STACKS)

    def start(self) -> None:
        self._waited_before = self._waited()
        self._ran_before = self._ran()
        self._due = self._clock.monotonic() + self._interval_s
        self._timer = self._clock.call_later(self._interval_s, self._look)
        self.on_turn()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def due(self) -> float:
        """When the loop must have come round again, on the monotonic clock. Any thread may read it."""
        return self._due

    @property
    def interval_s(self) -> float:
        return self._interval_s

    @property
    def running(self) -> bool:
        return self._timer is not None

    def _look(self) -> None:
        now = self._clock.monotonic()
        late = now - self._due
        if late >= WORTH_KEEPING_S:
            late -= self._waited() - self._waited_before
        if late > self.longest_s:
            self.longest_s = late
        if late >= WORTH_KEEPING_S:
            self.stalls.append(Stall(now, late, self._ran() - self._ran_before))
            self.delays.add(late)
        self.start()

    def findings(self) -> Findings:
        """The measurements, as JSON."""
        return {
            "longest_s": self.longest_s,
            "stalls": [
                {"at": stall.at, "seconds": stall.seconds, "ran_s": stall.ran_s} for stall in self.stalls
            ],
            "stacks": [{"at": each.monotonic_s, "frames": list(each.frames)} for each in self.stacks],
        }


class StackWatch:
    """A thread that takes the loop's stack, once, when its watchdog is 100 ms late (30 ms in measurements)."""

    def __init__(self, watchdog: LoopWatchdog, clock: Clock) -> None:
        """Create it on the event loop's thread."""
        self._watchdog = watchdog
        self._clock = clock
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-stalls", daemon=True)
        self._alarm: _Alarm = _Polling()
        self._taken_for = -1.0
        """The moment at which the loop was due in the stall whose stack was taken."""

    def start(self) -> None:
        self._alarm = _alarm()
        late_after_s = self._watchdog.interval_s + self._watchdog.stack_after_s + _MARGIN_S
        self._watchdog.on_turn = lambda: self._alarm.arm(late_after_s)
        self._watchdog.on_turn()
        self._thread.start()

    def stop(self) -> None:
        self._watchdog.on_turn = _nothing
        self._stopped.set()
        self._alarm.arm(0)
        self._thread.join()
        self._alarm.close()

    def _run(self) -> None:
        while True:
            self._alarm.wait()
            if self._stopped.is_set():
                return
            self.look()

    def look(self) -> None:
        """Take the stack if the loop is late and this stall has none yet."""
        due = self._watchdog.due
        now = self._clock.monotonic()
        late = now - due
        if late < self._watchdog.stack_after_s or due == self._taken_for or not self._watchdog.running:
            return
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return
        self._taken_for = due
        frames = tuple(
            f"{entry.filename}:{entry.lineno} {entry.name}" for entry in traceback.extract_stack(frame)
        )[-_MAX_FRAMES:]
        self._watchdog.stacks.append(StallStack(self._clock.now_ms(), late, frames, now))
        innermost = frames[-1] if frames else "unknown"
        _logger.warning("The event loop has been held up for %.0f ms, in %s", 1000 * late, innermost)
