"""The token bucket of controller mutations, as Kafka's `TokenBucket` counts: bursts are allowed, debts are paid."""

from __future__ import annotations

from math import floor


class TokenBucket:
    """Tokens that come back at the limit's rate. It may go below zero once, and refuses until it is paid back."""

    __slots__ = ("_samples", "_tokens", "_updated_ms", "_window_ms", "limit")

    def __init__(self, samples: int, window_ms: int, limit: float) -> None:
        """It holds what `samples` windows bring at most, and is full at its first use."""
        self._samples = samples
        self._window_ms = window_ms
        self.limit = limit
        self._tokens = 0.0
        self._updated_ms: int | None = None

    def tokens(self, now_ms: int) -> float:
        """The tokens that are left; below zero is a debt."""
        burst = self._burst
        if self._updated_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + self.limit * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, now_ms: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens = min(self._burst, self.tokens(now_ms) - count)

    def throttle_ms(self, now_ms: int) -> int:
        """How long until the debt is paid back; 0 without one."""
        tokens = self.tokens(now_ms)
        return floor(-tokens / self.limit * 1000 + 0.5) if tokens < 0 else 0

    @property
    def _burst(self) -> float:
        return self._samples * self._window_ms / 1000 * self.limit
