"""The report of `make test-kafka-suite`, and the list of tests that it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_suite import run
from kafka_suite.jvm import TestJvm
from kafka_suite.report import closing_line, read_reports, summary
from kafka_suite.run import LISTED

REPORT = """<testsuite>
<testcase name="testCommit()[1]" classname="kafka.server.OffsetCommitRequestTest" time="1.5"/>
<testcase name="testCommit()[2]" classname="kafka.server.OffsetCommitRequestTest" time="1,002.5">
<failure message="expected: 1"/></testcase>
<testcase name="testOther()" classname="kafka.server.OffsetCommitRequestTest" time="0">
<skipped>listed: needs a broker inside the JVM</skipped></testcase>
</testsuite>"""


def test_the_report_counts_by_class_and_shows_why_a_test_failed(tmp_path: Path) -> None:
    (tmp_path / "TEST-junit-jupiter.xml").write_text(REPORT)
    outcomes = read_reports(tmp_path)
    assert [outcome.state for outcome in outcomes] == ["passed", "failed", "skipped"]
    assert {outcome.test for outcome in outcomes} == {
        "kafka.server.OffsetCommitRequestTest#testCommit",
        "kafka.server.OffsetCommitRequestTest#testOther",
    }
    text = summary(outcomes)
    assert "      1       1       1  kafka.server.OffsetCommitRequestTest" in text
    assert "expected: 1" in text
    assert text.endswith("\n1 passed, 1 failed, 1 skipped\n")


def test_every_test_that_is_left_out_has_one_reason() -> None:
    rows = [line.split("\t") for line in LISTED.read_text().splitlines() if not line.startswith("#")]
    assert [row for row in rows if len(row) != 2 or not row[1].strip()] == []
    names = [name for name, _ in rows]
    assert len(names) == len(set(names))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The classes that were started; one that is called Endless does not end."""
    started: list[list[str]] = []

    def run_class(jvm: TestJvm, names: list[str], directory: Path, limit_s: float) -> bool:
        started.append(names)
        (directory / "TEST-junit-jupiter.xml").write_text(REPORT)
        return names != ["Endless"]

    monkeypatch.setattr(run, "run_class", run_class)
    return started


def test_a_run_goes_on_with_the_classes_that_have_not_finished(tmp_path: Path, ran: list[list[str]]) -> None:
    jvm = TestJvm("", None)
    classes = run.by_outer_class(["B$Inner", "A", "B", "Endless"])
    outcomes = run.run_all(classes, jvm, tmp_path, run.Limits(60, 600))
    assert ran == [["A"], ["B", "B$Inner"], ["Endless"]]
    assert closing_line(outcomes) == "3 passed, 4 failed, 3 skipped"
    ran.clear()
    assert run.run_all(classes, jvm, tmp_path, run.Limits(60, 600)) == outcomes
    failed = ["kafka.server.OffsetCommitRequestTest#testCommit"]
    assert ran == [failed, failed, ["Endless"]]


def test_a_test_that_failed_runs_again_and_its_last_outcome_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = '<testcase name="testCommit(ClusterInstance)[1]" classname="A">{0}</testcase>'
    reports = iter([outcome.format('<failure message="busy"/>'), outcome.format("")])
    selected: list[list[str]] = []

    def run_class(jvm: TestJvm, names: list[str], directory: Path, limit_s: float) -> bool:
        selected.append(names)
        (directory / "TEST-junit-jupiter.xml").write_text(f"<testsuite>{next(reports)}</testsuite>")
        return True

    monkeypatch.setattr(run, "run_class", run_class)
    lines = [
        closing_line(run.run_all({"A": ["A"]}, TestJvm("", None), tmp_path, run.Limits(60, 600)))
        for _ in range(3)
    ]
    assert lines == ["0 passed, 1 failed, 0 skipped", *["1 passed, 0 failed, 0 skipped"] * 2]
    assert selected == [["A"], ["A#testCommit(org.apache.kafka.common.test.ClusterInstance)"]]


def test_a_test_that_is_listed_after_its_class_ran_counts_as_listed(
    tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    list_file = tmp_path / "cannot_run.tsv"
    list_file.write_text("")
    monkeypatch.setattr(run, "LISTED", list_file)
    jvm = TestJvm("", list_file)
    first = run.run_all({"A": ["A"]}, jvm, tmp_path, run.Limits(60, 600))
    assert closing_line(first) == "1 passed, 1 failed, 1 skipped"
    list_file.write_text("kafka.server.OffsetCommitRequestTest#testCommit\tneeds an object inside the broker")
    again = run.run_all({"A": ["A"]}, jvm, tmp_path, run.Limits(60, 600))
    assert closing_line(again) == "0 passed, 0 failed, 3 skipped" and len(ran) == 1


def test_classes_side_by_side_are_reported_in_their_order(tmp_path: Path, ran: list[list[str]]) -> None:
    jvm, classes = TestJvm("", None), run.by_outer_class("ABCDEFGH")
    alone = run.run_all(classes, jvm, tmp_path / "alone", run.Limits(60, 600))
    assert run.run_all(classes, jvm, tmp_path / "beside", run.Limits(60, 600), jobs=4) == alone
    assert len(ran) == 2 * len(classes)


def test_a_run_begins_no_class_after_its_limit(tmp_path: Path, ran: list[list[str]]) -> None:
    outcomes = run.run_all({"A": ["A"]}, TestJvm("", None), tmp_path, run.Limits(60, 0))
    assert ran == []
    assert [(one.state, one.reason) for one in outcomes] == [("failed", "not reached: go on with --continue")]


def test_a_class_that_is_listed_starts_no_jvm(tmp_path: Path, ran: list[list[str]]) -> None:
    name = "kafka.server.BrokerMetricNamesTest"
    outcomes = run.run_all({name: [name]}, TestJvm("", LISTED), tmp_path, run.Limits(60, 600))
    assert ran == [] and closing_line(outcomes) == "0 passed, 0 failed, 1 skipped"
