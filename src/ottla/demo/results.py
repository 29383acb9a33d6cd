"""The results of the pipelines so far, read from their topics like any consumer: committed records only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Final

from ottla.client.consumer import KafkaConsumer
from ottla.demo.topics import CLICKS_PER_WINDOW, WORD_COUNTS

MAX_WORDS: Final = 10_000
"""Other programs may write lines, too. The pipeline counts more words than this, but they are not shown."""
MAX_WINDOWS: Final = 6
_POLL_MS: Final = 250


class Results:
    """The last count of each word, and of each page in the latest windows."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.windows: dict[str, dict[str, int]] = {}
        self.updates = 0

    def take(self, topic: str, key: str, value: str) -> None:
        """Add one record of a result topic."""
        self.updates += 1
        count = int(json.loads(value))
        if topic == CLICKS_PER_WINDOW:
            page, _, start = key.rpartition("@")
            self.windows.setdefault(start, {})[page] = count
            while len(self.windows) > MAX_WINDOWS:
                del self.windows[min(self.windows)]
        elif key in self.words or len(self.words) < MAX_WORDS:
            self.words[key] = count

    def top_words(self, count: int) -> list[tuple[str, int]]:
        return sorted(self.words.items(), key=lambda each: (-each[1], each[0]))[:count]

    def latest_clicks(self, count: int) -> list[tuple[str, str, int]]:
        """Return window, page and clicks: the newest window first, and in it the most visited page."""
        return [row for _, row in zip(range(count), self._clicks(), strict=False)]

    def _clicks(self) -> Iterator[tuple[str, str, int]]:
        for start in sorted(self.windows, reverse=True):
            pages = self.windows[start]
            for page in sorted(pages, key=lambda each: (-pages[each], each)):
                yield start, page, pages[page]

    def follow(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Read old and new results until `stopping` is set."""
        with KafkaConsumer(
            *(WORD_COUNTS, CLICKS_PER_WINDOW),
            bootstrap_servers=bootstrap_servers,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            while not stopping.is_set():
                for records in consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        if record.key is not None and record.value is not None:
                            self.take(record.topic, record.key.decode(), record.value.decode())
