"""Limits on how fast replicas that are not in sync are replicated, for the leader's side and the follower's.

A topic lists the replicas (`leader.` and `follower.replication.throttled.replicas`), the broker has the rate. Without
a rate nothing is counted. In-sync replicas are never throttled: they would fall out of sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.clock import Clock

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.ids import BrokerId
    from ottla.replica.partition import Partition

_UNLIMITED: Final = 2**63 - 1
_RETRY_MS: Final = 100
_ALL: Final = "*"
_RATES: Final = {
    "leader": "leader.replication.throttled.rate",
    "follower": "follower.replication.throttled.rate",
}


class ReplicationThrottle:
    """One side's throttle; `side` is leader or follower."""

    __slots__ = (
        "_clock",
        "_list_name",
        "_node_id",
        "_rate",
        "_rate_key",
        "_samples",
        "_total",
        "_waiting",
        "_window_s",
        "_windows",
    )

    def __init__(self, side: str, clock: Clock, node_id: BrokerId, config: BrokerConfig) -> None:
        self._clock = clock
        self._node_id = node_id
        self._rate_key = _RATES[side]
        self._list_name = f"{side}_replication_throttled_replicas"
        self._samples: deque[tuple[int, int]] = deque()
        """Bytes by number of the window they were sent in, oldest first."""
        self._total = 0
        self._waiting: list[Callable[[], None]] = []
        self.update_config(config)

    def update_config(self, config: BrokerConfig) -> None:
        self._rate = config.int(self._rate_key)
        self._windows = config.int("replication.quota.window.num")
        self._window_s = config.int("replication.quota.window.size.seconds")

    def holds(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether a follower that lags has to wait."""
        return (
            self._rate < _UNLIMITED
            and follower not in partition.in_sync.maximal
            and self._lists(partition)
            and self._exceeded()
        )

    def record(self, partition: Partition, follower: BrokerId, size: int) -> None:
        """Count `size` replicated bytes."""
        if self._rate < _UNLIMITED and self._lists(partition):
            window = self._window()
            if self._samples and self._samples[-1][0] == window:
                size += self._samples.pop()[1]
            else:
                self._forget(window)
            self._samples.append((window, size))
            self._total = sum(each for _, each in self._samples)

    def free_in_ms(self) -> float:
        """When to try again."""
        return _RETRY_MS

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back when it is time to try again."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._clock.call_later(_RETRY_MS / 1000, self._call_back)

    def _call_back(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def _lists(self, partition: Partition) -> bool:
        log = partition.log
        if log is None:
            return False
        replicas: tuple[str, ...] = getattr(log.config, self._list_name)
        return bool(replicas) and (_ALL in replicas or f"{partition.index}:{self._node_id}" in replicas)

    def _exceeded(self) -> bool:
        self._forget(self._window())
        return self._total > self._rate * self._window_s * max(self._windows - 1, 1)

    def _window(self) -> int:
        return int(self._clock.monotonic() / self._window_s)

    def _forget(self, window: int) -> None:
        while self._samples and self._samples[0][0] <= window - self._windows:
            self._total -= self._samples.popleft()[1]
