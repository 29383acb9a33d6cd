"""How much a batch of a direct DStream may read: fixed rates, and Spark's backpressure by its own estimator.

Settings: `spark.streaming.kafka.maxRatePerPartition`, `spark.streaming.kafka.minRatePerPartition`,
`spark.streaming.backpressure.enabled`, `spark.streaming.backpressure.initialRate`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.pipeline.jvm import JavaObject, jvm_root

if TYPE_CHECKING:
    from pyspark import SparkContext

_logger = logging.getLogger(__name__)

_MAX_RATE: Final = "spark.streaming.kafka.maxRatePerPartition"
_MIN_RATE: Final = "spark.streaming.kafka.minRatePerPartition"
_BACKPRESSURE: Final = "spark.streaming.backpressure.enabled"
_INITIAL_RATE: Final = "spark.streaming.backpressure.initialRate"
_UNLIMITED: Final = 2**62
_MOST_PLANNED: Final = 1_000

P = TypeVar("P")


def share_of_rate(
    lags: Mapping[P, int], rate: float | None, *, seconds: float, most: int, least: int
) -> dict[P, int]:
    """How many records each partition may give: of the rate by its share of the lag, between least and most.

    Rates are in records a second; `most` 0 is no limit.

    >>> share_of_rate({"a": 300, "b": 100}, 40.0, seconds=2.0, most=0, least=1)
    {'a': 60, 'b': 20}
    >>> share_of_rate({"a": 300}, None, seconds=1.0, most=50, least=1)
    {'a': 50}
    """
    total = sum(lags.values())
    limits = {}
    for place, lag in lags.items():
        allowed = float(most) if most > 0 else None
        if rate is not None and total > 0:
            share = max(lag / total * rate, float(least))
            allowed = share if allowed is None else min(share, allowed)
        limits[place] = _UNLIMITED if allowed is None else max(int(allowed * seconds), 1)
    return limits


class BatchRate:
    """The limits of one stream. With backpressure, Spark reports each batch that it has finished."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._estimator: JavaObject | None = None
        self._attached: JavaObject | None = None
        self._planned: dict[int, int] = {}
        self._rate: float | None = None

    def limits(self, context: SparkContext, lags: Mapping[P, int]) -> dict[P, int]:
        """How many records each partition may give to the next batch."""
        conf = context.getConf()
        rate = self._rate
        if rate is None and _enabled(context):
            initial = conf.get(_INITIAL_RATE)
            rate = float(initial) if initial else None
        return share_of_rate(
            lags,
            rate,
            seconds=self._interval_s,
            most=int(conf.get(_MAX_RATE) or 0),
            least=int(conf.get(_MIN_RATE) or 1),
        )

    def planned(self, at_ms: int, records: int) -> None:
        """A batch will read so many records."""
        self._planned[at_ms] = records
        while len(self._planned) > _MOST_PLANNED:
            self._planned.pop(next(iter(self._planned)))

    def attach(self, context: SparkContext, running: JavaObject) -> None:
        """Listen to the running context's batches, once, if backpressure is on."""
        if self._attached is not None or not _enabled(context):
            return
        from pyspark.streaming import StreamingListener

        jvm = jvm_root(context)
        interval = running.graph().batchDuration()
        scheduler = jvm.org.apache.spark.streaming.scheduler
        self._estimator = scheduler.rate.RateEstimator.create(running.conf(), interval)

        rate = self

        class Listener(StreamingListener):
            def onBatchCompleted(self, batchCompleted: JavaObject) -> None:  # noqa: N802, N803
                rate.finished(batchCompleted.batchInfo())

        java = jvm.org.apache.spark.streaming.api.java
        wrapped = java.JavaStreamingListenerWrapper(java.PythonStreamingListenerWrapper(Listener()))
        running.addStreamingListener(wrapped)
        self._attached = running

    def finished(self, batch: JavaObject) -> None:
        """Spark finished a batch: estimate the rate again."""
        records = self._planned.pop(int(batch.batchTime().milliseconds()), 0)
        if not records or self._estimator is None:
            return
        found = self._estimator.compute(
            int(batch.processingEndTime()),
            records,
            int(batch.processingDelay()),
            int(batch.schedulingDelay()),
        )
        if not found.isEmpty():
            self._rate = float(str(found.get()))
            _logger.debug("backpressure allows %.0f records a second", self._rate)


def _enabled(context: SparkContext) -> bool:
    return (context.getConf().get(_BACKPRESSURE) or "false").lower() == "true"
