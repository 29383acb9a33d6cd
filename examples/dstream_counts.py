"""Spark Streaming with Kafka: running counts of words that survive kill -9, written exactly once.

    ottla start &                                              # a broker on localhost:9092
    ottla topics --create --topic lines; ottla topics --create --topic totals
    python examples/dstream_counts.py --checkpoint checkpoints/totals &
    echo "to be or not to be" | ottla produce --topic lines
    ottla consume --topic totals --from-beginning --isolation-level read_committed --property print.key=true

Kill it at any moment and start it again: the counts go on, and each batch is in the topic once. `--received TOPIC`
reads another topic too, with a receiver. `docs/how-to/dstreams.md` explains the concepts one by one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark import RDD
from pyspark.streaming import DStream, StreamingContext

from ottla.pipeline import spark_session
from ottla.pipeline.dstream import KafkaUtils, streaming_context, write_exactly_once


def read(ssc: StreamingContext, servers: str, topic: str, received: str | None, group: str) -> DStream[str]:
    """The lines of a topic by a direct stream, and those of another by a receiver."""
    reset = {"auto.offset.reset": "earliest"}
    params = {**reset, "bootstrap.servers": servers, "group.id": group}
    records: Any = KafkaUtils.createDirectStream(ssc, [topic], params)
    if received is not None:
        records = records.union(KafkaUtils.createStream(ssc, servers, group, {received: 1}, reset))
    lines: DStream[str] = records.map(lambda record: record[1])
    return lines


def add(new: Iterable[int], total: int | None) -> int:
    """The state of a word: how often it was seen so far."""
    return sum(new) + (total or 0)


def with_time(time: datetime, totals: RDD[tuple[str, int]]) -> RDD[tuple[str, str]]:
    """A word's total and the time of the batch, in milliseconds, that it is true for."""
    at_ms = round(time.timestamp() * 1000)
    return totals.map(lambda pair: (pair[0], f"{at_ms} {pair[1]}"))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--bootstrap-server", default="localhost:9092")
    words.add_argument("--source", default="lines", help="the topic to read")
    words.add_argument("--target", default="totals", help="the topic to write")
    words.add_argument("--checkpoint", required=True, help="a directory that survives this process")
    words.add_argument("--received", help="a topic to read with a receiver")
    words.add_argument("--interval", type=float, default=2.0, help="seconds between batches")
    words.add_argument("--rate", type=int, default=0, help="the most records of a partition in a second")
    words.add_argument("--master", default="local[3]", help="Spark's")
    given = words.parse_args()

    def setup() -> StreamingContext:
        settings = {
            "spark.ui.port": "0",
            "spark.streaming.backpressure.enabled": "true",
            "spark.streaming.kafka.maxRatePerPartition": str(given.rate),
        }
        spark = spark_session("dstream-counts", master=given.master, settings=settings)
        ssc = StreamingContext(spark.sparkContext, given.interval)
        lines = read(ssc, given.bootstrap_server, given.source, given.received, given.target)
        totals = lines.flatMap(str.split).map(lambda word: (word, 1)).updateStateByKey(add)
        write_exactly_once(
            totals.transform(with_time),
            given.bootstrap_server,
            topic=given.target,
            transactional_id=given.target,
        )
        return ssc

    ssc = streaming_context(given.checkpoint, setup, given.master)
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
