"""The client API in a plain loop, ours and kafka-python's by the same lines; the first records do not count."""

from __future__ import annotations

import time
from typing import Any

from bench.load import Load

_WARM = 1_000
_PATIENCE_MS = 10_000


def _figures(records: int, began_s: float, cpu_s: float) -> dict[str, float]:
    elapsed = time.perf_counter() - began_s
    return {
        "records/s": records / elapsed,
        "CPU": (time.process_time() - cpu_s) * 1e6 / records,
    }


def _produce(library: Any, load: Load) -> dict[str, float]:
    value = b"x" * load.size
    with_defaults = library.KafkaProducer(bootstrap_servers=load.bootstrap, linger_ms=load.linger_ms)
    for _ in range(_WARM):
        with_defaults.send(load.topic, value)
    with_defaults.flush()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(load.records):
        with_defaults.send(load.topic, value)
    with_defaults.flush()
    figures = _figures(load.records, began_s, cpu_s)
    with_defaults.close()
    return figures


def _consume(library: Any, load: Load) -> dict[str, float]:
    consumer = library.KafkaConsumer(
        load.topic,
        bootstrap_servers=load.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=_PATIENCE_MS,
    )
    size = 0
    for count, record in enumerate(consumer, 1):
        size += len(record.value)
        if count == _WARM:
            began_s, cpu_s = time.perf_counter(), time.process_time()
        if count == load.records:
            break
    figures = _figures(load.records - _WARM, began_s, cpu_s)
    assert size == load.records * load.size
    consumer.close()
    return figures


def produce(load: Load) -> dict[str, float]:
    import ottla

    return _produce(ottla, load)


def consume(load: Load) -> dict[str, float]:
    import ottla

    return _consume(ottla, load)


def peer_produce(load: Load) -> dict[str, float]:
    import kafka

    return _produce(kafka, load)


def peer_consume(load: Load) -> dict[str, float]:
    import kafka

    return _consume(kafka, load)
