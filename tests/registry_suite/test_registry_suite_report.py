"""The report of `make test-confluent-suite`, and the list of tests that cannot pass."""

from __future__ import annotations

from registry_suite.run import LISTED, Outcome, judge, read_report

REPORT = """<testsuites><testsuite>
<testcase classname="tests.schema_registry.test_serdes" name="test_one"/>
<testcase classname="tests.schema_registry.test_serdes" name="test_two"><failure message="1 != 2"/></testcase>
<testcase classname="tests.schema_registry.test_serdes" name="test_three"/>
<testcase classname="tests.schema_registry.test_serdes" name="test_three"><error message="teardown"/></testcase>
<testcase classname="tests.schema_registry.test_serdes" name="test_four"><skipped/></testcase>
</testsuite></testsuites>"""
NAMES = [f"schema_registry.test_serdes::test_{word}" for word in ("one", "two", "three", "four")]


def test_failures_count_also_while_a_test_is_torn_down() -> None:
    assert [(one.name, one.state) for one in read_report(REPORT)] == [
        (NAMES[0], "passed"),
        (NAMES[1], "failed"),
        (NAMES[2], "failed"),
        (NAMES[3], "skipped"),
    ]


def test_only_outcomes_that_the_list_expects_are_good() -> None:
    outcomes = read_report(REPORT)
    reasons = {NAMES[1]: "why", NAMES[2]: "why"}
    text, expected = judge(outcomes, reasons, whole=True)
    assert expected and text == "1 passed, 0 failed, 2 listed, 1 skipped\n"
    text, expected = judge(outcomes, {NAMES[1]: "why"}, whole=True)
    assert not expected and text.startswith(f"FAILED {NAMES[2]}: teardown\n")
    text, expected = judge(outcomes, {**reasons, NAMES[0]: "why", "gone": "why"}, whole=True)
    assert not expected and f"PASSED, but listed: {NAMES[0]}\nLISTED, but not there: gone\n" in text
    assert not judge([Outcome("x", "skipped")], {}, whole=False)[1]


def test_every_test_that_is_listed_has_one_reason() -> None:
    rows = [line.split("\t") for line in LISTED.read_text().splitlines() if not line.startswith("#")]
    assert [row for row in rows if len(row) != 2 or not row[1].strip()] == []
    names = [name for name, _ in rows]
    assert len(names) == len(set(names))
