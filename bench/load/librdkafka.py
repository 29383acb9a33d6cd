"""Throughput with librdkafka, what Python's users run in production."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.load import Load

_AT_ONCE = 1000


def _producer(load: Load, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "compression.type": load.codec,
            "linger.ms": load.linger_ms,
            "batch.size": 1_000_000 if load.size > 500 else 131_072,
            "batch.num.messages": load.batch_records,
            "max.in.flight.requests.per.connection": load.in_flight,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **load.security,
            **more,
        }
    )


def _payload(load: Load) -> list[dict[str, bytes]]:
    """Values that compress about as well as short JSON does: half of each is its own."""
    rows = []
    for i in range(_AT_ONCE):
        own = b"%016x" % (i * 0x9E3779B97F4A7C15 % 2**64)
        row = {"value": (own * (load.size // 32 + 1))[: load.size // 2].ljust(load.size, b"x")}
        if load.keys:
            row["key"] = b"%012d" % (i * 7919 % load.keys)
        rows.append(row)
    return rows


def produce(load: Load) -> dict[str, float]:
    """Seconds until every record is acknowledged (acks=0: handed to the system)."""
    producer = _producer(load)
    payload = _payload(load)
    producer.produce(load.topic, b"warm", key=b"warm")
    producer.flush(60)
    begin = time.perf_counter()
    left, partition = load.records, 0
    while left > 0:
        wanted = min(left, _AT_ONCE)
        queued = producer.produce_batch(load.topic, payload[:wanted], partition=partition)
        left -= queued
        partition = (partition + 1) % load.partitions
        if queued < wanted:
            producer.poll(0.005)
    assert producer.flush(300) == 0
    return {"seconds": time.perf_counter() - begin}


def produce_for(load: Load) -> dict[str, float]:
    """Records a second over some seconds, with a short queue: for settings that are slow on purpose."""
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(load, **{"queue.buffering.max.messages": 1000})
    value = b"x" * load.size
    producer.produce(load.topic, b"warm", partition=0)
    producer.flush(60)
    begin = time.perf_counter()
    end = begin + load.seconds
    sent = 0
    while time.perf_counter() < end:
        try:
            producer.produce(load.topic, value, partition=sent % load.partitions, on_delivery=on_delivery)
            sent += 1
        except BufferError:
            producer.poll(0.001)
    assert producer.flush(60) == 0
    assert not failures, failures[0]
    return {"records/s": sent / (time.perf_counter() - begin)}


def consume(load: Load) -> dict[str, float]:
    """Seconds from the first record to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            # By default librdkafka rests a second when its queue is full: both brokers then look equally slow.
            "fetch.queue.backoff.ms": 5,
            **load.security,
        }
    )
    consumer.assign([TopicPartition(load.topic, p, load.start) for p in range(load.partitions)])
    got, begin, first = 0, 0.0, 0
    while got < load.records:
        # It waits until all that it was asked for is there.
        messages = consumer.consume(min(10_000, load.records - got), timeout=60)
        assert messages, f"only {got} of {load.records} records came"
        got += len(messages)
        if not begin:
            begin, first = time.perf_counter(), got
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"seconds": seconds * load.records / max(load.records - first, 1)}
