"""`make test-confluent-suite`: confluent-kafka's own tests of registries and serializers, against a running registry.

They are read from a checkout of its repository and run in an environment of their own. Exit code 1 when a test fails
that `cannot_run.tsv` does not list, or when one passes that it lists.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ottla.testing.registry import RegistryProcess
from ottla.testing.running import quick_broker

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("cannot_run.tsv")
EXTRAS = "schemaregistry,avro,json,protobuf,rules"
TOOLS = (
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "respx",
    "requests-mock",
    "async-timeout",
    "trivup",
    "orjson",
    "google-crc32c",
)
FOLDERS = ("tests/schema_registry", "tests/integration/schema_registry")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A test, and why it failed, if it did."""

    name: str
    state: str
    reason: str = ""


def listed() -> dict[str, str]:
    """The reasons of `cannot_run.tsv` by test."""
    lines = LISTED.read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def read_report(text: str) -> list[Outcome]:
    """The outcomes of a report in JUnit's form. Failures while a test is set up or torn down count."""
    found: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}"
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        if problem is not None:
            found[name] = Outcome(name, "failed", problem.get("message", "")[:300])
        elif case.find("skipped") is not None:
            found.setdefault(name, Outcome(name, "skipped"))
        else:
            found.setdefault(name, Outcome(name, "passed"))
    return list(found.values())


def judge(outcomes: list[Outcome], reasons: dict[str, str], *, whole: bool) -> tuple[str, bool]:
    """A report, and whether the outcomes are those that are expected."""
    failed = [one for one in outcomes if one.state == "failed" and one.name not in reasons]
    passed = {one.name for one in outcomes if one.state == "passed"}
    known = [one for one in outcomes if one.state == "failed" and one.name in reasons]
    healed = sorted(passed & set(reasons))
    unknown = sorted(set(reasons) - {one.name for one in outcomes}) if whole else []
    lines = [f"FAILED {one.name}: {one.reason}" for one in failed]
    lines += [f"PASSED, but listed: {name}" for name in healed]
    lines += [f"LISTED, but not there: {name}" for name in unknown]
    skipped = sum(one.state == "skipped" for one in outcomes)
    lines.append(f"{len(passed)} passed, {len(failed)} failed, {len(known)} listed, {skipped} skipped")
    return "\n".join(lines) + "\n", bool(passed) and not failed and not healed and not unknown


def environment(checkout: Path) -> Path:
    """The interpreter of an environment with the library in the version of the checkout."""
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    folder = ROOT / "build" / f"confluent-kafka-{version}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        wanted = [f"confluent-kafka[{EXTRAS}]=={version}", *TOOLS]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        ready.touch()
    return python


def run(checkout: Path, python: Path, only: str, bootstrap: str, url: str) -> list[Outcome]:
    """Run the tests, each folder in its own process: executors of rules take one address of a registry only.

    The reports are what counts, not pytest's exit code. A folder without a test of the name that is asked for is empty.
    """
    variables = {
        **os.environ,
        "OTTLA_REGISTRY_URL": url,
        "BROKERS": bootstrap,
        "SR_URL": url,
        "PYTHONPATH": f"{Path(__file__).parents[1]}{os.pathsep}{checkout}",
    }
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as directory:
        for folder in FOLDERS:
            report = Path(directory) / "report.xml"
            command: list[str | Path] = [python, "-m", "pytest", "-q", "--timeout=120", "--tb=short"]
            command += ["-p", "registry_suite.confluent_plugin", "-p", "no:cacheprovider"]
            command += [f"--junitxml={report}", *(["-k", only] if only else []), folder]
            subprocess.run(command, cwd=checkout, env=variables, check=False)
            outcomes += read_report(report.read_text())
    return outcomes


def main() -> None:
    """Start a broker and a registry, run the tests, and compare their outcomes with the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of confluent-kafka-python")
    parser.add_argument("--python", type=Path, help="an interpreter that has the library and its extras")
    parser.add_argument("--only", default="", help="an expression for pytest's -k")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    if not (checkout / FOLDERS[0]).is_dir():
        sys.exit(f"{checkout} is no checkout of confluent-kafka-python: it has no {FOLDERS[0]}")
    python = given.python or environment(checkout)
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as folder:
        broker = quick_broker(Path(folder) / "data").start()
        try:
            with RegistryProcess(broker.bootstrap) as registry:
                outcomes = run(checkout, python, given.only, broker.bootstrap, registry.url)
        finally:
            broker.kill()
    text, expected = judge(outcomes, listed(), whole=not given.only)
    sys.stdout.write(text)
    sys.exit(not expected)


if __name__ == "__main__":
    main()
