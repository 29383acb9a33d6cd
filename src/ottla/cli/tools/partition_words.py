"""Partitions as people write them on a command line: `orders` and `orders:0,2`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.admin.partitions import Partition, leaders
from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


def parse_partitions(cluster: Cluster, words: Iterable[str]) -> list[Partition]:
    """Partitions from words like `orders` (all of its partitions) and `orders:0,2`."""
    words = list(words)
    chosen: list[Partition] = []
    for word in words:
        topic, colon, numbers = word.partition(":")
        if colon:
            chosen += [(topic, _number(number, word)) for number in numbers.split(",")]
    chosen += leaders(cluster, [word for word in words if ":" not in word])
    return chosen


def _number(text: str, word: str) -> int:
    if not text.strip().isdecimal():
        raise UsageProblem(f"--topic {word}: '{text}' is not the number of a partition")
    return int(text)
