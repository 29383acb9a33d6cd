"""Scheduling of tests over workers: one worker starts each expensive service, and what takes long runs first.

All workers then end at about the same time.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parent.parent

ONE_WORKER = {
    "tests/spark/": "spark",
    "tests/oracle/test_tools_": "tools",
}
"""Files that begin like this share a Spark session, or a pair of Apache Kafka brokers and a JVM of Kafka's tools."""


SPLIT = ("tests/docs/test_docs_blocks.py",)
"""Files whose tests share nothing: each test may run on another worker."""


def unit_of(test: str) -> str:
    """Return the work unit of a test. One worker runs each unit."""
    file = test.split("::", 1)[0]
    if file in SPLIT:
        return test
    return next((unit for start, unit in ONE_WORKER.items() if file.startswith(start)), file)


class ByUnit(LoadFileScheduling):
    """The tests of a unit go to one worker, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def long_units_first(items: list[pytest.Item]) -> None:
    """Sort: Spark first, then tests with a long timeout, then those that need a JVM, then slow ones, then the rest."""
    weights: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    units = {item: unit_of(f"{item.path.relative_to(ROOT).as_posix()}::{item.name}") for item in items}
    for item, unit in units.items():
        timeout, java, slow = weights[unit]
        own = item.get_closest_marker("timeout")
        weights[unit] = (
            max(timeout, own.args[0] if own is not None and own.args else 0),
            java + (item.get_closest_marker("java") is not None),
            slow + (item.get_closest_marker("slow") is not None),
        )
    first = list(ONE_WORKER.values())

    def rank(item: pytest.Item) -> tuple[int, int, int, int]:
        unit = units[item]
        timeout, java, slow = weights[unit]
        return (first.index(unit) if unit in first else len(first), -timeout, -java, -slow)

    items.sort(key=rank)
