"""Latency at a fixed rate, counted from the moment a record was due: waiting behind a slow response counts, too.

The sender and the reader are two processes: neither waits for the other's interpreter.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.load import Load, command, finish, percentiles

_WARM_S = 1.0
_GRACE_S = 60.0


def send(load: Load) -> dict[str, float]:
    """Percentiles in ms of acknowledgement and of arrival, and how late the sender itself was."""
    total = int(load.rate * (load.seconds + _WARM_S))
    reader = subprocess.Popen(
        command("latency-read", _read_side(replace(load, records=total))),
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert reader.stdout is not None and reader.stdout.readline().strip() == "ready"
    acknowledged: list[float] = []
    late: list[float] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)

    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "linger.ms": load.linger_ms,
            "socket.nagle.disable": True,
        }
    )
    padding = b"x" * (load.size - 20)
    interval_ns = 1_000_000_000 // load.rate
    begin = time.perf_counter_ns()
    sent = 0
    while sent < total:
        now = time.perf_counter_ns()
        due = begin + sent * interval_ns
        late.append((now - due) / 1e6)
        while due <= now and sent < total:
            value = b"%020d" % due + padding
            producer.produce(load.topic, value, partition=sent % load.partitions, on_delivery=on_delivery)
            sent += 1
            due += interval_ns
        producer.poll(0)
        rest = (due - time.perf_counter_ns()) / 1e9
        if rest > 0:
            time.sleep(max(rest, 0.0005))
    assert producer.flush(_GRACE_S) == 0
    taken = (time.perf_counter_ns() - begin) / 1e9
    warm = int(load.rate * _WARM_S)
    return {
        **percentiles("ack", acknowledged[warm:]),
        **finish(reader),
        "sender late p99": percentiles("late", late[int(len(late) * warm / total) :])["late p99"],
        "rate": sent / taken,
    }


def _read_side(load: Load) -> Load:
    """What the reader reads: the sender's topic, or its copy elsewhere."""
    if load.read_from is None:
        return load
    bootstrap, topic = load.read_from
    return replace(load, bootstrap=bootstrap, topic=topic, read_from=None)


def read(load: Load) -> dict[str, float]:
    """Percentiles in ms of arrival, of the records that come from now on."""
    consumer = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "socket.nagle.disable": True,
        }
    )
    ends = [
        consumer.get_watermark_offsets(TopicPartition(load.topic, p), 30)[1] for p in range(load.partitions)
    ]
    consumer.assign([TopicPartition(load.topic, p, end) for p, end in enumerate(ends)])
    consumer.poll(0.2)
    print("ready", flush=True)
    arrived: list[float] = []
    end = time.monotonic() + load.records / load.rate + _GRACE_S
    while len(arrived) < load.records and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is None:
            continue
        # The first one wakes us at once; the rest of what came with it is taken in one go.
        for each in (message, *consumer.consume(1000, timeout=0)):
            assert each.error() is None, each.error()
            arrived.append((time.perf_counter_ns() - int((each.value() or b"")[:20])) / 1e6)
    assert len(arrived) == load.records, f"{len(arrived)} of {load.records} records arrived"
    consumer.close()
    return percentiles("end-to-end", arrived[int(load.rate * _WARM_S) :])
