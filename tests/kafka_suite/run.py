"""`make test-kafka-suite`: Apache Kafka's own published cluster tests, on clusters of Ottla processes.

Exit code 1 when a test fails that `cannot_run.tsv` does not list, or when fewer than `--at-least` tests passed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from kafka_suite.jars import cluster_tests, compiled
from kafka_suite.report import Outcome, read_reports, summary

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("cannot_run.tsv")
_FLAGS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+EnableDynamicAgentLoading",
)


def run(names: list[str], build: Path, *, all_tests: bool, out: Path) -> list[Outcome]:
    """Run test classes, or single methods as `class#method`, in one JVM. JUnit's reports go to `out`."""
    path = compiled(build / "classes")
    selected = [f"--select-method={name}" if "#" in name else f"--select-class={name}" for name in names]
    properties = {
        "ottla.python": sys.executable,
        "org.slf4j.simpleLogger.defaultLogLevel": "error",
        "java.io.tmpdir": str(out),
        **({} if all_tests else {"ottla.listed": str(LISTED)}),
    }
    configuration = {
        "junit.jupiter.extensions.autodetection.enabled": "true",
        "junit.jupiter.execution.timeout.testtemplate.method.default": "180 s",
        "junit.jupiter.execution.timeout.beforeeach.method.default": "120 s",
    }
    out.mkdir(parents=True, exist_ok=True)
    command = [
        "java",
        *_FLAGS,
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", path, "org.junit.platform.console.ConsoleLauncher", "execute"),
        *(f"--config={key}={value}" for key, value in configuration.items()),
        *("--reports-dir", str(out), "--details=testfeed", "--disable-banner", "--disable-ansi-colors"),
        *selected,
    ]
    tests = os.pathsep.join((str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": tests.strip(os.pathsep), "PYTHONDONTWRITEBYTECODE": ""}
    with (out / "console.txt").open("w") as console:
        subprocess.run(command, env=environment, stdout=console, stderr=subprocess.STDOUT, check=False)
    return read_reports(out)


def main() -> None:
    """Run what the arguments select, print the summary, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression; the class names to run")
    parser.add_argument("--all", action="store_true", help="run the listed tests as well")
    parser.add_argument("--at-least", type=int, default=0, help="how many tests must pass")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kafka-suite")
    options = parser.parse_args()
    names = sorted(name for name in cluster_tests() if re.search(options.only, name))
    outcomes = run(names, options.out, all_tests=options.all, out=options.out / "reports")
    sys.stdout.write(summary(outcomes))
    passed = sum(outcome.state == "passed" for outcome in outcomes)
    failed = any(outcome.state == "failed" for outcome in outcomes)
    sys.exit(failed or passed < options.at_least)


if __name__ == "__main__":
    main()
