"""Measures one request against the quotas of its client: bytes in, bytes out, time, partitions.

Of several quotas that are exceeded, the longest wait counts. `net` mutes the connection that long; a request that a
broker forwarded is muted there, by the time in the controller's answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.security.quotas.managers import MutationQuota

if TYPE_CHECKING:
    from ottla.security.quotas.managers import ClientMeasures


class Meter:
    """One request's use of its client's quotas."""

    __slots__ = (
        "_measures",
        "_monotonic",
        "_mutation",
        "_since",
        "_spent_s",
        "counted",
        "throttle_ms",
        "timed",
    )

    def __init__(self, measures: ClientMeasures, monotonic: Callable[[], float], began: float) -> None:
        """`began` is when the node took the request, on the monotonic clock."""
        self._monotonic = monotonic
        self._measures = measures
        self._mutation: MutationQuota | None = None
        self._since: float | None = began
        self._spent_s = 0.0
        self.timed = measures.request is not None
        """Its time, or the partitions that it creates and deletes, count: see `answered`."""
        self.counted = False
        """A Fetch was counted with its bytes, before its answer was made. The rest of its time comes later: `sent`."""
        self.throttle_ms = 0
        """How long the client has to wait, as far as that is known."""

    def exempt(self) -> None:
        """It is another node's request: its time does not count."""
        self.timed = False

    def parked(self) -> None:
        """The request waits: its time does not count until it is answered."""
        if self.timed and self._since is not None:
            self._spent_s += self._monotonic() - self._since
            self._since = None

    def produced(self, size: int) -> None:
        """Count the bytes of a Produce request that gets no answer."""
        measure = self._measures.produce
        if measure is not None:
            self._wait(measure.charge(size, int(self._monotonic() * 1000)))

    def fetched(self, size: int) -> int:
        """Count the bytes of an answer to Fetch that was parked; how long the client has to wait."""
        now = self._monotonic()
        spent_s = self._spent_s
        if self._since is not None:
            spent_s += now - self._since
        self._since = now
        self.counted = True
        measures = self._measures
        self.throttle_ms = measures.charge(measures.fetch, size, spent_s, now)
        if self.throttle_ms:
            measures.take_back(size, now)
        return self.throttle_ms

    def mutation_quota(self, *, strict: bool) -> MutationQuota | None:
        """The quota of partitions created and deleted; None where the client has no limit."""
        bucket = self._measures.mutation
        if bucket is not None and self._mutation is None:
            self._mutation = MutationQuota(bucket, strict=strict)
            self.timed = True
        return self._mutation

    def answered(self, produced_bytes: int = 0) -> None:
        """Count the time that the request took so far, in percent of one core, and the bytes of a Produce request."""
        now = self._monotonic()
        spent_s, self._spent_s = self._spent_s, 0.0
        if self._since is not None:
            spent_s += now - self._since
        self._since = now
        self._wait(self._measures.charge(self._measures.produce, produced_bytes, spent_s, now))
        if self._mutation is not None:
            self._wait(self._mutation.throttle_ms(int(now * 1000)))

    def sent(self) -> None:
        """Count the time that encoding took. It comes too late to be waited for now."""
        if self._since is not None:
            self._measures.carried_s += self._monotonic() - self._since

    def _wait(self, throttle_ms: int) -> None:
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
