"""The tally of long fault runs: what was run on one build, a line each, so that a count can be continued.

A build is the Git tree of `src`: commits that change tests or documentation only share one tally. `python -m
ottla.testing.tally` (`make fault-report`) prints it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from stat import S_ISREG
from types import FrameType
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2]
FOLDER_VARIABLE: Final = "OTTLA_FAULT_TALLY"
_FOLDER: Final = Path("fault-runs")
_SHORT: Final = 12
_MOST_FAILURES: Final = 50

KILLS: Final = ("kill", "kill-two", "kill-all")
PAUSES: Final = ("pause", "pause-long")
PARTITIONS: Final = ("cut-leader", "cut-minority", "cut-one-way", "cut-ring", "cut-all", "flap")

SPARK_VICTIMS: Final = ("driver", "executor", "python worker", "worker", "master")


class TallyError(Exception):
    """The tally cannot be kept. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Build:
    """The source that was run."""

    tree: str
    """Git's hash of the directory, which `git rev-parse COMMIT:src` prints, too."""
    commit: str
    """The commit that was checked out; it ends with `+` if the directory had changes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished piece of a count."""

    what: str
    key: str
    """Names the piece: a seed, a target with a seed, a run."""
    counts: dict[str, float]
    failures: tuple[str, ...] = ()
    cpu_s: float = 0.0
    """0 if that is not known."""
    seconds: float = 0.0
    commit: str = ""
    at: float = 0.0
    condition: str = ""
    """What it depends on beside the build; a piece runs again under another one."""


def build_of(folder: Path = SOURCE) -> Build:
    """Return the build that a directory of a Git checkout has now, with changes that are not committed."""
    if shutil.which("git") is None:
        raise TallyError("the tally names its builds by Git's hash of src: install git")
    with tempfile.TemporaryDirectory() as place:
        index = Path(place) / "index"
        known = Path(_git(folder, "rev-parse", "--git-path", "index"))
        known = known if known.is_absolute() else folder / known
        if known.exists():
            # It has the times of files that are unchanged, so that Git reads only the others.
            shutil.copy2(known, index)
        _git(folder, "add", "--all", ".", index=index)
        prefix = _git(folder, "rev-parse", "--show-prefix")
        tree = _git(folder, "write-tree", f"--prefix={prefix}", index=index)
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    changed = tree != _git(folder, "rev-parse", f"HEAD:{prefix}")
    return Build(tree, f"{commit}{'+' if changed else ''}")


def _git(folder: Path, *words: str, index: Path | None = None) -> str:
    environment = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index is not None else {})}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise TallyError(f"the tally needs a Git checkout with {folder} in it: {done.stderr.strip()}")
    return done.stdout.strip()


def folder_of_tallies() -> Path:
    """Return where tallies are kept: `fault-runs`, or what OTTLA_FAULT_TALLY says."""
    return Path(os.environ.get(FOLDER_VARIABLE, _FOLDER))


class Tally:
    """The entries of one build. Several processes may add to it at the same time."""

    def __init__(self, folder: Path, build: Build, source: Path = SOURCE) -> None:
        self.build = build
        self.path = folder / f"{build.tree[:_SHORT]}.jsonl"
        self._source = source
        self._stamp = _stamp(source)

    def entries(self, what: str) -> list[Entry]:
        """Return the entries of one count, the last of each key."""
        return list({entry.key: entry for entry in _read(self.path) if entry.what == what}.values())

    def keys(self, what: str) -> set[str]:
        return {entry.key for entry in self.entries(what)}

    def totals(self, what: str) -> dict[str, float]:
        """Return the sums of an entry's counts by name."""
        return totals(self.entries(what))

    def add(
        self,
        what: str,
        key: str,
        counts: Mapping[str, float],
        *,
        failures: Iterable[str] = (),
        cpu_s: float = 0.0,
        seconds: float = 0.0,
        condition: str = "",
    ) -> None:
        """Add a piece. Raises TallyError if the source is another one than at the start of this process."""
        self._check_source()
        found = tuple(str(each)[:2000] for each in failures)[:_MOST_FAILURES]
        entry = Entry(
            what,
            key,
            dict(counts),
            found,
            round(cpu_s, 2),
            round(seconds, 2),
            self.build.commit,
            round(time.time()),
            condition,
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(asdict(entry)) + "\n")

    def _check_source(self) -> None:
        if (stamp := _stamp(self._source)) == self._stamp:
            return
        if build_of(self._source).tree != self.build.tree:
            raise TallyError(
                "src has changed since this run began: start it again to count for the new build"
            )
        self._stamp = stamp


def open_tally(source: Path = SOURCE) -> Tally:
    """Return the tally of the source that runs now."""
    return Tally(folder_of_tallies(), build_of(source), source)


@contextlib.contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """Raise TimeoutError in the block, each second, once this process has used so much CPU.

    An endless piece must not end a count.
    """

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {cpu_s:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def totals(entries: Iterable[Entry]) -> dict[str, float]:
    """Return the sums of counts by name."""
    found: dict[str, float] = {}
    for entry in entries:
        for name, count in entry.counts.items():
            found[name] = found.get(name, 0) + count
    return found


def _stamp(folder: Path) -> int:
    files = ((str(file), file.stat()) for file in folder.rglob("*") if file.suffix != ".pyc")
    return hash(
        frozenset((name, each.st_mtime_ns, each.st_size) for name, each in files if S_ISREG(each.st_mode))
    )


def _read(path: Path) -> Iterator[Entry]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue  # the machine died while it was written
        yield Entry(**{**fields, "failures": tuple(fields["failures"])})


# -- the report


@dataclass(frozen=True, slots=True)
class Goal:
    """A count that a build has to reach."""

    what: str
    title: str
    wanted: float
    names: tuple[str, ...] = ()
    """The names of counts that are added up; all if it is empty."""
    unit: str = ""

    def reached(self, entries: Iterable[Entry]) -> float:
        found = totals(each for each in entries if each.what == self.what)
        return sum(count for name, count in found.items() if not self.names or name in self.names)


GOALS: Final = (
    Goal("sim", "seeds of the simulator", 10_000, ("seeds",)),
    Goal("chaos", "kill -9 of nodes", 1000, KILLS),
    Goal("chaos", "pauses of nodes", 500, PAUSES),
    Goal("chaos", "partitions of the network", 500, PARTITIONS),
    Goal("fuzz", "fuzz cases", 10_000_000),
    Goal("spark", "kills of Spark's processes", 100, SPARK_VICTIMS),
    Goal("drips", "slow-drip connections at once", 5000, ("connections",)),
    Goal("mutations", "mutations that a test notices", 40, ("caught",)),
    Goal("soak", "hours of soak", 2, ("hours",)),
)


@dataclass(slots=True)
class Report:
    """The tally of one build as Markdown."""

    tree: str
    entries: list[Entry]
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        commits = sorted({entry.commit for entry in self.entries})
        self.lines = [
            f"Tree {self.tree} of `src`, commits {', '.join(commits)}:",
            "",
            "| Count | Run | Goal | Failed | CPU | Time |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for goal in GOALS:
            self._goal(goal)
        for what, title in (
            ("chaos", "Fault on real nodes"),
            ("spark", "Killed"),
            ("fuzz", "Fuzz target"),
        ):
            self._details(what, title)
        failed = [entry for entry in self.entries if entry.failures]
        self.lines += ["", f"Failed: {len(failed)}.", ""] if failed else ["", "Nothing failed."]
        self.lines += [f"- {each.what} {each.key}: {each.failures[0]}" for each in failed[:_MOST_FAILURES]]
        return "\n".join(self.lines)

    def _goal(self, goal: Goal) -> None:
        own = [entry for entry in self.entries if entry.what == goal.what]
        if goal.names:
            own = [entry for entry in own if entry.failures or set(goal.names) & set(entry.counts)]
        failed = sum(bool(entry.failures) for entry in own)
        cpu_s, seconds = sum(entry.cpu_s for entry in own), sum(entry.seconds for entry in own)
        self.lines.append(
            f"| {goal.title} | {_number(goal.reached(own))} | {_number(goal.wanted)} | {failed} "
            f"| {_number(round(cpu_s)) + ' s' if cpu_s else ''} | {_number(round(seconds))} s |"
        )

    def _details(self, what: str, title: str) -> None:
        found = totals(entry for entry in self.entries if entry.what == what)
        if found:
            self.lines += ["", f"| {title} | Times |", "|---|---:|"]
            self.lines += [f"| {name} | {_number(count)} |" for name, count in sorted(found.items())]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def report_of(path: Path) -> str:
    """Return the report of one tally file."""
    last = {(entry.what, entry.key): entry for entry in _read(path)}
    return Report(path.stem, list(last.values())).text()


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m ottla.testing.tally", description=__doc__)
    words.add_argument("--all", action="store_true", help="all builds that have a tally, the oldest first")
    words.add_argument("--folder", type=Path, default=folder_of_tallies(), help="where tallies are kept")
    given = words.parse_args()
    try:
        paths = (
            sorted(given.folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
            if given.all
            else [Tally(given.folder, build_of()).path]
        )
    except TallyError as error:
        sys.exit(str(error))
    sys.stdout.write("\n\n".join(map(report_of, paths)) + "\n")


if __name__ == "__main__":
    main()
