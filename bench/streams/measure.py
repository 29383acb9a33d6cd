"""How fast an engine counts words: lines go in, and the clock stops when the output holds all of their counts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 2
WORDS_A_LINE = 8
_VOCABULARY = 5_000
_LONGEST_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that counts the words of one topic into another until it is stopped."""

    name: str
    command: list[str]
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(self.command, stdout=out, stderr=out, start_new_session=True)


def lines_a_second(bootstrap: str, source: str, target: str, engine: Engine, warm: int, lines: int) -> float:
    """Lines a second from the first line written to the last count read; warmed up before. Counts are verified."""
    running = engine.start()
    counts = _Counts(bootstrap, target)
    try:
        _write(bootstrap, source, warm, seed=1)
        counts.wait_for(warm * WORDS_A_LINE, engine, running)
        begin = time.perf_counter()
        _write(bootstrap, source, lines, seed=2)
        counts.wait_for((warm + lines) * WORDS_A_LINE, engine, running)
        return lines / (time.perf_counter() - begin)
    finally:
        counts.close()
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _write(bootstrap: str, topic: str, lines: int, seed: int) -> None:
    chance = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(_VOCABULARY)]
    # Some words are common and most are rare, as in any text.
    weights = [1 / (rank + 10) for rank in range(_VOCABULARY)]
    words = chance.choices(vocabulary, weights, k=lines * WORDS_A_LINE)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    for at in range(0, len(words), WORDS_A_LINE):
        producer.produce(topic, " ".join(words[at : at + WORDS_A_LINE]).encode())
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"{topic} did not take all lines")


class _Counts:
    """The last count of each word, as a reader of committed records sees it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._last: dict[bytes, int] = {}
        self._total = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"counts-{topic}",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def wait_for(self, words: int, engine: Engine, running: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while self._total < words:
            if running.poll() is not None or time.monotonic() > deadline:
                told = engine.log.read_text()[-2000:]
                raise RuntimeError(f"{engine.name} counted {self._total} of {words} words\n{told}")
            for message in self._consumer.consume(10_000, 0.1):
                if message.error() is None:
                    self._take(message.key() or b"", message.value() or b"")
        if self._total > words:
            raise RuntimeError(f"{engine.name} counted {self._total} words where there are {words}")

    def _take(self, word: bytes, value: bytes) -> None:
        count = int.from_bytes(value, "big") if len(value) == 8 and value[0] == 0 else int(value)
        self._total += count - self._last.get(word, 0)
        self._last[word] = count

    def close(self) -> None:
        self._consumer.close()
