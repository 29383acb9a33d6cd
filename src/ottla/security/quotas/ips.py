"""The rate of new connections by address (`connection_creation_rate`): how long one too many is held, then closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.limits import MAX_QUOTA_MEASURES
from ottla.security.quotas.rate import Rate

UNLIMITED: Final = 2**31 - 1
"""Kafka's value for no limit."""


class IpQuotas:
    """Counts the connections of each address that has a limit."""

    __slots__ = ("_by_address", "_default", "_rates", "_samples", "_window_ms", "enabled")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.enabled = False
        self._samples = samples
        self._window_ms = window_ms
        self._default: float = UNLIMITED
        self._by_address: Mapping[str, float] = {}
        self._rates: dict[str, Rate] = {}
        """In the order of their last use."""

    def update(self, by_address: Mapping[str, float], default: float | None) -> None:
        """Change the limits. What was counted so far stays."""
        self._by_address = by_address
        self._default = UNLIMITED if default is None else default
        self.enabled = bool(by_address) or default is not None

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a connection. If it is one too many, it does not count, and this is how long to hold it."""
        limit = self._by_address.get(address, self._default)
        if limit >= UNLIMITED:
            return 0
        rate = self._rates.pop(address, None) or Rate(self._samples, self._window_ms, now_ms)
        if len(self._rates) >= MAX_QUOTA_MEASURES:
            del self._rates[next(iter(self._rates))]
        self._rates[address] = rate
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)
        return min(throttle_ms, self._window_ms)
