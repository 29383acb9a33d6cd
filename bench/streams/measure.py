"""The speed of an engine: throughput until the output holds all counts, and the latency of single records."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 2
WORDS_A_LINE = 8
_VOCABULARY = 5_000
_USERS = 1_000
_CLICKS_A_MS = 20
_CLICKS_BEGIN_S = 3_600
_WARM_RECORDS = 60
"""Until the code that runs once in every micro-batch is compiled."""

_LONGEST_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that works from one topic into another until it is stopped."""

    name: str
    command: list[str]
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(self.command, stdout=out, stderr=out, start_new_session=True)


Write = Callable[[str, str, int, int], int]
"""Writes so many records into a topic of a cluster, from a seed; gives back what they add up to when counted."""


def records_a_second(
    bootstrap: str, source: str, target: str, engine: Engine, write: Write, warm: int, records: int
) -> float:
    """Records a second from the first one written to the last count read; warmed up before. Counts are verified."""
    running = engine.start()
    counts = _Counts(bootstrap, target)
    try:
        expected = write(bootstrap, source, warm, 1)
        counts.wait_for(expected, engine, running)
        begin = time.perf_counter()
        expected += write(bootstrap, source, records, 2)
        counts.wait_for(expected, engine, running)
        return records / (time.perf_counter() - begin)
    finally:
        counts.close()
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def write_lines(bootstrap: str, topic: str, lines: int, seed: int) -> int:
    chance = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(_VOCABULARY)]
    # Some words are common and most are rare, as in any text.
    weights = [1 / (rank + 10) for rank in range(_VOCABULARY)]
    words = chance.choices(vocabulary, weights, k=lines * WORDS_A_LINE)
    producer = _producer(bootstrap)
    for at in range(0, len(words), WORDS_A_LINE):
        producer.produce(topic, " ".join(words[at : at + WORDS_A_LINE]).encode())
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{topic} did not take all lines")
    return len(words)


def write_clicks(bootstrap: str, topic: str, clicks: int, seed: int) -> int:
    """Of a thousand users, one after the other in time; each seed has a time of its own.

    Within the last hour: what is older than a topic keeps would be deleted while it is counted."""
    chance = random.Random(seed)
    producer = _producer(bootstrap)
    begin_ms = int(time.time() - _CLICKS_BEGIN_S) // 10 * 10_000 + seed * 1_000_000
    for number in range(clicks):
        user = b"user%d" % chance.randrange(_USERS)
        producer.produce(topic, b"click", user, timestamp=begin_ms + number // _CLICKS_A_MS)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{topic} did not take all clicks")
    return clicks


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "partitioner": "murmur2_random",
        }
    )


def latencies_ms(bootstrap: str, source: str, target: str, engine: Engine, records: int) -> list[float]:
    """How long each of some records, sent one by one, takes from the producer's call to a reader of the result."""
    running = engine.start()
    consumer = _reader(bootstrap, target)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    try:
        took = []
        for number in range(-_WARM_RECORDS, records):
            key = b"r%d" % number
            sent = time.perf_counter()
            producer.produce(source, b"a record", key)
            producer.flush(10)
            _wait_for_key(consumer, key, engine, running)
            if number >= 0:
                took.append((time.perf_counter() - sent) * 1_000)
        return took
    finally:
        consumer.close()
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _wait_for_key(consumer: Consumer, key: bytes, engine: Engine, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while True:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None and message.key() == key:
            return
        if running.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{engine.name} gave no result\n{engine.log.read_text()[-2000:]}")


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"results-{topic}",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return consumer


class _Counts:
    """The last count of each word, or of each user and window, as a reader of committed records sees it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._last: dict[bytes, int] = {}
        self._total = 0
        self._consumer = _reader(bootstrap, topic)

    def wait_for(self, total: int, engine: Engine, running: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while self._total < total:
            if running.poll() is not None or time.monotonic() > deadline:
                output = engine.log.read_text()[-2000:]
                raise RuntimeError(f"{engine.name} counted {self._total} of {total}\n{output}")
            for message in self._consumer.consume(10_000, 0.1):
                if message.error() is None:
                    self._take(message.key() or b"", message.value() or b"")
        if self._total > total:
            raise RuntimeError(f"{engine.name} counted {self._total} where there are {total}")

    def _take(self, word: bytes, value: bytes) -> None:
        if value[:1] == b"{":
            # Quix Streams has the window in the value.
            window = json.loads(value)
            word, value = b"%s %d" % (word, window["start"]), b"%d" % window["value"]
        count = int.from_bytes(value, "big") if len(value) == 8 and value[0] == 0 else int(value)
        self._total += count - self._last.get(word, 0)
        self._last[word] = count

    def close(self) -> None:
        self._consumer.close()
