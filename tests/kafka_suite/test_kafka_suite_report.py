"""The report of `make test-kafka-suite`, and the list of tests that it leaves out."""

from __future__ import annotations

from pathlib import Path

from kafka_suite.report import read_reports, summary
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
