"""JUnit's XML reports as outcomes, and the table that the run prints."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from xml.etree import ElementTree

State = Literal["passed", "failed", "skipped"]
_STATES: Final[tuple[State, ...]] = ("passed", "failed", "skipped")
_REASON_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """One invocation of one test."""

    test: str
    """`class#method`."""
    invocation: str
    state: State
    seconds: float
    reason: str

    @property
    def selector(self) -> str:
        """How JUnit names the test: with the full types of its parameters."""
        parameter = "(org.apache.kafka.common.test.ClusterInstance)"
        return self.test + (parameter if "(ClusterInstance)" in self.invocation else "")


def read_reports(directory: Path) -> list[Outcome]:
    """All outcomes of the reports in a directory, in the order of the run."""
    found: list[Outcome] = []
    for report in sorted(directory.glob("TEST-*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            method = re.match(r"\w+", case.get("name", ""))
            problem = next(
                (case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None
            )
            skipped = case.find("skipped")
            reason = problem if problem is not None else skipped
            found.append(
                Outcome(
                    f"{case.get('classname')}#{method[0] if method else '?'}",
                    case.get("name", ""),
                    "failed" if problem is not None else "skipped" if skipped is not None else "passed",
                    float(case.get("time", "0").replace(",", "")),
                    "" if reason is None else (reason.get("message") or reason.text or "").strip(),
                )
            )
    return found


def summary(outcomes: list[Outcome]) -> str:
    """A line for each class, the failures with their reasons, and the sums."""
    classes: dict[str, Counter[State]] = defaultdict(Counter)
    for outcome in outcomes:
        classes[outcome.test.partition("#")[0]][outcome.state] += 1
    lines = [f"{'passed':>7} {'failed':>7} {'skipped':>7}  class"]
    for name, counts in sorted(classes.items()):
        lines.append(" ".join(f"{counts[state]:>7}" for state in _STATES) + f"  {name}")
    for outcome in outcomes:
        if outcome.state == "failed":
            reason = " ".join(outcome.reason.split())[:_REASON_LENGTH]
            lines.append(f"FAILED {outcome.test} ({outcome.invocation}, {outcome.seconds:.1f} s): {reason}")
    return "\n".join([*lines, closing_line(outcomes), ""])


def closing_line(outcomes: list[Outcome]) -> str:
    """The sums in one line."""
    total = Counter(outcome.state for outcome in outcomes)
    return ", ".join(f"{total[state]} {state}" for state in _STATES)
