"""The sink: DataFrames into topics, each micro-batch as one Kafka transaction with its source offsets.

Columns: `value`, and if wanted `key`, `headers`, `timestamp`, `partition`, `topic`, as in Spark's own Kafka sink
with the timestamp added. What goes over the wire is in `transaction.py` (driver) and `writer.py` (tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of one batch: `skipped` when an earlier run had committed it already."""

    batch_id: int | None
    records: int
    skipped: bool = False
    attempts: int = 1


class KafkaSink:
    """Writes batches under one transactional id; as a callable it is what `foreachBatch` wants.

        sink = KafkaSink("127.0.0.1:9092", topic="counts", transactional_id="wordcount")
        df.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", path).start()

    `group` is the consumer group that gets the source offsets (default: the transactional id; "" for none).
    `options` are Kafka's client settings by their Kafka names ("security.protocol", ...).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        transactional_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        exactly_once: bool = True,
        compression: str = "none",
        transaction_timeout_ms: int = 900_000,
        options: Mapping[str, Any] | None = None,
    ) -> None: ...

    def write(
        self,
        df: DataFrame,
        batch_id: int | None = None,
        *,
        lineage: str = "",
        offsets: Mapping[str, Mapping[int, int]] | None = None,
    ) -> WriteResult:
        """Write a (batch) DataFrame as one transaction. A batch id of the same lineage (a checkpoint's query id)
        that was committed before is skipped; `offsets` ({topic: {partition: next offset}}) are committed with it."""
        raise AssertionError

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`: lineage and source offsets are those of the running query."""

    def close(self) -> None: ...


def kafka_sink(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    topic: str | None = None,
    exactly_once: bool = True,
    transactional_id: str | None = None,
    group: str | None = None,
    compression: str = "none",
    options: Mapping[str, Any] | None = None,
) -> WriteResult | DataStreamWriter:
    """Write a DataFrame to Kafka. A batch one is written at once; of a streaming one comes the writer, to be given a
    checkpoint, a trigger and an output mode, and started."""
    raise AssertionError
