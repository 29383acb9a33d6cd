"""What a consumer can find out about topics, partitions and offsets, apart from reading."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from ottla.client import consumer_engine, metadata
from ottla.client.consumer_engine import EARLIEST, LATEST
from ottla.client.errors import IllegalStateError, KafkaTimeoutError
from ottla.client.settings import common_engine_settings, with_engine_config
from ottla.client.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from ottla.client.consumer_state import ConsumerState
    from ottla.client.settings import Settings
    from ottla.client.statistics import Metrics, Report, Statistics


def checked(partition: object) -> TopicPartition:
    """The partition, if it is one; TypeError otherwise."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"a partition is a TopicPartition, not {partition!r}")
    return partition


class ConsumerLookups:
    """The part of `KafkaConsumer` that asks the cluster and changes nothing."""

    config: Settings
    _engine: Consumer
    _state: ConsumerState
    _statistics: Statistics
    _timeout_s: float

    def topics(self) -> set[str]:
        """All topics that this client may see, except internal ones.

        >>> "orders" in consumer.topics()
        True
        """
        return set(metadata.all_topics(self._engine, self._timeout_s)) - metadata.INTERNAL_TOPICS

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The topic's partitions; none if there is no such topic.

        >>> consumer.partitions_for_topic("orders")
        {0}
        """
        return set(metadata.leaders(self._engine, topic, self._timeout_s) or ())

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition.

        >>> consumer.beginning_offsets([first])[first]
        0
        """
        return self._offsets_at(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have.

        >>> consumer.end_offsets([first])[first] >= 1
        True
        """
        return self._offsets_at(partitions, LATEST, timeout_ms)

    def _offsets_at(
        self, partitions: Iterable[TopicPartition], at: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        return consumer_engine.list_offsets(self._engine, dict.fromkeys(partitions, at), timeout_s)

    def offsets_for_times(
        self, timestamps: dict[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if there is none.

        >>> consumer.offsets_for_times({first: 0})[first].offset
        0
        """
        for tp, at in timestamps.items():
            if at < 0:
                raise ValueError(f"the time for {tp} is {at}, and a time is not negative")
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        settings = common_engine_settings(self.config)
        settings.pop("max.in.flight.requests.per.connection", None)
        return consumer_engine.records_at_times(
            with_engine_config(settings, self.config),
            {tp: int(at) for tp, at in timestamps.items()},
            self.config["isolation_level"],
            timeout_s,
        )

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as of the last fetch.

        >>> end = consumer.highwater(first)  # None until something was fetched.
        """
        self._assigned(partition)
        try:
            found = self._engine.get_watermark_offsets(consumer_engine.theirs({partition: 0})[0], cached=True)
        except KafkaException:
            return None
        return found[1] if found is not None and found[1] >= 0 else None

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster has been reached; KafkaTimeoutError if that takes too long. The engine looks the
        cluster up each time, with or without `refresh`.

        >>> consumer.bootstrap(timeout_ms=30_000)
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self.bootstrap_connected():
            if deadline is not None and time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"no broker was reached within {timeout_ms} ms")

    def bootstrap_connected(self) -> bool:
        """Whether the cluster can be reached.

        >>> consumer.bootstrap_connected()
        True
        """
        try:
            return bool(self._engine.list_topics("", timeout=1).brokers)
        except KafkaException:
            return False

    def metrics(self, raw: bool = False) -> Report | Metrics | None:
        """Counters by group; `raw` returns librdkafka's whole report. None if `metrics_enabled` is false.

        >>> "consumer-metrics" in consumer.metrics()
        True
        """
        if not self.config["metrics_enabled"]:
            return None
        return self._statistics.raw() if raw else self._statistics.consumer_metrics({})

    def _assigned(self, partition: TopicPartition) -> None:
        checked(partition)
        if partition not in self._state.assigned:
            raise IllegalStateError(f"{partition} is not assigned")
