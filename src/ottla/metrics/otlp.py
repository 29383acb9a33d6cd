"""Metrics as OTLP over HTTP: the node's own, from the same readers as `/metrics`, and what clients sent.

One thread sends, from a short queue: a collector that is down costs the newest metrics, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ottla.config.errors import ConfigError
from ottla.counters import STEPS, lower_bound_s
from ottla.credentials.secret import Secret
from ottla.metrics.families import Family, Spelling, shown
from ottla.metrics.sinks import Counts, Labels, Rows, Sink

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import (
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        SummaryDataPoint,
    )
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metrics.collect import Collector

_logger = logging.getLogger(__name__)

ENDPOINT: Final = "ottla.otlp.endpoint"
_PATH: Final = "/v1/metrics"
_MAX_QUEUED: Final = 100
_TIMEOUT_S: Final = 10.0
_WARN_EACH_S: Final = 60.0
_NANOS_PER_MS: Final = 1_000_000


class OtlpSender:
    """Posts metrics to a collector, in a thread of its own."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        """Raises ConfigError for an endpoint that cannot be one, or where the extra is missing."""
        endpoint = config.str(ENDPOINT).strip()
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError.bad_value(ENDPOINT, endpoint, "http://HOST:PORT or https://HOST:PORT")
        try:
            import opentelemetry.proto.metrics.v1.metrics_pb2  # noqa: F401
        except ImportError:
            raise ConfigError(
                f"{ENDPOINT} needs more packages: pip install 'ottla[otlp]'", key=ENDPOINT
            ) from None
        self._url = endpoint if parts.path.rstrip("/").endswith(_PATH) else endpoint.rstrip("/") + _PATH
        self._shown = f"{parts.scheme}://{parts.hostname}"
        self._headers = _headers(config)
        self._clock = clock
        self._queue: Queue[bytes | None] = Queue(_MAX_QUEUED)
        self._thread = threading.Thread(target=self._run, name="ottla-otlp", daemon=True)
        self._warn_again_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued, for at most one time-out, and end."""
        with contextlib.suppress(Full):
            self._queue.put_nowait(None)
        self._thread.join(_TIMEOUT_S)

    def send(self, data: bytes) -> None:
        """Queue encoded metrics; drop them if the collector does not keep up. Every thread may call it."""
        try:
            self._queue.put_nowait(data)
        except Full:
            self._warn("the queue is full, and metrics are dropped")

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            request = urllib.request.Request(
                self._url,
                data,
                {"Content-Type": "application/x-protobuf", **self._headers},
                method="POST",
            )
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                    answer.read(1 << 16)
            except (OSError, ValueError) as error:
                self._warn(_reason(error))

    def _warn(self, why: str) -> None:
        now = self._clock.monotonic()
        if now >= self._warn_again_at:
            self._warn_again_at = now + _WARN_EACH_S
            _logger.warning("Metrics cannot be sent to the collector at %s: %s", self._shown, why)

    def drain(self) -> None:
        """Forget what is queued."""
        with contextlib.suppress(Empty):
            while True:
                self._queue.get_nowait()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}"
    return str(getattr(error, "reason", error))


def _headers(config: BrokerConfig) -> dict[str, str]:
    secret = config["ottla.otlp.headers"]
    text = secret.reveal() if isinstance(secret, Secret) else ""
    headers: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(
                "Invalid value [hidden] for configuration ottla.otlp.headers: expected NAME=VALUE,...",
                key="ottla.otlp.headers",
            )
        headers[name.strip()] = value.strip()
    return headers


class OtlpSink(Sink):
    """Collects families into one OTLP message."""

    def __init__(self, resource: Mapping[str, str], now_ms: int) -> None:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import (
            AGGREGATION_TEMPORALITY_CUMULATIVE,
            MetricsData,
        )

        self.spelling = Spelling.KAFKA
        self._cumulative = AGGREGATION_TEMPORALITY_CUMULATIVE
        self._data = MetricsData()
        self._now_ns = now_ms * _NANOS_PER_MS
        metrics = self._data.resource_metrics.add()
        for key, value in resource.items():
            _attribute(metrics.resource, key, value)
        scope = metrics.scope_metrics.add()
        scope.scope.name = "ottla"
        self._metrics = scope.metrics
        self._points: Any = None

    def encoded(self) -> bytes:
        encoded: bytes = self._data.SerializeToString()
        return encoded

    def _metric(self, family: Family) -> tuple[Metric, str]:
        name, kind = shown(family, self.spelling)
        metric = self._metrics.add()
        metric.name, metric.description = name, family.help
        return metric, kind

    def begin(self, family: Family) -> None:
        metric, kind = self._metric(family)
        if kind == "counter":
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = self._cumulative
            self._points = metric.sum.data_points
        else:
            self._points = metric.gauge.data_points

    def rows(self, rows: Rows) -> None:
        for labels, value in rows:
            point = self._points.add()
            point.time_unix_nano = self._now_ns
            for name, text in labels.pairs:
                _attribute(point, name, text)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value

    def times(self, family: Family, rows: Iterable[tuple[Labels, Counts, Counts, float]]) -> None:
        metric, _ = self._metric(family)
        metric.unit = "ms"
        for labels, counts, _, sum_s in rows:
            self._histogram(metric, counts, sum_s * 1000, scale=1000, labels=labels)

    def buckets(self, family: Family, counts: Counts, sum_s: float) -> None:
        metric, _ = self._metric(family)
        metric.unit = "s"
        self._histogram(metric, counts, sum_s, scale=1, labels=Labels())

    def _histogram(self, metric: Metric, counts: Counts, total: float, *, scale: int, labels: Labels) -> None:
        metric.histogram.aggregation_temporality = self._cumulative
        point = metric.histogram.data_points.add()
        point.time_unix_nano = self._now_ns
        point.count = sum(counts)
        point.sum = total
        for name, text in labels.pairs:
            _attribute(point, name, text)
        # A power of two is enough of a step for a collector, and keeps the message small.
        point.explicit_bounds.extend(lower_bound_s(step) * scale for step in range(4, STEPS, 4))
        point.bucket_counts.extend(sum(counts[step : step + 4]) for step in range(0, STEPS, 4))

    def summaries(self, family: Family, rows: Iterable[tuple[Labels, float, int]]) -> None:
        metric, _ = self._metric(family)
        for labels, total, count in rows:
            point = metric.summary.data_points.add()
            point.time_unix_nano = self._now_ns
            point.sum, point.count = total, count
            for name, text in labels.pairs:
                _attribute(point, name, text)


def _attribute(
    owner: Resource | NumberDataPoint | HistogramDataPoint | SummaryDataPoint, key: str, value: str
) -> None:
    added = owner.attributes.add()
    added.key = key
    added.value.string_value = value


class OtlpReporter:
    """Sends a node's own metrics at an interval."""

    def __init__(
        self,
        collector: Collector,
        sender: OtlpSender,
        clock: Clock,
        interval_s: float,
        resource: Callable[[], Mapping[str, str]],
        *,
        each_partition: bool,
    ) -> None:
        self._collector = collector
        self._sender = sender
        self._clock = clock
        self._interval_s = interval_s
        self._resource = resource
        self._each_partition = each_partition
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            sink = OtlpSink(self._resource(), self._clock.now_ms())
            await self._collector.fill(sink, None, each_partition=self._each_partition)
            data = await asyncio.to_thread(sink.encoded)
            self._sender.send(data)
