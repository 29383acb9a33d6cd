"""A DStream program in a process of its own: counts per value, kept in state, written exactly once.

Usage: dstream_program.py direct|receiver BOOTSTRAP SOURCE TARGET CHECKPOINT. It runs until it is killed.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore", category=FutureWarning)


def main(kind: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    from ottla.pipeline.dstream import KafkaUtils, streaming_context, write_exactly_once

    def setup() -> Any:
        from pyspark.streaming import StreamingContext

        from ottla.pipeline import spark_session

        settings = {"spark.ui.enabled": "false", "spark.streaming.kafka.maxRatePerPartition": "10"}
        ssc = StreamingContext(spark_session("dstream", master="local[3]", settings=settings).sparkContext, 2)
        params = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "group.id": target}
        if kind == "direct":
            lines = KafkaUtils.createDirectStream(ssc, [source], params)
        else:
            reset = {"auto.offset.reset": "earliest"}
            lines = KafkaUtils.createStream(ssc, bootstrap, target, {source: 1}, reset)
        counts = lines.map(lambda record: (record[1], 1)).updateStateByKey(
            lambda new, old: sum(new) + (old or 0)
        )
        timed = counts.transform(
            lambda time, rdd: rdd.map(lambda pair: (pair[0], f"{time.timestamp():.0f} {pair[1]}"))
        )
        write_exactly_once(timed, bootstrap, topic=target, transactional_id=target)
        return ssc

    ssc = streaming_context(checkpoint, setup)
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
