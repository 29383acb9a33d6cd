"""`make mutations`: breaks one promise after the other in a copy of the source; the named tests must notice each.

First the tests must pass on the unbroken copy. Exit code 1 if a mutation survives, 2 if one cannot be tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue

from mutations.catalog import ROOT, Mutation, load
from ottla.testing.tally import Tally, TallyError, build_of, open_tally

_FAILED = 1
"""pytest's exit code when tests ran and some failed; every other code but 0 means that they could not run."""
_TIMEOUT_S = 600
_COPIED = ("src", "tests", "pyproject.toml", "scripts", "docs", "examples", "bench", "Makefile", "README.md")


class Verdict(Enum):
    """What the tests said of a mutation."""

    CAUGHT = "caught"
    SURVIVED = "NOT CAUGHT"
    BROKEN = "COULD NOT BE TRIED"


@dataclass(frozen=True, slots=True)
class Result:
    mutation: Mutation
    verdict: Verdict
    seconds: float
    detail: str


class Copy:
    """A copy of the tree, in which one mutation at a time is tried."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self._folder = folder
        for name in _COPIED:
            if (root / name).is_dir():
                shutil.copytree(
                    root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis")
                )
            elif (root / name).exists():
                shutil.copy2(root / name, folder / name)

    def attempt(self, mutation: Mutation) -> Result:
        """Break the source, run the tests, mend the source."""
        began = time.monotonic()
        file = self._folder / mutation.path
        whole = file.read_text()
        try:
            self._write(file, mutation.apply(whole))
            code, output = self.test(mutation.tests)
        finally:
            self._write(file, whole)
        verdict = {0: Verdict.SURVIVED, _FAILED: Verdict.CAUGHT}.get(code, Verdict.BROKEN)
        detail = _first_failure(output) if verdict is Verdict.CAUGHT else output[-3000:]
        return Result(mutation, verdict, time.monotonic() - began, detail)

    def test(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run pytest on the copy: its exit code and its output."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--no-header", "--timeout=240"]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self._folder / 'src'}{os.pathsep}{self._folder / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _FAILED, f"FAILED the tests took more than {_TIMEOUT_S} s"
        return done.returncode, done.stdout + done.stderr

    @staticmethod
    def _write(file: Path, text: str) -> None:
        file.write_text(text)
        # Compiled code is recognised by second and size of its source, which may be the same.
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()


def _first_failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].partition(" - ")[0].split(" ", 1)[1] if lines else "no failed test is named"


def check(
    mutations: Sequence[Mutation], jobs: int, ended: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """Try all mutations, each job in a copy of its own, and print a line for each."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ottla-mutations-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(Copy(place))

        def attempt(mutation: Mutation) -> Result:
            copy = copies.get()
            try:
                return copy.attempt(mutation)
            finally:
                copies.put(copy)

        copy = copies.get()
        tests = sorted({test for mutation in mutations for test in mutation.tests})
        code, output = copy.test(tests)
        if code:
            _print(f"The tests do not pass on the unbroken source:\n{output[-4000:]}")
            sys.exit(2)
        copies.put(copy)
        with ThreadPoolExecutor(jobs) as pool:
            for result in pool.map(attempt, mutations):
                results.append(result)
                _report(result)
                ended(result)
    return results


def go_on(mutations: Sequence[Mutation], jobs: int, tally: Tally, tests: str) -> list[Result]:
    """Try those that the tally does not have with these tests yet, and add each."""
    entries = tally.entries("mutations")
    caught = {entry.key for entry in entries if entry.condition == tests and not entry.failures}
    left = [each for each in mutations if each.name not in caught]
    _print(f"{len(mutations) - len(left)} of {len(mutations)} mutations were caught before, by {tally.path}")

    def add(result: Result) -> None:
        held = result.verdict is Verdict.CAUGHT
        tally.add(
            "mutations",
            result.mutation.name,
            {"caught": int(held)},
            failures=[] if held else [f"{result.verdict.value}: {result.mutation.promise}"],
            seconds=result.seconds,
            condition=tests,
        )

    return check(left, jobs, add) if left else []


def _report(result: Result) -> None:
    mutation = result.mutation
    line = f"{result.verdict.value:10} {mutation.name:40} {result.seconds:5.1f} s"
    if result.verdict is Verdict.CAUGHT:
        _print(f"{line}  {result.detail}")
    else:
        _print(f"{line}  {mutation.promise} ({mutation.file})\n{result.detail}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m mutations.run", description=__doc__)
    words.add_argument("--only", help="names of mutations, separated by commas, or parts of them")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutations side by side")
    words.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="try what this build has not tried yet, and count it",
    )
    given = words.parse_args()
    parts = (given.only or "").split(",")
    chosen = [one for one in load() if any(part in one.name for part in parts)]
    try:
        jobs = max(given.jobs, 1)
        results = (
            go_on(chosen, jobs, open_tally(), build_of(ROOT / "tests").tree[:12])
            if given.go_on
            else check(chosen, jobs)
        )
    except TallyError as error:
        sys.exit(str(error))
    counts = {verdict: sum(each.verdict is verdict for each in results) for verdict in Verdict}
    _print(
        f"{len(results)} mutations: {counts[Verdict.CAUGHT]} caught, {counts[Verdict.SURVIVED]} not caught, "
        f"{counts[Verdict.BROKEN]} could not be tried"
    )
    sys.exit(1 if counts[Verdict.SURVIVED] else 2 if counts[Verdict.BROKEN] else 0)


if __name__ == "__main__":
    main()
