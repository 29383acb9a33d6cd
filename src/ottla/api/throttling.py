"""Measures one request against the quotas of its client: bytes in, bytes out, time, partitions.

Of several quotas that are exceeded, the longest wait counts. `net` mutes the connection that long; a request that a
broker forwarded is muted there, by the time in the controller's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.security.quotas.managers import MutationQuota

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.security.quotas.managers import ClientQuotas

_PERCENT_PER_SECOND: Final = 100.0


class Meter:
    """One request's use of its client's quotas."""

    __slots__ = ("_clock", "_measures", "_mutation", "_quotas", "_since", "_spent_s", "throttle_ms", "timed")

    def __init__(
        self, quotas: ClientQuotas, clock: Clock, principal: str, client_id: str | None, began: float
    ) -> None:
        """`began` is when the node took the request, on the monotonic clock."""
        self._clock = clock
        self._quotas = quotas
        self._measures = measures = quotas.measures(principal, client_id, began)
        self._mutation: MutationQuota | None = None
        self._since: float | None = began
        self._spent_s = 0.0
        self.timed = measures.request is not None
        """Its time, or the partitions that it creates and deletes, count: see `answered`."""
        self.throttle_ms = 0
        """How long the client has to wait, as far as that is known."""

    def exempt(self) -> None:
        """It is another node's request: its time does not count."""
        self.timed = False

    def parked(self) -> None:
        """The request waits: its time does not count until it is answered."""
        if self.timed and self._since is not None:
            self._spent_s += self._clock.monotonic() - self._since
            self._since = None

    def produced(self, size: int) -> None:
        """Count the bytes of a Produce request that gets no answer."""
        measure = self._measures.produce
        if measure is not None:
            self._wait(measure.throttle_ms(size, int(self._clock.monotonic() * 1000)))

    @property
    def max_fetch_bytes(self) -> int | None:
        """The most that a fetch may return: a larger one would be throttled for ever."""
        measure = self._measures.fetch
        return None if measure is None else int(measure.allowance)

    def fetched(self, size: int) -> int:
        """Count the bytes of an answer to Fetch; how long the client has to wait.

        If it has to wait it gets an empty answer, and the bytes do not count.
        """
        if self.timed:
            self.answered()
        measure = self._measures.fetch
        if measure is not None:
            now_ms = int(self._clock.monotonic() * 1000)
            self._wait(measure.throttle_ms(size, now_ms))
            if self.throttle_ms > 0:
                measure.rate.record(-size, now_ms)
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
        now = self._clock.monotonic()
        now_ms = int(now * 1000)
        measures = self._measures
        measure = measures.produce
        if produced_bytes and measure is not None:
            throttle_ms = measure.rate.charge(produced_bytes, measure.limit, measure.allowance, now_ms)
            if throttle_ms > 0:
                self._wait(throttle_ms)
        if self._mutation is not None:
            self._wait(self._mutation.throttle_ms(now_ms))
        measure = measures.request
        if measure is not None:
            spent_s = self._spent_s + measures.carried_s
            self._spent_s = measures.carried_s = 0.0
            if self._since is not None:
                spent_s += now - self._since
            throttle_ms = measure.rate.charge(
                spent_s * _PERCENT_PER_SECOND, measure.limit, measure.allowance, now_ms
            )
            if throttle_ms > 0:
                self._wait(min(throttle_ms, self._quotas.windows.window_ms))
        self._since = now

    def sent(self) -> None:
        """Count the time that encoding took. It comes too late to be waited for now."""
        if self._since is not None:
            self._measures.carried_s += self._clock.monotonic() - self._since

    def _wait(self, throttle_ms: int) -> None:
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
