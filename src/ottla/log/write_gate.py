"""The gate in front of what clients and leaders have us write: they wait while a write would hold up the event loop.

A write waits in the kernel where too much of the page cache is dirty, or where its file is being given disk space
(`ottla.log.preallocation`). Connections then keep their requests (`ottla.net.connection`), and everything else goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

_logger = logging.getLogger(__name__)

Probe = Callable[[], float]
"""What waits in the page cache for the disk, as a part of what may before the kernel holds writers back."""

STEP_BYTES: Final = 4 << 20
"""So much is written between two looks at the page cache (20 µs each)."""

CLOSE_AT: Final = 0.9
OPEN_AT: Final = 0.87
LOOK_EACH_S: Final = 0.005

LONGEST_WAIT_S: Final = 1.0
"""After that some are let through: clients must not time out, and the kernel has the last word anyway."""

SHORTEST_WAIT_S: Final = 0.03
"""A wait that did not help (another process fills the cache) is followed by one half as long, down to this."""

_NEVER: Final = 1 << 62
_TELL_EACH_S: Final = 60.0
_VMSTAT: Final = "/proc/vmstat"
_VMSTAT_BYTES: Final = 32 << 10


def page_cache_probe(path: str = _VMSTAT) -> Probe | None:
    """How full the page cache is with what the disk has yet to get; None where the system does not tell."""

    def probe() -> float:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _VMSTAT_BYTES)
        finally:
            os.close(fd)
        waiting = _figure(text, b"nr_dirty ") + _figure(text, b"nr_writeback ")
        # Linux lets writers run freely up to the middle between its two thresholds.
        limits = _figure(text, b"nr_dirty_background_threshold ") + _figure(text, b"nr_dirty_threshold ")
        return 2 * waiting / limits if limits else 0.0

    try:
        probe()
    except (OSError, ValueError):
        return None
    return probe


def _figure(text: bytes, name: bytes) -> int:
    start = text.index(b"\n" + name) + 1 + len(name)
    return int(text[start : text.index(b"\n", start)])


class WriteGate:
    """Asked before each write of a client's. On the event loop only."""

    __slots__ = (
        "_bound_s",
        "_clock",
        "_deadline",
        "_holders",
        "_left",
        "_pressed",
        "_probe",
        "_tell_again_at",
        "_timer",
        "_waiting",
    )

    def __init__(self, clock: Clock, probe: Probe | None) -> None:
        self._clock = clock
        self._probe = probe
        self._left = 0
        """Bytes that may be written before the next look."""
        self._pressed = False
        """The page cache is too full."""
        self._holders = 0
        """Files that are being given space."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: Timer | None = None
        self._deadline = 0.0
        self._bound_s = LONGEST_WAIT_S
        self._tell_again_at = 0.0

    def admits(self, size: int) -> bool:
        """Whether so many bytes may be written now. If not, `wait`, and ask again when called."""
        self._left = left = self._left - size
        return left > 0 or self._look()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when the gate opens. For those that were not admitted."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """Whoever waited is gone."""
        self._waiting.pop(resume, None)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def hold(self) -> None:
        """Keep the gate closed until `release`: a file is busy, and a write to it would wait."""
        self._holders += 1
        self._left = 0

    def release(self) -> None:
        """The other end of a `hold`."""
        self._holders -= 1
        if not self._holders and not self._pressed:
            self._open(0)

    def stop(self) -> None:
        """Nobody is called any more."""
        self._waiting.clear()
        self._disarm()

    def _look(self) -> bool:
        if not self._holders and not self._pressed:
            if self._probe is None:
                self._left = _NEVER
                return True
            fullness = self._fullness()
            if fullness < CLOSE_AT:
                self._left = STEP_BYTES
                return True
            self._pressed = True
            self._tell(fullness)
        if self._timer is None:
            self._deadline = self._clock.monotonic() + self._bound_s
            self._arm()
        return False

    def _fullness(self) -> float:
        if self._probe is None:
            return 0.0
        try:
            return self._probe()
        except (OSError, ValueError) as error:
            _logger.warning("How full the page cache is cannot be read any more: %s", error)
            self._probe = None
            return 0.0

    def _again(self) -> None:
        self._timer = None
        if self._pressed and self._fullness() < OPEN_AT:
            self._pressed = False
            self._bound_s = LONGEST_WAIT_S
        if not self._pressed and not self._holders:
            self._open(0)
        elif self._clock.monotonic() >= self._deadline:
            if self._pressed:
                self._pressed = False
                self._bound_s = max(self._bound_s / 2, SHORTEST_WAIT_S)
            self._open(STEP_BYTES)
        else:
            self._arm()

    def _open(self, left: int) -> None:
        self._disarm()
        self._left = left
        waiting, self._waiting = self._waiting, {}
        for resume in waiting:
            resume()

    def _arm(self) -> None:
        self._timer = self._clock.call_later(LOOK_EACH_S, self._again)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, fullness: float) -> None:
        now = self._clock.monotonic()
        if now >= self._tell_again_at:
            self._tell_again_at = now + _TELL_EACH_S
            _logger.warning(
                "Producers wait: they write faster than the disk (%.0f %% of what the page cache may hold for it)",
                100 * fullness,
            )
