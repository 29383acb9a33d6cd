"""The quotas of one node: the measures of its clients, and how long each of them has to wait.

Clients choose their ids. So measures without use for an hour go, and no more than `MAX_QUOTA_MEASURES` are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_QUOTA_MEASURES
from ottla.security.quotas.bucket import TokenBucket
from ottla.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaLimits,
    Sharers,
)
from ottla.security.quotas.ips import IpQuotas
from ottla.security.quotas.rate import Measure

if TYPE_CHECKING:
    from ottla.metadata.image import ClientQuotaEntity

IDLE_MS: Final = 3_600_000
_KEPT_AFTER_SWEEP: Final = 9 / 10
_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


class QuotaWindows(msgspec.Struct, frozen=True):
    """How many samples of which length rates are measured over."""

    samples: int = 11
    window_ms: int = 1000


DEFAULT_WINDOWS: Final = QuotaWindows()


class ClientMeasures:
    """The measures of one user with one client id; None where it has no limit."""

    __slots__ = ("carried_s", "client_id", "fetch", "in_force", "mutation", "produce", "request", "used_s")

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.in_force = True
        """False once the quotas have changed, or these were idle: connections look theirs up again."""
        self.used_s = 0.0
        """When the newest request was taken."""
        self.carried_s = 0.0
        """Time of requests that were answered already; it counts with the next one."""
        self.produce: Measure | None = None
        self.fetch: Measure | None = None
        self.request: Measure | None = None
        self.mutation: TokenBucket | None = None

    def charge(self, measure: Measure | None, size: int, spent_s: float, now: float) -> int:
        """Count a request's bytes and its time in percent of one core; how long its client has to wait in ms.

        The bytes count for `produce` or `fetch`; those of other requests are 0 and do not count.

        Each request of a client with a limit comes here. So what `Measure.charge` does is written out, twice.
        """
        now_ms = now * 1000.0
        throttle_ms = 0
        exceeded = measure
        if size and measure is not None:
            if now_ms >= measure.next_change_ms:
                measure.change_samples(int(now_ms))
            measure.last_event_ms = now_ms
            used = measure.value = measure.value + size
            if used > measure.left:
                throttle_ms = measure.throttle_ms(measure.limit, int(now_ms))
        if (measure := self.request) is not None:
            if now_ms >= measure.next_change_ms:
                measure.change_samples(int(now_ms))
            measure.last_event_ms = now_ms
            used = measure.value = measure.value + (spent_s + self.carried_s) * 100.0
            self.carried_s = 0.0
            if used > measure.left:
                over_ms = min(measure.throttle_ms(measure.limit, int(now_ms)), measure.window_ms)
                if over_ms >= throttle_ms:
                    throttle_ms, exceeded = over_ms, measure
        if throttle_ms and exceeded is not None:
            exceeded.note_wait(throttle_ms, int(now_ms))
        return throttle_ms

    def take_back(self, size: int, now: float) -> None:
        """The client of a Fetch has to wait and gets an empty answer: its bytes do not count."""
        if self.fetch is not None:
            self.fetch.record(-size, int(now * 1000))


UNMEASURED: Final = ClientMeasures(None)
"""Those of a connection whose client is not known yet."""
UNMEASURED.in_force = False


class MutationQuota:
    """One request's use of the controller mutation quota.

    Strict: what does not fit is refused. Otherwise (old versions of the requests) it is done, and the client waits.
    """

    __slots__ = ("_at_ms", "_bucket", "_strict", "_throttle_ms")

    def __init__(self, bucket: TokenBucket, *, strict: bool) -> None:
        self._bucket = bucket
        self._strict = strict
        self._throttle_ms = self._at_ms = 0

    def record(self, partitions: int, now_ms: int) -> None:
        """Count partitions that are created or deleted. Raises THROTTLING_QUOTA_EXCEEDED."""
        bucket = self._bucket
        if not self._strict:
            bucket.take(partitions, now_ms)
        if bucket.tokens(now_ms) >= 0:
            if self._strict:
                bucket.take(partitions, now_ms)
            return
        self._throttle_ms, self._at_ms = bucket.throttle_ms(now_ms), now_ms
        if self._strict:
            raise ApiException(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self, now_ms: int) -> int:
        """What is left of the time that the client has to wait."""
        return max(self._throttle_ms - (now_ms - self._at_ms), 0) if self._throttle_ms else 0


class ClientQuotas:
    """The quotas of a node's clients. While there are none, `enabled` is False and nothing is measured."""

    __slots__ = (
        "_clients",
        "_controller_windows",
        "_limits",
        "_measures",
        "_swept_ms",
        "enabled",
        "ips",
        "windows",
    )

    def __init__(
        self,
        windows: QuotaWindows = DEFAULT_WINDOWS,
        controller_windows: QuotaWindows = DEFAULT_WINDOWS,
    ) -> None:
        self.enabled = False
        self.windows = windows
        self.ips = IpQuotas(windows.samples, windows.window_ms)
        self._controller_windows = controller_windows
        self._limits: dict[str, QuotaLimits] = {}
        self._clients: dict[tuple[str, str | None], ClientMeasures] = {}
        self._measures: dict[tuple[str, Sharers], Measure | TokenBucket] = {}
        self._swept_ms: int | None = None

    def update(self, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> None:
        """Take over the quotas of the newest image. What was measured so far stays."""
        keys = (*_RATES, CONTROLLER_MUTATION_RATE)
        self._limits = {key: limits for key in keys if (limits := QuotaLimits(quotas, key))}
        for each in self._clients.values():
            each.in_force = False
        self._clients.clear()
        self._measures = {key: measure for key, measure in self._measures.items() if key[0] in self._limits}
        self.enabled = bool(self._limits)

    def __len__(self) -> int:
        """The clients that are measured."""
        return len(self._clients)

    def measures(self, principal: str, client_id: str | None, now: float) -> ClientMeasures:
        """The measures of a client. `now` is in seconds. They can be kept while they are `in_force`."""
        found = self._clients.get((principal, client_id))
        if found is None:
            now_ms = int(now * 1000)
            if len(self._clients) >= MAX_QUOTA_MEASURES or self._sweep_due(now_ms):
                self._sweep(now_ms)
            found = self._resolve(principal.partition(":")[2], client_id, now_ms)
            self._clients[principal, client_id] = found
        found.used_s = now
        return found

    def _resolve(self, user: str, client: str | None, now_ms: int) -> ClientMeasures:
        made = ClientMeasures(client)
        client_id = client or ""
        made.produce = self._rate(PRODUCER_BYTE_RATE, user, client_id, now_ms)
        made.fetch = self._rate(CONSUMER_BYTE_RATE, user, client_id, now_ms)
        made.request = self._rate(REQUEST_PERCENTAGE, user, client_id, now_ms)
        limits = self._limits.get(CONTROLLER_MUTATION_RATE)
        quota = None if limits is None else limits.find(user, client_id)
        if quota is not None:
            key = (CONTROLLER_MUTATION_RATE, quota.sharers)
            bucket = self._measures.get(key)
            if not isinstance(bucket, TokenBucket):
                windows = self._controller_windows
                bucket = TokenBucket(windows.samples, windows.window_ms, quota.limit)
                self._measures[key] = bucket
            bucket.limit = quota.limit
            made.mutation = bucket
        return made

    def _rate(self, key: str, user: str, client_id: str, now_ms: int) -> Measure | None:
        limits = self._limits.get(key)
        quota = None if limits is None else limits.find(user, client_id)
        if quota is None:
            return None
        measure = self._measures.get((key, quota.sharers))
        if not isinstance(measure, Measure):
            measure = self._measures[key, quota.sharers] = Measure(
                self.windows.samples, self.windows.window_ms, quota.limit, now_ms
            )
        measure.change_limit(quota.limit)
        return measure

    def rates(self, now_ms: int) -> Iterator[tuple[str, Sharers, float, float]]:
        """What clients with a limit use: the key of the quota, who shares it, the rate, and the wait in ms."""
        for (key, sharers), measure in self._measures.items():
            if isinstance(measure, Measure):
                yield key, sharers, measure.measure(now_ms), measure.average_wait_ms(now_ms)

    def _sweep_due(self, now_ms: int) -> bool:
        if self._swept_ms is None:
            self._swept_ms = now_ms
        return now_ms - self._swept_ms >= IDLE_MS

    def _sweep(self, now_ms: int) -> None:
        """Forget idle clients; the least recently used ones if there are still too many."""
        self._swept_ms = now_ms
        clients = {who: each for who, each in self._clients.items() if now_ms - each.used_s * 1000 < IDLE_MS}
        most = int(MAX_QUOTA_MEASURES * _KEPT_AFTER_SWEEP)
        if len(clients) > most:
            latest = sorted(clients.items(), key=lambda item: item[1].used_s)[-most:]
            clients = dict(latest)
        for who, each in self._clients.items():
            each.in_force = who in clients
        self._clients = clients
        used = {
            id(measure)
            for each in clients.values()
            for measure in (each.produce, each.fetch, each.request, each.mutation)
        }
        self._measures = {key: measure for key, measure in self._measures.items() if id(measure) in used}
