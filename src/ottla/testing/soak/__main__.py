"""`python -m ottla.testing.soak --hours 2`: the chaos mix with every part of the product, and a report with charts."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.testing.chaos.faults import FAULTS
from ottla.testing.chaos.run import LEDGER, TOPICS, Plan, Verdict, possible, run
from ottla.testing.checks.history import Recorder
from ottla.testing.cluster import Cluster
from ottla.testing.soak.copies import TableCopy, running_mirror
from ottla.testing.soak.parts import Parts, running_parts
from ottla.testing.soak.pipeline import PipelineCopy, running_pipeline
from ottla.testing.soak.samples import Sampler, chart, growth
from ottla.testing.tally import TallyError, open_tally

_MOST_GROWTH: Final = 0.25
"""Memory and descriptors of a part that no fault restarts must not grow by more, in parts."""
_SETTLED_S: Final = 1200.0
"""In shorter runs the parts are still filling their caches."""


class Soak:
    """Starts parts and sampler beside the cluster of a chaos run."""

    def __init__(self, directory: Path, each_s: float) -> None:
        self.directory = directory
        self.parts = Parts()
        self.sampler: Sampler | None = None
        self.pipeline: PipelineCopy | None = None
        self._each_s = each_s
        self._unfinished: list[str] = []

    @contextlib.contextmanager
    def beside(self, cluster: Cluster, recorder: Recorder) -> Iterator[None]:
        table = TableCopy(self.directory, LEDGER, TOPICS[LEDGER])
        with (
            running_parts(cluster, self.directory, {"soak-table": table.config}) as self.parts,
            running_mirror(cluster.bootstrap, self.directory, TOPICS, "group") as mirror,
            running_pipeline(cluster, self.directory, LEDGER, TOPICS[LEDGER]) as pipeline,
        ):
            self.pipeline = pipeline
            self.parts.add("mirror", mirror.pid)
            self.sampler = Sampler(
                lambda: {**self.parts.pids, "pipeline": pipeline.pid, **_nodes(cluster)}, self._each_s
            )
            self.sampler.start()
            try:
                yield
            finally:
                self.sampler.stop()
            for copy in (table, mirror, pipeline):
                try:
                    copy.finish(recorder)
                except Exception as error:  # noqa: BLE001  a copy that cannot be compared is a finding
                    self._unfinished.append(f"a copy could not be compared: {error}")

    def findings(self) -> list[str]:
        """What is wrong with the parts."""
        found = [f"{name} does not answer in the end" for name, good in self.parts.last.items() if not good]
        found += self._unfinished
        samples = self.sampler.samples if self.sampler is not None else []
        if not samples or samples[-1].at_s < _SETTLED_S:
            return found
        for name in self.parts.pids:
            for what, values in (
                ("memory", [each.resident_mb for each in samples if each.name == name]),
                ("descriptors", [float(each.descriptors) for each in samples if each.name == name]),
            ):
                if growth(values) > _MOST_GROWTH:
                    found.append(f"{what} of {name} grew by {growth(values):.0%}")
        return found

    def report(self, verdict: Verdict, hours: float, seed: int) -> str:
        """Write the charts, and return the report in Markdown."""
        samples = self.sampler.samples if self.sampler is not None else []
        names = sorted({each.name for each in samples})
        memory = {n: [(s.at_s, s.resident_mb) for s in samples if s.name == n] for n in names}
        open_files = {n: [(s.at_s, float(s.descriptors)) for s in samples if s.name == n] for n in names}
        (self.directory / "memory.svg").write_text(chart("Resident memory", memory, "MB"))
        (self.directory / "descriptors.svg").write_text(chart("Open descriptors", open_files, ""))
        drivers = (self.pipeline.kills, self.pipeline.ends) if self.pipeline is not None else (0, 0)
        lines = [
            "# Soak",
            "",
            f"{hours:g} hours asked for, {verdict.seconds / 3600:.2f} run, seed {seed}.",
            "",
            "| Fault | Times |",
            "|---|---:|",
            *(f"| {kind} | {count} |" for kind, count in sorted(verdict.faults.items())),
            f"| kill of the pipeline's driver | {drivers[0]} |",
            f"| end of the driver by itself | {drivers[1]} |",
            "",
            "| Operation | Count |",
            "|---|---:|",
            f"| records acknowledged | {verdict.acknowledged} |",
            *(f"| transactions {how} | {count} |" for how, count in sorted(verdict.transactions.items())),
            f"| records polled | {verdict.polled} |",
            *(f"| {part} {how} | {count} |" for (part, how), count in sorted(self.parts.answers.items())),
            "",
            f"Longest time without a write: {verdict.longest_gap_s:.1f} s.",
            "",
            "| Process | Memory in the end | Growth | Descriptors in the end | Growth |",
            "|---|---:|---:|---:|---:|",
        ]
        for name in names:
            sizes, counts = [v for _, v in memory[name]], [v for _, v in open_files[name]]
            lines.append(
                f"| {name} | {sizes[-1]:.0f} MB | {growth(sizes):+.0%} | {counts[-1]:.0f} | {growth(counts):+.0%} |"
            )
        lines += ["", "![memory](memory.svg)", "", "![descriptors](descriptors.svg)", "", "## Anomalies", ""]
        found = [f"{each.kind}: {each.what}" for each in verdict.anomalies] + self.findings()
        lines += [f"- {each}" for each in found[:50]] or ["None."]
        return "\n".join([*lines, ""])


def _nodes(cluster: Cluster) -> dict[str, int]:
    return {f"node {i}": node.pid for i, node in cluster.nodes.items() if cluster.running(i)}


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m ottla.testing.soak", description=__doc__)
    words.add_argument("--hours", type=float, default=2.0)
    words.add_argument(
        "--faults", help=f"some of {', '.join(FAULTS)}; all that this machine allows if left out"
    )
    words.add_argument("--seed", type=int, default=int(time.time()))
    words.add_argument("--keep", type=Path, default=Path("build/soak"), help="where reports are kept")
    given = words.parse_args()
    directory = given.keep / time.strftime("%Y%m%d-%H%M%S")
    directory.mkdir(parents=True)
    soak = Soak(directory, each_s=max(given.hours * 3600 / 2000, 1.0))
    plan = Plan(
        directory / "chaos",
        possible(given.faults.split(",") if given.faults else tuple(FAULTS)),
        seconds=given.hours * 3600,
        seed=given.seed,
        pause_s=0.02,
    )
    try:
        tally = open_tally()
    except TallyError as error:
        _say(f"{error}. This soak is not counted.")
        tally = None
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())
    verdict = run(plan, _say, enough, soak.beside)
    report = soak.report(verdict, given.hours, given.seed)
    (directory / "report.md").write_text(report)
    _say(report)
    _say(f"report in {directory}; faults: {Counter(verdict.faults).total()}")
    found = [f"{each.kind}: {each.what}" for each in verdict.anomalies] + soak.findings()
    if tally is not None:
        tally.add(
            "soak",
            directory.name,
            {"hours": round(verdict.seconds / 3600, 2), **verdict.faults},
            failures=found,
            seconds=verdict.seconds,
        )
    sys.exit(bool(found))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
