"""Scheduling of tests over workers: one worker starts each expensive service, and what takes long runs first.

All workers then end at about the same time. `durations.tsv` has the seconds of the longest units; after `make test`,
`PYTHONPATH=tests .venv/bin/python -m scheduling build/tests.xml` writes it again.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parent.parent
DURATIONS = Path(__file__).with_name("durations.tsv")
_WORTH_KNOWING_S = 10.0
_SPARK = "tests/spark/"

ONE_WORKER = {
    _SPARK: "spark",
    "tests/oracle/test_tools_": "tools",
}
"""Files that begin like this share a Spark session, or a pair of Apache Kafka brokers and a JVM of Kafka's tools."""

OWN_SPARK = tuple(
    f"{_SPARK}test_{name}.py"
    for name in (
        "connect_resident_cluster",
        "demo_run",
        "mirror_faults",
        "pipeline_dstream_recovery",
        "pipeline_faults",
        "secured",
        "standalone",
        "streams_cluster",
        "streams_queries",
    )
)
"""Files beside the others of Spark that do not use the shared session: each may run on another worker."""

SPLIT = ("tests/docs/test_docs_blocks.py",)
"""Files whose tests share nothing: each test may run on another worker."""


def unit_of(test: str) -> str:
    """Return the work unit of a test. One worker runs each unit."""
    file = test.split("::", 1)[0]
    if file in SPLIT:
        return test
    if file in OWN_SPARK:
        return file
    return next((unit for start, unit in ONE_WORKER.items() if file.startswith(start)), file)


def known_durations(lines: Iterable[str]) -> dict[str, float]:
    """The seconds of units, from lines of seconds, a tab, and the unit."""
    pairs = (line.rstrip("\n").split("\t", 1) for line in lines)
    return {unit: float(seconds) for seconds, unit in pairs}


class ByUnit(LoadFileScheduling):
    """The tests of a unit go to one worker, in the order in which they were collected.

    A worker begins a test only when it knows the next one. The unit after a long one is a short one, from the end of
    the queue: no long unit then waits for another while a worker is free.
    """

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        with DURATIONS.open() as lines:
            self._durations = known_durations(lines)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _reschedule(self, node: Any) -> None:
        # One test is being run, and one is known: a further unit can still go to any worker.
        if self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        waiting = [unit for unit, tests in self.assigned_work[node].items() if not all(tests.values())]
        if any(unit in self._durations for unit in waiting):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def long_units_first(items: list[pytest.Item]) -> None:
    """Sort by the known seconds of the units, and by a guess for new ones."""
    with DURATIONS.open() as lines:
        known = known_durations(lines)
    units = {item: unit_of(f"{item.path.relative_to(ROOT).as_posix()}::{item.name}") for item in items}
    guessed: dict[str, float] = defaultdict(float)
    for item, unit in units.items():
        guessed[unit] += _guess_s(item)
    items.sort(key=lambda item: -known.get(units[item], guessed[units[item]]))


def _guess_s(item: pytest.Item) -> float:
    """A test with a long timeout of its own needs it; one with a JVM takes longer than other slow ones."""
    own = item.get_closest_marker("timeout")
    if own is not None and own.args:
        return float(own.args[0]) / 10
    if item.get_closest_marker("java") is not None:
        return 5.0
    return 2.0 if item.get_closest_marker("slow") is not None else 0.05


def durations_of(report: Path) -> dict[str, float]:
    """The seconds of each unit in pytest's XML report."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        parts = case.get("classname", "").split(".")
        while parts and not ROOT.joinpath(*parts).with_suffix(".py").exists():
            parts.pop()
        if parts:
            found[unit_of(f"{'/'.join(parts)}.py::{case.get('name')}")] += float(case.get("time", "0"))
    return found


def as_lines(durations: Mapping[str, float]) -> list[str]:
    """The units worth knowing, longest first, as the lines of `durations.tsv`."""
    longest = sorted(durations.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{seconds:.0f}\t{unit}\n" for unit, seconds in longest if seconds >= _WORTH_KNOWING_S]


if __name__ == "__main__":
    DURATIONS.write_text("".join(as_lines(durations_of(Path(sys.argv[1])))))
