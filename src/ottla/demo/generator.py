"""Text lines and clicks: what one is follows from a seed and its number, when it is sent from the clock."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass
from typing import Final

from ottla.client.consumer import KafkaConsumer
from ottla.client.producer import KafkaProducer
from ottla.client.structs import TopicPartition
from ottla.demo.topics import CLICKS, LINES

CLICKS_PER_LINE: Final = 2
_USERS: Final = 50
_SHORTEST_LINE, _LONGEST_LINE = 3, 8

_WORDS: Final = (
    *("letter", "castle", "river", "garden", "window", "morning", "train", "bridge", "market", "summer"),
    *("paper", "lamp", "street", "music", "coffee", "mountain", "library", "winter", "clock", "harbour"),
    *(
        "island",
        "forest",
        "kitchen",
        "painter",
        "teacher",
        "village",
        "journey",
        "silence",
        "weather",
        "orchard",
    ),
)
_PAGES: Final = ("/", "/search", "/basket", "/about", "/account", "/help")


def _falling(count: int) -> list[float]:
    """The first is met often and the last seldom, as in language and on web sites."""
    return [1 / rank for rank in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class Click:
    user: str
    page: str


def line(seed: int, number: int) -> str:
    """The text of one line."""
    chance = random.Random(f"{seed}/line/{number}")
    length = chance.randint(_SHORTEST_LINE, _LONGEST_LINE)
    return " ".join(chance.choices(_WORDS, _falling(len(_WORDS)), k=length)).capitalize()


def click(seed: int, number: int) -> Click:
    """Who looked at what."""
    chance = random.Random(f"{seed}/click/{number}")
    user = f"user-{chance.randrange(_USERS)}"
    return Click(user, chance.choices(_PAGES, _falling(len(_PAGES)))[0])


class Generator:
    """Sends lines and clicks at a steady rate, and goes on where an earlier one on the same topics stopped."""

    def __init__(self, bootstrap_servers: str, *, seed: int, lines_per_s: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._seed = seed
        self._interval_s = 1 / lines_per_s
        self.lines = 0
        self.clicks = 0

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set; what was sent by then is in the topics when this returns."""
        self.lines, self.clicks = self._already_sent()
        with KafkaProducer(bootstrap_servers=self._bootstrap_servers, linger_ms=5) as producer:
            due = time.monotonic()
            while not stopping.wait(max(0.0, due - time.monotonic())):
                self._send(producer)
                # After a machine has slept there is no rush to catch up.
                due = max(due + self._interval_s, time.monotonic())
            producer.flush()

    def _already_sent(self) -> tuple[int, int]:
        with KafkaConsumer(bootstrap_servers=self._bootstrap_servers, group_id=None) as consumer:
            ends = consumer.end_offsets([TopicPartition(LINES, 0), TopicPartition(CLICKS, 0)])
        return ends[TopicPartition(LINES, 0)], ends[TopicPartition(CLICKS, 0)]

    def _send(self, producer: KafkaProducer) -> None:
        producer.send(LINES, line(self._seed, self.lines).encode())
        self.lines += 1
        for _ in range(CLICKS_PER_LINE):
            one = click(self._seed, self.clicks)
            value = json.dumps({"user": one.user, "page": one.page}).encode()
            producer.send(CLICKS, value, key=one.user.encode())
            self.clicks += 1
