"""Backpressure on writes: producers and replica fetchers wait while a write would block the event loop.

A write blocks in the kernel when too much of the page cache is dirty, or while its file is being preallocated
(`ottla.log.preallocation`). Connections then keep their requests (`ottla.net.connection`), and all other work goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer

_logger = logging.getLogger(__name__)

Probe = Callable[[], float]
"""Returns the dirty share of the page cache; at 1.0 the kernel begins to throttle writers."""

STEP_BYTES: Final = 4 << 20
"""Bytes written between two probes of the page cache (20 µs each)."""

CLOSE_AT: Final = 0.9
OPEN_AT: Final = 0.87
LOOK_EACH_S: Final = 0.005

LONGEST_WAIT_S: Final = 1.0
"""After this time some writes pass: clients must not time out, and the kernel throttles anyway."""

SHORTEST_WAIT_S: Final = 0.03
"""Each wait that did not help (another process fills the cache) halves the next one, down to this."""

_NEVER: Final = 1 << 62
_WARN_EACH_S: Final = 60.0


class WriteGate:
    """Decides whether a write may go ahead now. Used on the event loop only."""

    __slots__ = (
        "_bound_s",
        "_clock",
        "_closed_since",
        "_deadline",
        "_holders",
        "_left",
        "_pressed",
        "_probe",
        "_timer",
        "_waiting",
        "_warn_again_at",
        "waited_s",
        "waits",
    )

    def __init__(self, clock: Clock, probe: Probe | None) -> None:
        self._clock = clock
        self._probe = probe
        self._left = 0
        """Bytes that may be written before the next probe."""
        self._pressed = False
        """The page cache is too full."""
        self._holders = 0
        """Preallocations that are running."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: Timer | None = None
        self._deadline = 0.0
        self._bound_s = LONGEST_WAIT_S
        self._warn_again_at = 0.0
        self._closed_since: float | None = None
        self.waits = 0
        """How often the gate closed before a write."""
        self.waited_s = 0.0
        """How long it was closed, up to its last opening."""

    def admits(self, size: int) -> bool:
        """Return whether `size` bytes may be written now. If not, call `wait`, and ask again in the callback."""
        self._left = left = self._left - size
        return left > 0 or self._look()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when the gate opens."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        """Cancel a `wait`."""
        self._waiting.pop(resume, None)

    @property
    def waiting(self) -> int:
        """The number of callbacks that wait."""
        return len(self._waiting)

    def hold(self) -> None:
        """Keep the gate closed until `release`: a write to a busy file would block."""
        self._holders += 1
        self._left = 0

    def release(self) -> None:
        """End a `hold`."""
        self._holders -= 1
        if not self._holders and not self._pressed:
            self._open(0)

    def stop(self) -> None:
        """Drop all waiting callbacks."""
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
            self._warn(fullness)
        if self._timer is None:
            now = self._clock.monotonic()
            if self._closed_since is None:
                self._closed_since = now
                self.waits += 1
            self._deadline = now + self._bound_s
            self._arm()
        return False

    def _fullness(self) -> float:
        if self._probe is None:
            return 0.0
        try:
            return self._probe()
        except (OSError, ValueError) as error:
            _logger.warning(
                "Cannot read the page cache statistics; producers are no longer slowed down: %s",
                error,
            )
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
        if self._closed_since is not None:
            self.waited_s += self._clock.monotonic() - self._closed_since
            self._closed_since = None
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

    def _warn(self, fullness: float) -> None:
        now = self._clock.monotonic()
        if now >= self._warn_again_at:
            self._warn_again_at = now + _WARN_EACH_S
            _logger.warning(
                "Producers are being slowed down: they write faster than the disk "
                "(dirty pages are at %.0f %% of the kernel's limit)",
                100 * fullness,
            )
