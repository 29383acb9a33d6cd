"""librdkafka as the load: each function is one measured run in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BATCH = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """What to send or to read."""

    bootstrap: str
    topic: str
    records: int
    size: int = 100
    partitions: int = 4
    acks: str = "1"
    codec: str = "none"
    rate: int = 0
    linger_ms: float = 5


def create_topic(bootstrap: str, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(60)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)


def produce(load: Load) -> dict[str, float]:
    """Seconds until every record is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "compression.type": load.codec,
            "linger.ms": load.linger_ms,
            "batch.size": 1_000_000 if load.size > 500 else 131_072,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    payload = [{"value": (b"%012d" % i).ljust(load.size, b"x")} for i in range(BATCH)]
    producer.produce(load.topic, b"warm")
    producer.flush(30)
    begin = time.perf_counter()
    left, partition = load.records, 0
    while left > 0:
        queued = producer.produce_batch(load.topic, payload[: min(left, BATCH)], partition=partition)
        left -= queued
        partition = (partition + 1) % load.partitions
        if queued < BATCH and left > 0:
            producer.poll(0.005)
    assert producer.flush(120) == 0
    return {"seconds": time.perf_counter() - begin}


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
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(load.topic, p, 0) for p in range(load.partitions)])
    got, begin = 0, 0.0
    while got < load.records:
        messages = consumer.consume(10_000, timeout=30)
        assert messages, f"only {got} of {load.records} records came"
        begin = begin or time.perf_counter()
        got += len(messages)
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"seconds": seconds}


def latency(load: Load) -> dict[str, float]:
    """Percentiles in ms of acknowledgement and of arrival at a consumer, at a fixed rate."""
    acknowledged: list[float] = []
    arrived: list[float] = []
    producer = Producer(
        {"bootstrap.servers": load.bootstrap, "acks": load.acks, "linger.ms": 0, "socket.nagle.disable": True}
    )
    consumer = Consumer({"bootstrap.servers": load.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 100})
    ends = [consumer.get_watermark_offsets(TopicPartition(load.topic, p))[1] for p in range(load.partitions)]
    consumer.assign([TopicPartition(load.topic, p, end) for p, end in enumerate(ends)])

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.latency() * 1000)

    padding = b"x" * max(load.size - 20, 0)
    begin = time.perf_counter()
    sent = 0
    while len(arrived) < load.records:
        due = min(load.records, int((time.perf_counter() - begin) * load.rate) + 1)
        while sent < due:
            value = b"%020d" % time.perf_counter_ns() + padding
            producer.produce(load.topic, value, partition=sent % load.partitions, on_delivery=on_delivery)
            sent += 1
        producer.poll(0)
        for message in consumer.consume(500, timeout=0.0005):
            arrived.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)
        assert time.perf_counter() - begin < load.records / load.rate + 60, f"{len(arrived)} arrived"
    producer.flush(30)
    consumer.close()
    return {**percentiles("ack", acknowledged), **percentiles("end-to-end", arrived)}


def percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        f"{name} {p}": ordered[min(int(len(ordered) * share), len(ordered) - 1)] for p, share in at.items()
    }


def run(kind: str, load: Load) -> dict[str, float]:
    """Run one of the functions above in a fresh process, so that runs share no state."""
    words = {name: getattr(load, name) for name in load.__slots__}
    done = subprocess.run(
        [sys.executable, "-m", "bench.clients", kind, json.dumps(words)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(
            {"produce": produce, "consume": consume, "latency": latency}[sys.argv[1]](
                Load(**json.loads(sys.argv[2]))
            )
        )
    )
