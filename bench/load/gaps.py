"""What a writer sees while brokers fail: the longest gap of each partition, and errors."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Producer

from bench.load import Load

_GRACE_S = 60.0


def gaps(load: Load) -> dict[str, float]:
    """Seconds of the longest gap between acknowledgements by partition, while `rate` records/s go to each.

    A word on standard error when the first record of every partition is acknowledged: the fault may come.
    """
    last: dict[int, float] = {}
    longest = dict.fromkeys(range(load.partitions), 0.0)
    errors = 0

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal errors
        if error is not None:
            errors += 1
            return
        now, partition = time.perf_counter(), message.partition()
        if partition in last:
            longest[partition] = max(longest[partition], now - last[partition])
        last[partition] = now

    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
        }
    )
    value = b"x" * load.size
    pause = 1 / load.rate
    ready = False
    end = float("inf")
    due = time.perf_counter()
    while (now := time.perf_counter()) < end:
        if due <= now:
            for partition in range(load.partitions):
                producer.produce(load.topic, value, partition=partition, on_delivery=on_delivery)
            due = max(due + pause, now)
        producer.poll(max(due - time.perf_counter(), 0))
        if not ready and len(last) == load.partitions:
            ready = True
            longest = dict.fromkeys(longest, 0.0)
            end = time.perf_counter() + load.seconds
            print("ready", file=sys.stderr, flush=True)
    unsent = producer.flush(_GRACE_S)
    return {**{str(p): seconds for p, seconds in longest.items()}, "errors": float(errors + unsent)}
