"""Scheduling of test files over workers: one worker starts each expensive service, and long files run first.

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


def unit_of(file: str) -> str:
    """Return the work unit of a test file. One worker runs each unit."""
    return next((unit for start, unit in ONE_WORKER.items() if file.startswith(start)), file)


class ByUnit(LoadFileScheduling):
    """The files of a unit go to one worker, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(super()._split_scope(nodeid))


def long_units_first(items: list[pytest.Item]) -> None:
    """Sort: Spark first, then tests that need a JVM, then slow ones, then the rest."""
    weights: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    units = {item: unit_of(item.path.relative_to(ROOT).as_posix()) for item in items}
    for item, unit in units.items():
        java, slow = weights[unit]
        weights[unit] = (
            java + (item.get_closest_marker("java") is not None),
            slow + (item.get_closest_marker("slow") is not None),
        )
    first = list(ONE_WORKER.values())

    def rank(item: pytest.Item) -> tuple[int, int, int]:
        unit = units[item]
        java, slow = weights[unit]
        return (first.index(unit) if unit in first else len(first), -java, -slow)

    items.sort(key=rank)
