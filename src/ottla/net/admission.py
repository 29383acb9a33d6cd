"""Connection limits: in total, per listener, per address, and per second.

Pure bookkeeping on a given time; the listener acts on the result. As in Kafka, new connections to a full broker wait in
the listen queue, while connections from an address over its own limit are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from ottla.limits import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_IP

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_UNLIMITED = 2**31 - 1


class Verdict(Enum):
    """What happens to an accepted socket."""

    ACCEPT = "accept"
    REFUSE = "refuse"


class Limits(msgspec.Struct, frozen=True):
    """Limits of the whole broker. `per_ip_overrides` is by address."""

    max_connections: int = MAX_CONNECTIONS
    max_per_ip: int = MAX_CONNECTIONS_PER_IP
    per_ip_overrides: Mapping[str, int] = msgspec.field(default_factory=dict)
    max_rate_per_s: int = _UNLIMITED

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        """Kafka's settings, with finite limits in place of its unlimited defaults."""
        return cls(
            max_connections=_finite(config.int("max.connections"), MAX_CONNECTIONS),
            max_per_ip=_finite(config.int("max.connections.per.ip"), MAX_CONNECTIONS_PER_IP),
            per_ip_overrides=parse_overrides(config.str("max.connections.per.ip.overrides")),
            max_rate_per_s=config.int("max.connection.creation.rate"),
        )


class ListenerLimits(msgspec.Struct, frozen=True):
    """Limits of one listener (`listener.name.<name>.max.connections` and `.max.connection.creation.rate`)."""

    max_connections: int = _UNLIMITED
    max_rate_per_s: int = _UNLIMITED


def _finite(value: int, bound: int) -> int:
    return bound if value == _UNLIMITED else value


def parse_overrides(text: str) -> dict[str, int]:
    """Parse `host:count,host:count`. The last colon separates, since addresses may be IPv6."""
    overrides = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        overrides[host.strip().strip("[]")] = int(count)
    return overrides


class RateLimit:
    """A token bucket that holds one second's connections."""

    __slots__ = ("_at", "_tokens", "rate_per_s")

    def __init__(self, rate_per_s: int, now: float) -> None:
        self.rate_per_s = rate_per_s
        self._tokens = float(rate_per_s)
        self._at = now

    def delay(self, now: float) -> float:
        """Seconds until the next connection may be accepted, 0 for now."""
        self._tokens = min(float(self.rate_per_s), self._tokens + (now - self._at) * self.rate_per_s)
        self._at = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self.rate_per_s

    def spend(self) -> None:
        self._tokens -= 1


class Admission:
    """Counts the connections of the whole broker. One object, shared by its listeners."""

    __slots__ = (
        "_by_ip",
        "_by_listener",
        "_limits",
        "_listener_limits",
        "_listener_rates",
        "_rate",
        "_total",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._rate = RateLimit(limits.max_rate_per_s, now)
        self._listener_limits: dict[str, ListenerLimits] = {}
        self._listener_rates: dict[str, RateLimit] = {}
        self._total = 0
        self._by_ip: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}

    def add_listener(self, name: str, limits: ListenerLimits, now: float) -> None:
        """Add a listener, or change its limits."""
        if limits != self._listener_limits.get(name):
            self._listener_limits[name] = limits
            self._listener_rates[name] = RateLimit(limits.max_rate_per_s, now)
        self._by_listener.setdefault(name, 0)

    def update(self, limits: Limits, now: float) -> None:
        """Apply changed limits; open connections stay."""
        if limits.max_rate_per_s != self._limits.max_rate_per_s:
            self._rate = RateLimit(limits.max_rate_per_s, now)
        self._limits = limits

    @property
    def total(self) -> int:
        return self._total

    def full(self, listener: str) -> bool:
        """No connection may be accepted until one is closed."""
        if self._total >= self._limits.max_connections:
            return True
        return self._by_listener[listener] >= self._listener_limits[listener].max_connections

    def delay(self, listener: str, now: float) -> float:
        """Seconds to wait before the next connection is accepted."""
        return max(self._rate.delay(now), self._listener_rates[listener].delay(now))

    def admit(self, listener: str, ip: str) -> Verdict:
        """A connection was accepted: count it, or refuse it."""
        self._rate.spend()
        self._listener_rates[listener].spend()
        of_ip = self._by_ip.get(ip, 0)
        if of_ip >= self._limits.per_ip_overrides.get(ip, self._limits.max_per_ip):
            return Verdict.REFUSE
        self._total += 1
        self._by_ip[ip] = of_ip + 1
        self._by_listener[listener] += 1
        return Verdict.ACCEPT

    def release(self, listener: str, ip: str) -> None:
        """An admitted connection was closed."""
        self._total -= 1
        self._by_listener[listener] -= 1
        if self._by_ip[ip] == 1:
            del self._by_ip[ip]
        else:
            self._by_ip[ip] -= 1
