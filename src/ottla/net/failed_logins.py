"""Failed handshakes and logins by address: how long the next one waits, and which are worth a sentence in the log.

Beyond Kafka's fixed delay (KIP-306), an address that fails ten times within a minute waits longer each time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ottla.limits import MAX_FAILING_ADDRESSES

_WINDOW_S: Final = 60.0
_FREE_FAILURES: Final = 10
_LONGEST_DELAY_S: Final = 5.0


@dataclass(slots=True)
class _Address:
    window_began: float
    failures: int = 0
    """Within the window."""
    delay_s: float = 0.0
    logged_at: float | None = None
    unlogged: int = 0


class FailedLogins:
    """One node's. Holds a bounded number of addresses: the one that failed longest ago is forgotten first."""

    __slots__ = ("_addresses",)

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def delay(self, address: str, base_s: float, now: float) -> float:
        """Count a failure of an address. Returns the seconds before the other side gets its answer."""
        entry = self._entry(address, now)
        if now - entry.window_began >= _WINDOW_S:
            # Who goes on failing at this pace does not begin at the shortest delay again.
            entry.delay_s = entry.delay_s / 2 if entry.failures > _FREE_FAILURES else 0.0
            entry.window_began, entry.failures = now, 0
        entry.failures += 1
        if entry.failures > _FREE_FAILURES:
            entry.delay_s = min(max(entry.delay_s, base_s) * 2, max(_LONGEST_DELAY_S, base_s))
        return max(base_s, entry.delay_s)

    def worth_logging(self, address: str, now: float) -> int | None:
        """None if a sentence about this address was written less than a minute ago, else how many were left out."""
        entry = self._entry(address, now)
        if entry.logged_at is not None and now - entry.logged_at < _WINDOW_S:
            entry.unlogged += 1
            return None
        left_out, entry.unlogged, entry.logged_at = entry.unlogged, 0, now
        return left_out

    def _entry(self, address: str, now: float) -> _Address:
        entry = self._addresses.get(address)
        if entry is None:
            if len(self._addresses) >= MAX_FAILING_ADDRESSES:
                self._addresses.popitem(last=False)
            entry = self._addresses[address] = _Address(now)
        else:
            self._addresses.move_to_end(address)
        return entry
