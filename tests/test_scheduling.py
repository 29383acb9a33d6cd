"""Which worker runs which tests, and in what order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import scheduling
from scheduling import ByUnit, as_lines, durations_of, known_durations, unit_of


class Worker:
    """A worker as the scheduler sees it: it keeps what it was given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.given += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(tests: list[str], workers: list[Worker]) -> ByUnit:
    config: Any = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: ["popen"] * len(workers))
    config.getoption = config.getvalue
    scheduler = ByUnit(config)
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    return scheduler


def test_units() -> None:
    assert unit_of("tests/spark/test_pipeline_sink.py::test_a") == "spark"
    assert unit_of("tests/spark/test_streams_cluster.py::test_a") == "tests/spark/test_streams_cluster.py"
    assert unit_of("tests/docs/test_docs_blocks.py::test_page[a.md]").endswith("::test_page[a.md]")
    assert unit_of("tests/unit/log/test_log.py::test_a") == "tests/unit/log/test_log.py"


def test_every_file_with_its_own_spark_exists() -> None:
    assert [file for file in scheduling.OWN_SPARK if not (scheduling.ROOT / file).exists()] == []


def test_a_long_unit_never_waits_behind_another_while_a_worker_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "durations.tsv"
    known.write_text("300\tlong_1.py\n200\tlong_2.py\n100\tlong_3.py\n")
    monkeypatch.setattr(scheduling, "DURATIONS", known)
    tests = [f"{name}.py::test" for name in ("long_1", "long_2", "long_3", "short_1", "short_2", "short_3")]
    first, second = Worker("first"), Worker("second")
    scheduler = scheduled(tests, [first, second])
    assert (first.given, second.given) == ([0, 5], [1, 4])
    # The second worker ends its long test first, so that it gets the third.
    scheduler.mark_test_complete(second, 1)
    assert second.given == [1, 4, 2]
    scheduler.mark_test_complete(second, 4)
    assert second.given == [1, 4, 2, 3]
    assert first.given == [0, 5]
    assert not scheduler.workqueue


def test_durations_come_from_a_report(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.test_scheduling" name="test_a" time="7"/>'
        '<testcase classname="tests.test_scheduling.TestClass" name="test_b" time="5.5"/>'
        '<testcase classname="tests.test_tidy" name="test_c" time="9.9"/>'
        '<testcase classname="tests.docs.test_docs_blocks" name="test_page[a]" time="30"/>'
        "</testsuite></testsuites>"
    )
    lines = as_lines(durations_of(report))
    assert lines == [
        "30\ttests/docs/test_docs_blocks.py::test_page[a]\n",
        "12\ttests/test_scheduling.py\n",
    ]
    assert known_durations(lines)["tests/test_scheduling.py"] == 12
