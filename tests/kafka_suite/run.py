"""`make test-kafka-suite`: Apache Kafka's own published cluster tests, on clusters of Ottla processes.

Each class runs in a JVM of its own for a bounded time. Reports of classes that ran to their end are kept: a run that
was stopped, or that reached its limit, goes on with `--continue`. That also runs failed tests again, and their last
outcome counts. Exit code 1 when a test fails that `cannot_run.tsv` does not list, when a class was not reached, or when
fewer than `--at-least` tests passed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_suite.jars import cluster_tests, compiled
from kafka_suite.jvm import TestJvm, end_all, run_class
from kafka_suite.report import Outcome, closing_line, read_reports, summary

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("cannot_run.tsv")
_FINISHED = "finished"
_AGAIN = "again-"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one class may take, and after what time no further class begins."""

    class_s: float
    whole_s: float


def listed() -> dict[str, str]:
    """The reasons of `cannot_run.tsv` by class or `class#method`."""
    lines = LISTED.read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def by_outer_class(names: Iterable[str]) -> dict[str, list[str]]:
    """The classes to run in one JVM: a class with those that are declared inside it."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(name.partition("$")[0], []).append(name)
    return found


def run_all(
    classes: dict[str, list[str]], jvm: TestJvm, reports: Path, limits: Limits, jobs: int = 1
) -> list[Outcome]:
    """Run the classes, some side by side, and say of each how it went; finished ones are only read."""
    end = time.monotonic() + limits.whole_s
    reasons = {} if jvm.listed is None else listed()

    def outcome(name: str, selected: list[str]) -> list[Outcome]:
        directory = reports / name
        if all(one in reasons for one in selected):
            return [Outcome(f"{one}#*", "", "skipped", 0.0, reasons[one]) for one in selected]
        late = time.monotonic() >= end
        if (directory / _FINISHED).exists():
            found = [_as_listed(one, reasons) for one in _read_all(directory)]
            failed = sorted({one.selector for one in found if one.state == "failed"})
            if failed and not late:
                _run(name, failed, jvm, directory / f"{_AGAIN}{_times_again(directory) + 1}", limits.class_s)
                found = [_as_listed(one, reasons) for one in _read_all(directory)]
            return found
        if late:
            return [Outcome(f"{name}#*", "", "failed", 0.0, "not reached: go on with --continue")]
        return _run(name, selected, jvm, directory, limits.class_s)

    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            results = pool.map(outcome, classes, classes.values())
            for number, (name, found) in enumerate(zip(classes, results, strict=True), start=1):
                outcomes += found
                sys.stdout.write(f"{number}/{len(classes)} {name}: {closing_line(found)}\n")
                sys.stdout.flush()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
    return outcomes


def _times_again(directory: Path) -> int:
    return len(list(directory.glob(f"{_AGAIN}*")))


def _read_all(directory: Path) -> list[Outcome]:
    """The outcomes of a class; those of tests that ran again replace the earlier ones."""
    newest = {(one.test, one.invocation): one for one in read_reports(directory)}
    for number in range(1, _times_again(directory) + 1):
        newest |= {(one.test, one.invocation): one for one in read_reports(directory / f"{_AGAIN}{number}")}
    return list(newest.values())


def _as_listed(outcome: Outcome, reasons: dict[str, str]) -> Outcome:
    """The outcome, or a skipped one if its test was listed after its class ran."""
    reason = reasons.get(outcome.test)
    return outcome if reason is None else replace(outcome, state="skipped", reason=reason)


def _run(name: str, selected: list[str], jvm: TestJvm, directory: Path, limit_s: float) -> list[Outcome]:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    ended = run_class(jvm, selected, directory, limit_s)
    found = read_reports(directory)
    if not ended:
        return [*found, Outcome(f"{name}#*", "", "failed", limit_s, f"not finished within {limit_s:.0f} s")]
    if not found:
        return [Outcome(f"{name}#*", "", "failed", 0.0, f"no report: see {directory / 'console.txt'}")]
    (directory / _FINISHED).touch()
    return found


def main() -> None:
    """Run what the arguments select, print the summary, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression; the class names to run")
    parser.add_argument("--method", default="", help="only this method of the classes")
    parser.add_argument("--all", action="store_true", help="run the listed tests as well")
    parser.add_argument(
        "--continue",
        dest="go_on",
        action="store_true",
        help="keep the reports of finished classes, and run their failed tests again",
    )
    parser.add_argument("--class-limit", type=float, default=2400, metavar="SECONDS", help="for one class")
    parser.add_argument(
        "--limit", type=float, default=7200, metavar="SECONDS", help="then begin no other class"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many classes run side by side")
    parser.add_argument("--at-least", type=int, default=0, help="how many tests must pass")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kafka-suite")
    options = parser.parse_args()
    # As an exception it also ends the JVMs of the classes that run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reports = options.out / "reports"
    if not options.go_on:
        shutil.rmtree(reports, ignore_errors=True)
    classes = by_outer_class(name for name in cluster_tests() if re.search(options.only, name))
    jvm = TestJvm(compiled(options.out / "classes"), None if options.all else LISTED, options.method)
    limits = Limits(options.class_limit, options.limit)
    outcomes = run_all(classes, jvm, reports, limits, options.jobs)
    sys.stdout.write(summary(outcomes))
    passed = sum(outcome.state == "passed" for outcome in outcomes)
    failed = any(outcome.state == "failed" for outcome in outcomes)
    sys.exit(failed or passed < options.at_least)


if __name__ == "__main__":
    main()
