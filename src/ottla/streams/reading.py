"""What an application reads: its source topics, by Spark's Kafka source or by Ottla's own reader.

Ottla's reader runs a first stage in Python where it reads. What needs no Python at all (columns, real-time mode) is
read by Spark's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.pipeline.reader_options import FORMAT
from ottla.streams.loading import pickled_by_value
from ottla.streams.planner.spark_frames import ArrivingFrame, PythonStage
from ottla.streams.settings import StreamsSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_POLL_RECORDS: Final = 20_000


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records of an application's source topics, as a plan begins with them."""

    spark: SparkSession
    application_id: str
    topics: tuple[str, ...]
    settings: StreamsSettings
    needs_headers: bool

    def frame(self) -> DataFrame:
        """The records by Spark's Kafka source."""
        options = {**self._options(), "includeHeaders": str(self.needs_headers).lower()}
        # Spark seeks before each poll, and fetches again what it had fetched beyond the poll.
        options["kafka.max.poll.records"] = str(MAX_POLL_RECORDS)
        if not self.settings.real_time:
            # Spark asks for the log's end behind a fetch that it has sent ahead: at the end of the log, that fetch
            # would hold the answer up for Kafka's 500 ms. Spark only reads offsets that exist, so nothing polls faster.
            options["kafka.fetch.max.wait.ms"] = "0"
        return self.spark.readStream.format("kafka").options(**{**options, **self._client()}).load()

    def rows(self) -> DataFrame:
        """The records with topic, partition, offset, key, value, time (in ms) and headers."""
        if not self.settings.fused_reader:
            return ArrivingFrame(self.frame()).rows()
        columns = ("topic", "partition", "offset", "key", "value", "timestamp")
        options = {**self._options(), **self._client()}
        options["columns"] = ",".join((*columns, "headers") if self.needs_headers else columns)
        return ArrivingFrame(self.spark.readStream.format(FORMAT).options(**options).load()).rows()

    def through(self, stage: PythonStage, schema: str, *, with_headers: bool) -> DataFrame:
        """What a stage makes of the records."""
        if not self.settings.fused_reader:
            return ArrivingFrame(self.frame()).through(stage, schema, with_headers=with_headers)
        from ottla.pipeline.fused_reader import read_through

        return read_through(
            self.spark,
            self.application_id,
            {**self._options(), **self._client()},
            pickled_by_value(stage),
            schema,
            with_headers=with_headers,
        )

    def _options(self) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self.settings.bootstrap_servers,
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }
        if not self.settings.real_time:
            # A batch in real time has no size: it lasts until its time is over.
            options["maxOffsetsPerTrigger"] = str(self.settings.max_offsets_per_batch)
        return options

    def _client(self) -> dict[str, str]:
        return {f"kafka.{key}": value for key, value in self.settings.client.items()}
